//! Enqueues jobs: by the store itself, or inside a transaction of the caller's.

use crate::error::store_error;
use crate::link::{CallFailure, CommitMode, PostgresLink, TypedParam, statement};
use crate::row;
use backstop_core::job_options::JobOptions;
use backstop_core::port::backlog::check_enqueue;
use backstop_core::port::{EnqueueOutcome, StoreError, StoreResult};
use backstop_core::{NewJob, QueueName, Time};
use bytes::BytesMut;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

const DOING: &str = "enqueueing";
const FUNCTION: &str = "enqueue_jobs";
const PARAMS_ALWAYS: usize = 14;
/// Few other ids lie between ids that were made within this time.
const RANGE_MS_MAX: u128 = 1_000;

/// Enqueues jobs inside a transaction of the caller's: they are committed or rolled back with it.
/// `schema` is the one that the store's address names, usually [`crate::SCHEMA`]. Returns the same
/// outcomes as [`backstop_core::port::JobStore::enqueue`].
///
/// Works on a `tokio_postgres::Transaction`, and on every other client type of that driver. After
/// an error the transaction can only be rolled back, as after every error of PostgreSQL.
///
/// The transaction must be READ COMMITTED, which is PostgreSQL's default. It creates the queues
/// that are new. Until it commits, other pushes to such a queue wait, and so do other pushes to a
/// queue that has a bound. If jobs of a full queue gave way to the new ones, claims from that queue
/// wait, too. At most 10,000 queues can be created this way, whatever the configuration says;
/// transactions that overlap may together create a few more.
pub async fn enqueue_in(
    transaction: &impl GenericClient,
    schema: &str,
    jobs: &[NewJob],
    now: Time,
) -> StoreResult<Vec<EnqueueOutcome>> {
    check_enqueue(jobs, now)?;
    if schema.contains(['"', '\0']) {
        return Err(StoreError::misuse(
            DOING,
            format!("{schema:?} is not the name of a schema"),
        ));
    }
    let batch = EnqueueColumns {
        careful: true,
        ..EnqueueColumns::of(jobs.iter().map(|job| (job, now)))
    };
    // Without the range of the ids, which is for transactions that end at once.
    let params = &batch.params()[..PARAMS_ALWAYS];
    let sql = statement(
        &format!("\"{schema}\""),
        CommitMode::Durable,
        FUNCTION,
        params.len(),
    );
    let rows = transaction.query_typed(&sql, params).await;
    Ok(batch
        .taken(&rows.map_err(|error| store_error(DOING, &error))?)?
        .answers)
}

/// The outcomes of an enqueue.
pub(crate) struct EnqueueResult {
    pub(crate) answers: Vec<EnqueueOutcome>,
    /// The queues of these jobs that have a bound.
    pub(crate) bounded: Vec<QueueName>,
}

/// Enqueues jobs, each with its own `now`.
pub(crate) async fn enqueue<'a>(
    link: &PostgresLink,
    commit: CommitMode,
    max_queues: usize,
    jobs: impl Iterator<Item = (&'a NewJob, Time)>,
) -> Result<EnqueueResult, CallFailure> {
    let batch = EnqueueColumns {
        max_queues: row::number(max_queues),
        ..EnqueueColumns::of(jobs)
    };
    let rows = link
        .try_call(DOING, commit, FUNCTION, &batch.params())
        .await?;
    batch.taken(&rows).map_err(CallFailure::Lasting)
}

/// Jobs as the columns that the function `enqueue_jobs` takes.
#[derive(Default)]
pub(crate) struct EnqueueColumns<'a> {
    pub(crate) queues: Vec<&'a str>,
    pub(crate) queue_at: Vec<i32>,
    pub(crate) nows: Vec<i64>,
    pub(crate) ids: Vec<Uuid>,
    pub(crate) levels: Vec<i16>,
    pub(crate) kinds: Vec<&'a str>,
    pub(crate) payloads: Vec<&'a [u8]>,
    pub(crate) run_ats: SparseColumn<i64>,
    pub(crate) keys: SparseColumn<&'a str>,
    pub(crate) key_states: SparseColumn<i16>,
    pub(crate) key_untils: SparseColumn<i64>,
    pub(crate) retries: SparseColumn<Vec<u8>>,
    pub(crate) singly: bool,
    /// Whether the transaction belongs to a caller and may stay open for long.
    pub(crate) careful: bool,
    /// The lowest and the highest id, if all jobs are ready now and few other ids lie between.
    pub(crate) lowest: Option<Uuid>,
    pub(crate) highest: Option<Uuid>,
    /// How many queues the store may have.
    pub(crate) max_queues: i32,
}

