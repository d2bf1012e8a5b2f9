//! Renews the leases of keys.

use super::distinct_names::DistinctNames;
use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::Time;
use backstop_core::lease::longest_lease_end;
use backstop_core::port::{KeyLease, StoreError, StoreResult};
use std::collections::HashSet;
use tokio_postgres::types::Type;

const DOING: &str = "keeping keys";

/// Renews leases; returns those that are lost.
pub(super) async fn keep(
    link: &PostgresLink,
    leases: Vec<KeyLease>,
    until: Time,
    now: Time,
) -> StoreResult<Vec<KeyLease>> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let mut named: Vec<&KeyLease> = leases.iter().collect();
    named.sort_unstable();
    named.dedup();
    let streams = DistinctNames::of(named.iter().map(|lease| lease.stream.as_str()));
    let keys: Vec<&str> = named.iter().map(|lease| lease.key.as_str()).collect();
    let numbers: Vec<i64> = named.iter().map(|lease| lease.number.as_i64()).collect();
    let params = [
        (&streams.names as _, Type::TEXT_ARRAY),
        (&streams.at as _, Type::INT4_ARRAY),
        (&keys as _, Type::TEXT_ARRAY),
        (&numbers as _, Type::INT8_ARRAY),
        (&until.as_micros() as _, Type::INT8),
        (&longest_lease_end(until, now).as_micros() as _, Type::INT8),
    ];
    let rows = link.call(DOING, CommitMode::Quick, "keep", &params).await?;
    let lost = |row| {
        let number: i32 = row::get(row, 0)?;
        let lease = usize::try_from(number - 1)
            .ok()
            .and_then(|at| named.get(at));
        lease
            .map(|lease| (*lease).clone())
            .ok_or_else(|| StoreError::corrupt(DOING, format!("an answer for lease {number}")))
    };
    let lost: HashSet<KeyLease> = rows.iter().map(lost).collect::<StoreResult<_>>()?;
    Ok(leases
        .into_iter()
        .filter(|lease| lost.contains(lease))
        .collect())
}
