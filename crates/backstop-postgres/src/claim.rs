//! Claims ready jobs, and seizes jobs from workers that stopped sending heartbeats.

use crate::link::{CommitMode, PostgresLink};
use crate::row::{self, ClaimedRow};
use crate::scan_hint::{ScanHints, ScanTarget};
use backstop_core::limits::{CLAIM_BYTES_MAX, LEASE_REQUEST_MAX, SEIZE_EMPTIED_MAX, SEIZE_MAX};
use backstop_core::port::{Claim, SeizeRequest, SeizeResult, SeizedRun, StoreError, StoreResult};
use backstop_core::verdict::LostLease;
use backstop_core::{Lease, LeaseNumber, LeasedRun, Time};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const SEIZING: &str = "seizing";

/// Claims ready jobs. A repeated claim returns what is left of the first.
pub(crate) async fn claim(
    link: &PostgresLink,
    claim: &Claim,
    now: Time,
) -> StoreResult<Vec<LeasedRun>> {
    let queues: Vec<&str> = claim.wants.iter().map(|want| want.queue.as_str()).collect();
    let max: Vec<i32> = claim
        .wants
        .iter()
        .map(|want| row::number(want.max))
        .collect();
    let params = [
        (&claim.number.as_i64() as _, Type::INT8),
        (&claim.worker.as_str() as _, Type::TEXT),
        (&claim.until.as_micros() as _, Type::INT8),
        (&queues as _, Type::TEXT_ARRAY),
        (&max as _, Type::INT4_ARRAY),
        (&now.as_micros() as _, Type::INT8),
        (
            &i64::try_from(CLAIM_BYTES_MAX).unwrap_or(i64::MAX) as _,
            Type::INT8,
        ),
    ];
    let rows = link
        .call("claiming", CommitMode::Quick, "claim", &params)
        .await?;
    Ok(in_order(&rows, claim.number)?
        .into_iter()
        .map(|held| held.run)
        .collect())
}

/// Seizes jobs of expired claims.
pub(crate) async fn seize(
    link: &PostgresLink,
    scan_hints: &ScanHints,
    seize: &SeizeRequest,
    commit: CommitMode,
    now: Time,
) -> StoreResult<SeizeResult> {
    let (look, max) = (
        scan_hints.begin_scan(&ScanTarget::ExpiredLeases, now),
        seize.max.min(SEIZE_MAX),
    );
    let params = [
        (&seize.number.as_i64() as _, Type::INT8),
        (&seize.worker.as_str() as _, Type::TEXT),
        (&seize.until.as_micros() as _, Type::INT8),
        (&row::number(max) as _, Type::INT4),
        (&now.as_micros() as _, Type::INT8),
        (&now.after(LEASE_REQUEST_MAX).as_micros() as _, Type::INT8),
        (&look.begins_at() as _, Type::INT8),
        (&row::number(SEIZE_EMPTIED_MAX) as _, Type::INT4),
    ];
    let rows = link.call(SEIZING, commit, "seize", &params).await?;
    let (left, rows) = rows
        .split_last()
        .ok_or_else(|| StoreError::corrupt(SEIZING, "no last row"))?;
    let (more, passed): (bool, bool) = (row::get(left, 15)?, row::get(left, 16)?);
    // A skipped lease is locked by another session, which may roll back. The lease is then still
    // the first expired one, so the next scan must not start behind it.
    if !more && !passed {
        scan_hints.record_cleared(ScanTarget::ExpiredLeases, look, now);
    }
    let mut held = in_order(rows, seize.number)?;
    held.sort_by(|one, other| one.place.cmp(&other.place));
    Ok(SeizeResult {
        runs: held.into_iter().filter_map(seized).collect(),
        more,
    })
}

fn seized(held: ClaimedRow) -> Option<SeizedRun> {
    let (worker, number) = held.vanished?;
    let lease = Lease {
        number,
        ..held.run.lease.clone()
    };
    Some(SeizedRun {
        run: held.run,
        vanished: LostLease { worker, lease },
        begun: held.begun,
    })
}

fn in_order(rows: &[Row], number: LeaseNumber) -> StoreResult<Vec<ClaimedRow>> {
    rows.iter()
        .map(|row| row::claimed_row(row, number))
        .collect()
}