impl<'a> EnqueueColumns<'a> {
    pub(crate) fn of(jobs: impl Iterator<Item = (&'a NewJob, Time)>) -> Self {
        let mut batch = Self::default();
        let mut queues: HashMap<&QueueName, i32> = HashMap::new();
        let (mut last, mut later) = (None, false);
        for (job, now) in jobs {
            let at = match last {
                Some((queue, at)) if queue == &job.queue => at,
                _ => *queues.entry(&job.queue).or_insert_with(|| {
                    batch.queues.push(job.queue.as_str());
                    row::number(batch.queues.len())
                }),
            };
            last = Some((&job.queue, at));
            batch.singly |= job.unique.is_some();
            later |= job.run_at.is_some_and(|run_at| run_at > now);
            batch.push(job, at, now);
        }
        batch.singly |= has_duplicates(&batch.ids);
        if !batch.singly && !later {
            (batch.lowest, batch.highest) = range(&batch.ids).unzip();
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
        self.run_ats.0.push(job.run_at.map(Time::as_micros));
        self.keys
            .0
            .push(job.unique.as_ref().map(|unique| unique.key.as_str()));
        self.key_states
            .0
            .push(hold.map(|hold| hold.states.bits().into()));
        self.key_untils
            .0
            .push(hold.and_then(|hold| hold.until).map(Time::as_micros));
        self.retries
            .0
            .push(JobOptions::of(job).as_bytes().map(<[u8]>::to_vec));
    }

    fn params(&self) -> [TypedParam<'_>; PARAMS_ALWAYS + 3] {
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
            (&self.lowest, Type::UUID),
            (&self.highest, Type::UUID),
            (&self.max_queues, Type::INT4),
        ]
    }

    /// Builds the outcomes of all jobs from the rows of the few that were not inserted.
    fn taken(&self, rows: &[Row]) -> StoreResult<EnqueueResult> {
        let mut taken = EnqueueResult {
            answers: vec![EnqueueOutcome::Inserted; self.ids.len()],
            bounded: Vec::new(),
        };
        for row in rows {
            let at: i32 = row::get(row, 0)?;
            if at > 0 {
                set_answer(
                    &mut taken.answers,
                    at,
                    refused(row::get(row, 1)?, row::get(row, 2)?, row::get(row, 3)?),
                )?;
            } else {
                let name = usize::try_from(-at - 1)
                    .ok()
                    .and_then(|at| self.queues.get(at));
                taken
                    .bounded
                    .extend(name.and_then(|name| QueueName::new(name).ok()));
            }
        }
        Ok(taken)
    }
}

/// A column that most batches leave empty. It is then sent as NULL, so that the server need not
/// unnest it.
#[derive(Debug)]
pub(crate) struct SparseColumn<T>(pub(crate) Vec<Option<T>>);

impl<T> Default for SparseColumn<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ToSql for SparseColumn<T>
where
    T: fmt::Debug,
    Vec<Option<T>>: ToSql,
{
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        if self.0.iter().all(Option::is_none) {
            Ok(IsNull::Yes)
        } else {
            self.0.to_sql(ty, out)
        }
    }

    fn accepts(ty: &Type) -> bool {
        Vec::<Option<T>>::accepts(ty)
    }

    to_sql_checked!();
}

/// Whether an id occurs twice. Ids that are made one after the other are sorted.
fn has_duplicates(ids: &[Uuid]) -> bool {
    let mut seen = HashSet::new();
    !ids.is_sorted_by(|one, next| one < next) && !ids.iter().all(|id| seen.insert(id))
}

/// The lowest and the highest of these ids, if all of them were made within moments.
fn range(ids: &[Uuid]) -> Option<(Uuid, Uuid)> {
    let (lowest, highest) = (*ids.iter().min()?, *ids.iter().max()?);
    let made_at = |id: Uuid| id.as_u128() >> 80;
    let timed = ids.iter().all(|id| id.get_version_num() == 7);
    (timed && made_at(highest) - made_at(lowest) <= RANGE_MS_MAX).then_some((lowest, highest))
}

/// Decodes why a job was not inserted.
pub(crate) fn refused(holder: Option<Uuid>, is_full: bool, is_conflict: bool) -> EnqueueOutcome {
    match holder {
        Some(holder) => EnqueueOutcome::Duplicate(row::job_id(holder)),
        None if is_full => EnqueueOutcome::Full,
        None if is_conflict => EnqueueOutcome::Conflict,
        None => EnqueueOutcome::Same,
    }
}

/// Sets the outcome of the job with this number, counted from 1.
pub(crate) fn set_answer(
    answers: &mut [EnqueueOutcome],
    at: i32,
    new_answer: EnqueueOutcome,
) -> StoreResult<()> {
    let answer = usize::try_from(at - 1)
        .ok()
        .and_then(|at| answers.get_mut(at));
    *answer.ok_or_else(|| StoreError::corrupt(DOING, format!("an answer for job {at}")))? =
        new_answer;
    Ok(())
}
