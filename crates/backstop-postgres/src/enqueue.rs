//! Jobs in: by the store itself, or inside a transaction of the caller's.

use crate::error::store_error;
use crate::link::{Commit, Link, Param, statement};
use crate::row;
use backstop_core::job::StoredRetry;
use backstop_core::port::backlog::check_enqueue;
use backstop_core::port::{Answer, Enqueued, StoreError};
use backstop_core::{NewJob, QueueName, Time};
use std::collections::{HashMap, HashSet};
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

const DOING: &str = "enqueueing";
const FUNCTION: &str = "enqueue_jobs";

/// Takes jobs in inside a transaction of the caller's: they come into being with its commit, or not at all. `schema` is
/// the one the store's address names, usually [`crate::SCHEMA`]. Answers as [`backstop_core::port::Backlog::enqueue`] does.
///
/// Works on a `tokio_postgres::Transaction`, and on whatever else is a client of that driver. After an error the
/// transaction can only be rolled back, as after every error of PostgreSQL.
///
/// The transaction must be READ COMMITTED, which is PostgreSQL's default. A queue that is new comes into being with it:
/// until it commits, others that push to that queue wait.
pub async fn enqueue_in(
    transaction: &impl GenericClient,
    schema: &str,
    jobs: &[NewJob],
    now: Time,
) -> Answer<Vec<Enqueued>> {
    check_enqueue(jobs)?;
    if schema.contains(['"', '\0']) {
        return Err(StoreError::misuse(DOING, format!("{schema:?} is not the name of a schema")));
    }
    let batch = Batch { careful: true, ..Batch::of(jobs.iter().map(|job| (job, now))) };
    let params = batch.params();
    let sql = statement(&format!("\"{schema}\""), Commit::Durable, FUNCTION, params.len());
    let rows = transaction.query_typed(&sql, &params).await;
    answers(jobs.len(), &rows.map_err(|error| store_error(DOING, &error))?)
}

/// Takes jobs in, each with its own `now`.
pub(crate) async fn enqueue(
    link: &Link,
    commit: Commit,
    jobs: impl Iterator<Item = (&NewJob, Time)>,
) -> Answer<Vec<Enqueued>> {
    let batch = Batch::of(jobs);
    let rows = link.call(DOING, commit, FUNCTION, &batch.params()).await?;
    answers(batch.ids.len(), &rows)
}

/// Jobs as the columns that `enqueue_jobs` takes.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    pub(crate) queues: Vec<&'a str>,
    pub(crate) queue_at: Vec<i32>,
    pub(crate) nows: Vec<i64>,
    pub(crate) ids: Vec<Uuid>,
    pub(crate) levels: Vec<i16>,
    pub(crate) kinds: Vec<&'a str>,
    pub(crate) payloads: Vec<&'a [u8]>,
    pub(crate) run_ats: Vec<Option<i64>>,
    pub(crate) keys: Vec<Option<&'a str>>,
    pub(crate) key_states: Vec<Option<i16>>,
    pub(crate) key_untils: Vec<Option<i64>>,
    pub(crate) retries: Vec<Option<Vec<u8>>>,
    pub(crate) singly: bool,
    /// For a transaction that may go on for long.
    pub(crate) careful: bool,
}

impl<'a> Batch<'a> {
    pub(crate) fn of(jobs: impl Iterator<Item = (&'a NewJob, Time)>) -> Self {
        let mut batch = Self::default();
        let mut queues: HashMap<&QueueName, i32> = HashMap::new();
        let mut ids = HashSet::new();
        for (job, now) in jobs {
            let next = row::number(queues.len() + 1);
            let at = *queues.entry(&job.queue).or_insert_with(|| {
                batch.queues.push(job.queue.as_str());
                next
            });
            batch.singly |= job.unique.is_some() || !ids.insert(job.id);
            batch.push(job, at, now);
        }
        batch
    }

    fn push(&mut self, job: &'a NewJob, queue_at: i32, now: Time) {
        let hold = job.unique.as_ref().map(|unique| unique.hold(now));
        self.queue_at.push(queue_at);
        self.nows.push(now.as_micros());
        self.ids.push(row::uuid(job.id));
        self.levels.push(job.priority.level().into());
        self.kinds.push(job.kind.as_str());
        self.payloads.push(job.payload.as_bytes());
        self.run_ats.push(job.run_at.map(Time::as_micros));
        self.keys.push(job.unique.as_ref().map(|unique| unique.key.as_str()));
        self.key_states.push(hold.map(|hold| hold.states.bits().into()));
        self.key_untils.push(hold.and_then(|hold| hold.until).map(Time::as_micros));
        self.retries.push(StoredRetry::encode(job.retry.as_ref()).as_bytes().map(<[u8]>::to_vec));
    }

    fn params(&self) -> [Param<'_>; 14] {
        [
            (&self.queues, Type::TEXT_ARRAY),
            (&self.queue_at, Type::INT4_ARRAY),
            (&self.nows, Type::INT8_ARRAY),
            (&self.ids, Type::UUID_ARRAY),
            (&self.levels, Type::INT2_ARRAY),
            (&self.kinds, Type::TEXT_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.run_ats, Type::INT8_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.key_states, Type::INT2_ARRAY),
            (&self.key_untils, Type::INT8_ARRAY),
            (&self.retries, Type::BYTEA_ARRAY),
            (&self.singly, Type::BOOL),
            (&self.careful, Type::BOOL),
        ]
    }
}

/// The answers for all jobs from those for the few that were not taken in.
fn answers(jobs: usize, rows: &[Row]) -> Answer<Vec<Enqueued>> {
    let mut answers = vec![Enqueued::Inserted; jobs];
    for row in rows {
        let (at, holder): (i32, Option<Uuid>) = (row::get(row, 0)?, row::get(row, 1)?);
        put(&mut answers, at, holder)?;
    }
    Ok(answers)
}

/// Notes that the job of a number from 1 on was not taken in.
pub(crate) fn put(answers: &mut [Enqueued], at: i32, holder: Option<Uuid>) -> Answer<()> {
    let answer = usize::try_from(at - 1).ok().and_then(|at| answers.get_mut(at));
    let answer = answer.ok_or_else(|| StoreError::corrupt(DOING, format!("an answer for job {at}")))?;
    *answer = holder.map_or(Enqueued::Same, |holder| Enqueued::Duplicate(row::job_id(holder)));
    Ok(())
}
