//! Jobs out, and what dead workers left behind.

use crate::floor::{Floors, Of};
use crate::link::{Commit, Link};
use crate::row::{self, Held};
use backstop_core::limits::{CLAIM_BYTES_MAX, LEASE_ASKED_MAX, SEIZE_EMPTIED_MAX, SEIZE_MAX};
use backstop_core::port::{Answer, Claim, Seize, Seized, Seizure, StoreError};
use backstop_core::verdict::Vanished;
use backstop_core::{Lease, LeaseNumber, Leased, Time};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const SEIZING: &str = "seizing";

/// Hands out ready jobs; what is left of it, if this claim was made before.
pub(crate) async fn claim(link: &Link, claim: &Claim, now: Time) -> Answer<Vec<Leased>> {
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
        .call("claiming", Commit::Quick, "claim", &params)
        .await?;
    Ok(in_order(&rows, claim.number)?
        .into_iter()
        .map(|held| held.run)
        .collect())
}

/// Takes over jobs of expired claims.
pub(crate) async fn seize(
    link: &Link,
    floors: &Floors,
    seize: &Seize,
    commit: Commit,
    now: Time,
) -> Answer<Seizure> {
    let (look, max) = (floors.look(&Of::Leases, now), seize.max.min(SEIZE_MAX));
    let params = [
        (&seize.number.as_i64() as _, Type::INT8),
        (&seize.worker.as_str() as _, Type::TEXT),
        (&seize.until.as_micros() as _, Type::INT8),
        (&row::number(max) as _, Type::INT4),
        (&now.as_micros() as _, Type::INT8),
        (&now.after(LEASE_ASKED_MAX).as_micros() as _, Type::INT8),
        (&look.begins_at() as _, Type::INT8),
        (&row::number(SEIZE_EMPTIED_MAX) as _, Type::INT4),
    ];
    let rows = link.call(SEIZING, commit, "seize", &params).await?;
    let (left, rows) = rows
        .split_last()
        .ok_or_else(|| StoreError::corrupt(SEIZING, "no last row"))?;
    let (more, passed): (bool, bool) = (row::get(left, 15)?, row::get(left, 16)?);
    // A lease that was passed over is locked by somebody who may give up: then it is still the
    // first.
    if !more && !passed {
        floors.left_nothing(Of::Leases, look, now);
    }
    let mut held = in_order(rows, seize.number)?;
    held.sort_by(|one, other| one.place.cmp(&other.place));
    Ok(Seizure {
        runs: held.into_iter().filter_map(seized).collect(),
        more,
    })
}

fn seized(held: Held) -> Option<Seized> {
    let (worker, number) = held.vanished?;
    let lease = Lease {
        number,
        ..held.run.lease.clone()
    };
    Some(Seized {
        run: held.run,
        vanished: Vanished { worker, lease },
        begun: held.begun,
    })
}

fn in_order(rows: &[Row], number: LeaseNumber) -> Answer<Vec<Held>> {
    rows.iter().map(|row| row::held(row, number)).collect()
}
