//! Enqueues jobs: in the store's own writer, or inside a transaction of the caller's.

use crate::error::store_error;
use crate::migrate::check_version;
use crate::overflow::make_room;
use crate::recovery::FailureMarker;
use crate::row;
use crate::state_index::{DUE_ADD, READY_ADD};
use crate::transaction::{QueueIndex, WriteTransaction};
use crate::writer::leave_log;
use backstop_core::job_options::JobOptions;
use backstop_core::limits::QUEUES_MAX;
use backstop_core::port::backlog::check_enqueue;
use backstop_core::port::{EnqueueOutcome, StoreError, StoreResult};
use backstop_core::{JobId, JobState, NewJob, QueueName, Time};
use rusqlite::{CachedStatement, OptionalExtension, Result, Transaction, params};
use std::collections::BTreeSet;
use std::path::Path;

const ENQUEUE_JOB: &str = include_str!("sql/enqueue_job.sql");
const ENQUEUE_KNOWN: &str = include_str!("sql/enqueue_known.sql");
const DOING: &str = "enqueueing";

/// Enqueues jobs inside a transaction of the caller's, on the caller's own connection to the
/// store's file. The jobs are committed or rolled back with it. Returns the same outcomes as
/// [`backstop_core::port::JobStore::enqueue`].
///
/// Begin the transaction as `IMMEDIATE`. If it reads before it writes, SQLite can refuse the write
/// at once, however long the connection would wait. The connection's own `synchronous` decides how
/// durable the commit is. After an error nothing of this call is in the transaction. At most
/// [`QUEUES_MAX`] queues can be created this way, whatever the configuration says.
///
/// After a failed write or fsync of the file this returns `Unavailable` until the file is
/// recovered, and recovery waits until this connection, too, is closed. If your own commit fails
/// with an I/O error, close the connection: a later commit on it may succeed and still be lost in a
/// power cut.
pub fn enqueue_in(
    transaction: &Transaction<'_>,
    jobs: &[NewJob],
    now: Time,
) -> StoreResult<Vec<EnqueueOutcome>> {
    check_enqueue(jobs, now)?;
    check_reliable(transaction)?;
    check_version(transaction, DOING)?;
    let inside = || {
        transaction.execute_batch("SAVEPOINT backstop_enqueue")?;
        let mut tx = WriteTransaction::new(transaction);
        let answers = enqueue(&mut tx, jobs, QUEUES_MAX, now)
            .and_then(|answers| tx.flush().map(|()| answers));
        let end = if answers.is_ok() {
            ""
        } else {
            "ROLLBACK TO backstop_enqueue; "
        };
        let ended = transaction.execute_batch(&format!("{end}RELEASE backstop_enqueue"));
        answers.and_then(|answers| ended.map(|()| answers))
    };
    inside().map_err(|error| store_error(DOING, &error))?
}

/// Refuses a file that is not recovered yet: a commit could succeed behind a hole in its log. The
/// marker lies next to the path that SQLite has resolved.
fn check_reliable(transaction: &Transaction<'_>) -> StoreResult<()> {
    match transaction.path() {
        Some(path) if FailureMarker::of(Path::new(path)).is_set() => {
            leave_log(transaction);
            let cause = format!(
                "{path} must be recovered first, because a write or fsync of it failed. Roll back \
                 and close this connection: backstop recovers the file when nobody has it open. \
                 Then open it again"
            );
            Err(StoreError::unavailable(DOING, cause))
        }
        _ => Ok(()),
    }
}

/// Enqueues jobs if the store has room for their queues; otherwise it changes nothing.
pub(crate) fn enqueue(
    tx: &mut WriteTransaction<'_>,
    jobs: &[NewJob],
    max_queues: usize,
    now: Time,
) -> Result<StoreResult<Vec<EnqueueOutcome>>> {
    if let Err(refused) = check_queues(tx, jobs.iter().map(|job| &job.queue), max_queues)? {
        return Ok(Err(refused));
    }
    let mut statements = EnqueueStatements::prepare(tx)?;
    jobs.iter()
        .map(|job| enqueue_one(tx, &mut statements, job, now))
        .collect::<Result<_>>()
        .map(Ok)
}

/// Refuses the call if some of these queues are new and the store has no room for them.
pub(crate) fn check_queues<'q>(
    tx: &mut WriteTransaction<'_>,
    queues: impl Iterator<Item = &'q QueueName>,
    max: usize,
) -> Result<StoreResult<()>> {
    let mut new = BTreeSet::new();
    for queue in queues {
        if tx.queue(queue)?.is_none() && new.insert(queue) && tx.queue_count()? + new.len() > max {
            return Ok(Err(StoreError::too_many_queues(queue, max)));
        }
    }
    Ok(Ok(()))
}

