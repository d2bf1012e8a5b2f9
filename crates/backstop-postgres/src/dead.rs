//! Inserts jobs that are dead already, and groups dead letters by fingerprint.

use crate::enqueue::{refused, set_answer};
use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::job_options::JobOptions;
use backstop_core::limits::GROUPS_MAX;
use backstop_core::port::{
    DeadLetterGroup, EnqueueOutcome, ListGroupsRequest, NewDeadLetter, StoreError, StoreResult,
};
use backstop_core::{Fingerprint, QueueName, Time};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

pub(crate) async fn bury(
    link: &PostgresLink,
    commit: CommitMode,
    burials: &[NewDeadLetter],
) -> StoreResult<Vec<EnqueueOutcome>> {
    macro_rules! column {
        ($of:expr) => {
            burials.iter().map($of).collect::<Vec<_>>()
        };
    }
    let holds = column!(|burial| burial
        .job
        .unique
        .as_ref()
        .map(|unique| unique.hold(burial.inserted_at)));
    let states: Vec<Option<i16>> = holds
        .iter()
        .map(|hold| hold.map(|hold| hold.states.bits().into()))
        .collect();
    let untils: Vec<Option<i64>> = holds
        .iter()
        .map(|hold| hold.and_then(|hold| hold.until).map(Time::as_micros))
        .collect();
    let params = [
        (
            &column!(|burial| burial.job.queue.as_str()) as _,
            Type::TEXT_ARRAY,
        ),
        (
            &column!(|burial| row::uuid(burial.job.id)) as _,
            Type::UUID_ARRAY,
        ),
        (
            &column!(|burial| i16::from(burial.job.priority.level())) as _,
            Type::INT2_ARRAY,
        ),
        (
            &column!(|burial| burial.job.kind.as_str()) as _,
            Type::TEXT_ARRAY,
        ),
        (
            &column!(|burial| burial.job.payload.as_bytes()) as _,
            Type::BYTEA_ARRAY,
        ),
        (
            &column!(|burial| burial.job.run_at.unwrap_or(burial.inserted_at).as_micros()) as _,
            Type::INT8_ARRAY,
        ),
        (
            &column!(|burial| burial.job.unique.as_ref().map(|unique| unique.key.as_str())) as _,
            Type::TEXT_ARRAY,
        ),
        (&states as _, Type::INT2_ARRAY),
        (&untils as _, Type::INT8_ARRAY),
        (&column!(terms) as _, Type::BYTEA_ARRAY),
        (
            &column!(|burial| burial.attempts.cast_signed()) as _,
            Type::INT4_ARRAY,
        ),
        (
            &column!(|burial| burial.lost_leases.cast_signed()) as _,
            Type::INT4_ARRAY,
        ),
        (
            &column!(|burial| burial.requeues.cast_signed()) as _,
            Type::INT4_ARRAY,
        ),
        (
            &column!(|burial| burial.inserted_at.as_micros()) as _,
            Type::INT8_ARRAY,
        ),
        (
            &column!(|burial| burial.finished_at.as_micros()) as _,
            Type::INT8_ARRAY,
        ),
        (
            &column!(|burial| burial.reason.as_str()) as _,
            Type::TEXT_ARRAY,
        ),
        (
            &column!(|burial| burial.history.as_bytes()) as _,
            Type::BYTEA_ARRAY,
        ),
        (
            &column!(|burial| burial.fingerprint().as_i64()) as _,
            Type::INT8_ARRAY,
        ),
    ];
    let mut answers = vec![EnqueueOutcome::Inserted; burials.len()];
    for row in &link.call("burying", commit, "bury", &params).await? {
        set_answer(
            &mut answers,
            row::get(row, 0)?,
            refused(None, row::get(row, 1)?, row::get(row, 2)?),
        )?;
    }
    Ok(answers)
}

fn terms(burial: &NewDeadLetter) -> Option<Vec<u8>> {
    JobOptions::of(&burial.job).as_bytes().map(<[u8]>::to_vec)
}

/// Lists groups of dead letters, the largest first.
pub(crate) async fn groups(
    link: &PostgresLink,
    query: &ListGroupsRequest,
) -> StoreResult<Vec<DeadLetterGroup>> {
    let params = [
        (
            &query.queue.as_ref().map(QueueName::as_str) as _,
            Type::TEXT,
        ),
        (
            &row::number(query.limit.clamp(1, GROUPS_MAX)) as _,
            Type::INT4,
        ),
    ];
    link.call(
        "grouping dead letters",
        CommitMode::Durable,
        "groups",
        &params,
    )
    .await?
    .iter()
    .map(group)
    .collect()
}

fn group(row: &Row) -> StoreResult<DeadLetterGroup> {
    let queue = QueueName::new(row::get(row, 0)?);
    Ok(DeadLetterGroup {
        queue: queue.map_err(|error| StoreError::corrupt("grouping dead letters", error))?,
        fingerprint: Fingerprint::from_i64(row::get(row, 1)?),
        count: row::get::<i64>(row, 2)?.max(0).unsigned_abs(),
        first_at: Time::from_micros(row::get(row, 3)?),
        last_at: Time::from_micros(row::get(row, 4)?),
        sample: row::job_id(row::get(row, 5)?),
    })
}

#[cfg(test)]
mod tests {
    use backstop_core::Fingerprint;
    use backstop_core::bounds::{DEAD_MAX_DEFAULT, Overflow};

    fn check(sql: &str, says: &str) {
        assert!(sql.contains(says), "{says} is not what the SQL says");
    }

    #[test]
    fn what_the_sql_repeats_of_the_core_is_the_same() {
        let bounds = include_str!("sql/bounds.sql");
        check(
            bounds,
            &format!(":= {};", Fingerprint::of_overflow().as_i64()),
        );
        check(bounds, &format!("'{}' THEN 5", Overflow::DeadLetterOldest));
        check(bounds, &format!("'{}' THEN 6", Overflow::DropOldest));
        let tables = include_str!("sql/schema.sql");
        check(tables, &format!("DEFAULT '{}'", Overflow::default()));
        check(tables, &format!("DEFAULT {DEAD_MAX_DEFAULT}"));
    }
}
