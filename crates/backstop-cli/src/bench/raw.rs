//! The raw limit: the same work in a bare loop on the same store, measured beside backstop in the
//! same run.

pub(super) mod postgres;
mod redis;
mod sqlite;

use super::BenchArgs;
use super::bench_store::BenchStore;
use super::figures::{BenchRate, median_time};
use anyhow::Result;
use backstop::{Durability, JobId, StoreKind, Time};
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(super) struct RawRates {
    /// Jobs inserted in batches of a thousand.
    pub(super) bulk: BenchRate,
    /// Jobs inserted by callers that each wait for their own answer. On SQLite one writer takes
    /// whoever waits into one commit; on a server each has an insert of its own; on PostgreSQL
    /// over as many connections as backstop's own pool has.
    pub(super) callers: BenchRate,
    /// The same over one connection, which commits one job after the other; only where there are
    /// connections that commit together.
    pub(super) lone: Option<BenchRate>,
    /// The same jobs without anybody who waits, in inserts of as many as there are callers: what
    /// grouping alone could reach. Only where the raw callers are not grouped.
    pub(super) grouped: Option<BenchRate>,
    /// Jobs claimed and completed, a batch at a time.
    pub(super) cycle: BenchRate,
    /// The same in the shape of an engine, a task and a message a job; only where the store is in
    /// this process.
    pub(super) engine: Option<BenchRate>,
    /// One commit of one job.
    pub(super) commit: Duration,
}

/// Measures as often as asked for; `None` where there is nothing under backstop to compare with.
pub(super) async fn measure(
    place: &BenchStore,
    durability: Durability,
    args: &BenchArgs,
) -> Result<Option<RawRates>> {
    let mut repetitions = Vec::with_capacity(args.repeat);
    for repetition in 0..args.repeat {
        repetitions.push(match place.kind() {
            StoreKind::Memory => return Ok(None),
            StoreKind::Sqlite => {
                let file = place.folder().join(format!("raw{repetition}.db"));
                sqlite::measure(file, durability, args).await?
            }
            StoreKind::Postgres => postgres::measure(place, durability, args).await?,
            StoreKind::Redis => match redis::measure(place, args).await? {
                Some(raw) => raw,
                None => return Ok(None),
            },
        });
    }
    Ok(Some(median(&repetitions)))
}

fn median(repetitions: &[RawRates]) -> RawRates {
    let rate = |of: fn(&RawRates) -> BenchRate| BenchRate::median(repetitions.iter().map(of));
    let some_rate = |of: fn(&RawRates) -> Option<BenchRate>| {
        let rates: Vec<BenchRate> = repetitions.iter().filter_map(of).collect();
        (!rates.is_empty()).then(|| BenchRate::median(rates))
    };
    RawRates {
        bulk: rate(|raw| raw.bulk),
        callers: rate(|raw| raw.callers),
        lone: some_rate(|raw| raw.lone),
        grouped: some_rate(|raw| raw.grouped),
        cycle: rate(|raw| raw.cycle),
        engine: some_rate(|raw| raw.engine),
        commit: median_time(repetitions.iter().map(|raw| raw.commit).collect()),
    }
}

fn number(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Ids in the order of their numbers, as those of real jobs are in the order of time.
fn id(n: usize) -> JobId {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&(n as u64).to_be_bytes());
    JobId::at(
        Time::from_millis(1_700_000_000_000 + number(n) / 100),
        random,
    )
}
