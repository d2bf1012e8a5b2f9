//! Takes keys: hands them out under a lease.

use super::stored::stored;
use crate::link::{CommitMode, PostgresLink};
use crate::row;
use crate::scan_hint::{ScanHints, ScanTarget};
use backstop_core::limits::{LEASE_REQUEST_MAX, TAKE_BYTES_MAX, WINDOW_RECORDS_MAX};
use backstop_core::port::{KeySelection, StoreResult, TakeRequest, TakeResult};
use backstop_core::{StreamKey, Time};
use tokio_postgres::types::Type;

const DOING: &str = "taking keys";

/// Hands keys out. A repeated take returns what is left of the first.
pub(super) async fn take(
    link: &PostgresLink,
    scan_hints: &ScanHints,
    take: &TakeRequest,
    now: Time,
) -> StoreResult<TakeResult> {
    match &take.wanted {
        KeySelection::Keys(keys) => named(link, take, keys, false, now).await,
        KeySelection::Seized(keys) => named(link, take, keys, true, now).await,
        KeySelection::Due(max) => due(link, scan_hints, take, *max, now).await,
    }
}

async fn named(
    link: &PostgresLink,
    take: &TakeRequest,
    keys: &[StreamKey],
    seize: bool,
    now: Time,
) -> StoreResult<TakeResult> {
    if keys.is_empty() {
        return Ok(TakeResult::default());
    }
    let mut names: Vec<&str> = keys.iter().map(StreamKey::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let params = [
        (&take.stream.as_str() as _, Type::TEXT),
        (&take.number.as_i64() as _, Type::INT8),
        (&take.worker.as_str() as _, Type::TEXT),
        (&take.until.as_micros() as _, Type::INT8),
        (&seize as _, Type::BOOL),
        (&names as _, Type::TEXT_ARRAY),
        (&bytes_max() as _, Type::INT8),
        (&row::number(WINDOW_RECORDS_MAX) as _, Type::INT4),
        (&now.as_micros() as _, Type::INT8),
        (&now.after(LEASE_REQUEST_MAX).as_micros() as _, Type::INT8),
    ];
    let rows = link.call(DOING, CommitMode::Quick, "take", &params).await?;
    Ok(TakeResult {
        keys: stored(&rows)?,
        next_due: None,
    })
}

async fn due(
    link: &PostgresLink,
    scan_hints: &ScanHints,
    take: &TakeRequest,
    max: usize,
    now: Time,
) -> StoreResult<TakeResult> {
    let of = ScanTarget::DueStreamKeys(take.stream.clone());
    let look = scan_hints.begin_scan(&of, now);
    let params = [
        (&take.stream.as_str() as _, Type::TEXT),
        (&take.number.as_i64() as _, Type::INT8),
        (&take.worker.as_str() as _, Type::TEXT),
        (&take.until.as_micros() as _, Type::INT8),
        (&row::number(max) as _, Type::INT4),
        (&bytes_max() as _, Type::INT8),
        (&row::number(WINDOW_RECORDS_MAX) as _, Type::INT4),
        (&now.as_micros() as _, Type::INT8),
        (&now.after(LEASE_REQUEST_MAX).as_micros() as _, Type::INT8),
        (&look.begins_at() as _, Type::INT8),
    ];
    let rows = link
        .call(DOING, CommitMode::Quick, "take_due", &params)
        .await?;
    let next_due = rows
        .first()
        .map(|row| row::get::<Option<i64>>(row, 14))
        .transpose()?
        .flatten();
    let next_due = next_due.map(Time::from_micros);
    if next_due.is_none_or(|due| due > now) {
        scan_hints.record_cleared(of, look, now);
    }
    Ok(TakeResult {
        keys: stored(&rows)?,
        next_due,
    })
}

fn bytes_max() -> i64 {
    i64::try_from(TAKE_BYTES_MAX).unwrap_or(i64::MAX)
}
