//! Heartbeats, and the begin of runs.

use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::lease::longest_lease_end;
use backstop_core::port::{BeatRequest, StoreError, StoreResult};
use backstop_core::{Lease, QueueName, Time};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// Leases as the columns that the SQL functions take.
struct LeaseColumns<'a> {
    ids: Vec<Uuid>,
    queues: Vec<&'a str>,
    numbers: Vec<i64>,
}

impl<'a> LeaseColumns<'a> {
    fn of(leases: &'a [Lease]) -> Self {
        Self {
            ids: leases.iter().map(|lease| row::uuid(lease.job)).collect(),
            queues: leases.iter().map(|lease| lease.queue.as_str()).collect(),
            numbers: leases.iter().map(|lease| lease.number.as_i64()).collect(),
        }
    }
}

/// Renews the claims of a worker; returns the leases that are lost.
pub(crate) async fn beat(
    link: &PostgresLink,
    beat: &BeatRequest,
    now: Time,
) -> StoreResult<Vec<Lease>> {
    let served: Vec<&str> = beat.queues.iter().map(QueueName::as_str).collect();
    let leases = LeaseColumns::of(&beat.leases);
    let params = [
        (&beat.worker.as_str() as _, Type::TEXT),
        (&served.join("\n") as _, Type::TEXT),
        (&leases.ids as _, Type::UUID_ARRAY),
        (&leases.queues as _, Type::TEXT_ARRAY),
        (&leases.numbers as _, Type::INT8_ARRAY),
        (&beat.until.as_micros() as _, Type::INT8),
        (
            &longest_lease_end(beat.until, now).as_micros() as _,
            Type::INT8,
        ),
        (&now.as_micros() as _, Type::INT8),
    ];
    lost(
        &beat.leases,
        &link
            .call("beating", CommitMode::Quick, "beat", &params)
            .await?,
    )
}

/// Records that runs have begun; returns the leases that are lost.
pub(crate) async fn begin(link: &PostgresLink, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
    let columns = LeaseColumns::of(leases);
    let params = [
        (&columns.ids as _, Type::UUID_ARRAY),
        (&columns.queues as _, Type::TEXT_ARRAY),
        (&columns.numbers as _, Type::INT8_ARRAY),
    ];
    lost(
        leases,
        &link
            .call(
                "noting that runs begin",
                CommitMode::Quick,
                "begin_runs",
                &params,
            )
            .await?,
    )
}

fn lost(leases: &[Lease], rows: &[Row]) -> StoreResult<Vec<Lease>> {
    let lost = |row| {
        let number: i32 = row::get(row, 0)?;
        let lease = usize::try_from(number - 1)
            .ok()
            .and_then(|at| leases.get(at));
        lease
            .cloned()
            .ok_or_else(|| StoreError::corrupt("beating", format!("an answer for lease {number}")))
    };
    rows.iter().map(lost).collect()
}