/// The statements that every new job runs.
struct EnqueueStatements<'c> {
    job: CachedStatement<'c>,
    ready: CachedStatement<'c>,
    due: CachedStatement<'c>,
}

impl<'c> EnqueueStatements<'c> {
    fn prepare(tx: &WriteTransaction<'c>) -> Result<Self> {
        Ok(Self {
            job: tx.db.prepare_cached(ENQUEUE_JOB)?,
            ready: tx.db.prepare_cached(READY_ADD)?,
            due: tx.db.prepare_cached(DUE_ADD)?,
        })
    }
}

fn enqueue_one(
    tx: &mut WriteTransaction<'_>,
    statements: &mut EnqueueStatements<'_>,
    job: &NewJob,
    now: Time,
) -> Result<EnqueueOutcome> {
    let known_queue = tx.queue(&job.queue)?;
    let full_queue = known_queue.filter(|queue| !tx.has_room(*queue));
    // Without a unique key, and in a queue that exists and has room, the insert itself finds out
    // whether the id exists.
    if (job.unique.is_some() || known_queue.is_none() || full_queue.is_some())
        && let Some(answer) = find_known(tx, job.id, &job.queue)?
    {
        return Ok(answer);
    }
    if let (Some(queue), Some(unique)) = (known_queue, &job.unique)
        && let Some(holder) = tx.key_holder(queue, &unique.key, now)?
    {
        return Ok(EnqueueOutcome::Duplicate(holder));
    }
    if let Some(queue) = full_queue
        && !make_room(tx, queue, now)?
    {
        return Ok(EnqueueOutcome::Full);
    }
    let queue = match known_queue {
        Some(queue) => queue,
        None => tx.queue_or_new(&job.queue)?,
    };
    let state = job.first_state(now);
    if !insert(tx, statements, job, queue, state, now)? {
        return Ok(find_known(tx, job.id, &job.queue)?.unwrap_or(EnqueueOutcome::Same));
    }
    if let Some(unique) = &job.unique {
        tx.put_key(queue, &unique.key, job.id, unique.hold(now))?;
    }
    tx.count(queue, state, 1);
    tx.count_enqueued(queue);
    tx.mark_new_work();
    Ok(EnqueueOutcome::Inserted)
}

/// The outcome for a job whose id exists already: `Same` in this queue, `Conflict` in another.
pub(crate) fn find_known(
    tx: &mut WriteTransaction<'_>,
    id: JobId,
    queue: &QueueName,
) -> Result<Option<EnqueueOutcome>> {
    let at = tx.queue(queue)?.map(|at| tx.at(at).id);
    let mut statement = tx.db.prepare_cached(ENQUEUE_KNOWN)?;
    let found: Option<i64> = statement
        .query_row([id.as_bytes()], |row| row.get(0))
        .optional()?;
    Ok(found.map(|found| {
        if Some(found) == at {
            EnqueueOutcome::Same
        } else {
            EnqueueOutcome::Conflict
        }
    }))
}

/// Inserts the job and its place in line; returns `false` if its id exists already.
fn insert(
    tx: &mut WriteTransaction<'_>,
    statements: &mut EnqueueStatements<'_>,
    job: &NewJob,
    queue: QueueIndex,
    state: JobState,
    now: Time,
) -> Result<bool> {
    let (queue_id, seq) = (tx.at(queue).id, tx.next_seq(queue));
    let hold = job.unique.as_ref().map(|unique| unique.hold(now));
    let run_at = job.run_at.unwrap_or(now).as_micros();
    let inserted = statements.job.execute(params![
        row::code(state),
        seq,
        run_at,
        job.id.as_bytes(),
        queue_id,
        job.priority.level(),
        job.kind.as_str(),
        job.unique.as_ref().map(|unique| unique.key.as_str()),
        hold.map(|hold| hold.states.bits()),
        hold.and_then(|hold| hold.until).map(Time::as_micros),
        now.as_micros(),
        JobOptions::of(job).as_bytes(),
        job.payload.as_bytes(),
        row::NO_LEASE,
        row::NO_TAG,
    ])?;
    if inserted == 0 {
        return Ok(false);
    }
    let no = tx.db.last_insert_rowid();
    if state == JobState::Ready {
        statements
            .ready
            .execute(params![queue_id, job.priority.level(), seq, no])?;
        tx.use_seq(queue);
    } else {
        statements.due.execute([run_at, no])?;
    }
    Ok(true)
}
