//! A write transaction: its connection, and what it has read and changed of queues, claims and
//! streams.
//!
//! Counts and claims change with every job, but are written once per transaction. Code that reads
//! them before that must go through here.

use crate::row;
use crate::streams::StreamChanges;
use backstop_core::{JobState, LeaseNumber, QueueBounds, QueueName};
use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension, Result, Row, params};
use std::collections::HashMap;

const QUEUE_FIND: &str = include_str!("sql/queue_find.sql");
const QUEUE_GET: &str = include_str!("sql/queue_get.sql");
const QUEUE_ADD: &str = include_str!("sql/queue_add.sql");
const QUEUE_RECOVER: &str = include_str!("sql/queue_recover.sql");
const QUEUE_COUNT: &str = include_str!("sql/queue_count.sql");
const QUEUE_TOTAL: &str = include_str!("sql/queue_total.sql");
const QUEUE_FORGET: &str = include_str!("sql/queue_forget.sql");
const CLAIM_LEFT: &str = include_str!("sql/claim_left.sql");
const CLAIM_CLOSE: &str = include_str!("sql/claim_close.sql");

/// A write transaction. If it is dropped without [`WriteTransaction::flush`], its counts are lost,
/// and only a rollback may follow.
pub(crate) struct WriteTransaction<'c> {
    pub(crate) db: &'c Connection,
    queues: Vec<ChangedQueue>,
    by_name: HashMap<QueueName, QueueIndex>,
    by_id: HashMap<i64, QueueIndex>,
    left: HashMap<LeaseNumber, i64>,
    pub(crate) streams: StreamChanges,
    /// The number of queues, once it has been counted.
    queue_count: Option<usize>,
    has_new_work: bool,
}

/// The index of a queue in this transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueIndex(usize);

/// A queue's row as this transaction has read and changed it.
pub(crate) struct ChangedQueue {
    pub(crate) id: i64,
    pub(crate) name: QueueName,
    pub(crate) paused: bool,
    pub(crate) bounds: QueueBounds,
    /// Its live and its dead jobs, with the changes of this transaction.
    live: i64,
    dead: i64,
    next_seq: i64,
    counts: [i64; JobState::ALL.len()],
    totals: [i64; 4],
    changed: bool,
}

impl<'c> WriteTransaction<'c> {
    /// Begins to work on a connection that is inside a transaction.
    pub(crate) fn new(db: &'c Connection) -> Self {
        Self {
            db,
            queues: Vec::new(),
            by_name: HashMap::new(),
            by_id: HashMap::new(),
            left: HashMap::new(),
            streams: StreamChanges::default(),
            queue_count: None,
            has_new_work: false,
        }
    }

    /// Returns the cached row of a queue.
    pub(crate) fn at(&self, queue: QueueIndex) -> &ChangedQueue {
        &self.queues[queue.0]
    }

    /// Finds the queue of this name.
    pub(crate) fn queue(&mut self, name: &QueueName) -> Result<Option<QueueIndex>> {
        if let Some(at) = self.by_name.get(name) {
            return Ok(Some(*at));
        }
        let found = self
            .db
            .prepare_cached(QUEUE_FIND)?
            .query_row([name.as_str()], ChangedQueue::read)
            .optional()?;
        Ok(found.map(|queue| self.remember(queue)))
    }

    /// Finds the queue of this name, or creates it.
    pub(crate) fn queue_or_new(&mut self, name: &QueueName) -> Result<QueueIndex> {
        if let Some(at) = self.queue(name)? {
            return Ok(at);
        }
        self.db
            .prepare_cached(QUEUE_ADD)?
            .execute([name.as_str()])?;
        let id = self.db.last_insert_rowid();
        self.queue_count = self.queue_count.map(|count| count + 1);
        Ok(self.remember(ChangedQueue::new(id, name.clone())))
    }

    /// Counts the queues, once per transaction.
    pub(crate) fn queue_count(&mut self) -> Result<usize> {
        if let Some(count) = self.queue_count {
            return Ok(count);
        }
        let count = self
            .db
            .prepare_cached(QUEUE_TOTAL)?
            .query_row([], |row| row::count(row, 0))?;
        Ok(*self
            .queue_count
            .insert(usize::try_from(count).unwrap_or(usize::MAX)))
    }

    /// Removes a queue that has no jobs. A later job for its name creates a new one.
    pub(crate) fn forget_queue(&mut self, id: i64) -> Result<()> {
        if let Some(at) = self.by_id.remove(&id) {
            self.by_name.remove(&self.queues[at.0].name);
        }
        self.queue_count = self.queue_count.map(|count| count.saturating_sub(1));
        self.db
            .prepare_cached(QUEUE_FORGET)?
            .execute([id])
            .map(drop)
    }

    /// Finds the queue that a row names by its id.
    pub(crate) fn queue_of(&mut self, id: i64) -> Result<QueueIndex> {
        if let Some(at) = self.by_id.get(&id) {
            return Ok(*at);
        }
        let mut get = self.db.prepare_cached(QUEUE_GET)?;
        let queue = match get.query_row([id], ChangedQueue::read) {
            Err(Error::QueryReturnedNoRows | Error::FromSqlConversionFailure(..)) => {
                recover(self.db, id)?;
                get.query_row([id], ChangedQueue::read)?
            }
            read => read?,
        };
        Ok(self.remember(queue))
    }

    fn remember(&mut self, queue: ChangedQueue) -> QueueIndex {
        let at = QueueIndex(self.queues.len());
        self.by_name.insert(queue.name.clone(), at);
        self.by_id.insert(queue.id, at);
        self.queues.push(queue);
        at
    }

    /// Records that a queue was paused or resumed.
    pub(crate) fn set_paused(&mut self, queue: QueueIndex, paused: bool) {
        self.queues[queue.0].paused = paused;
    }

    /// Records the new bounds of a queue.
    pub(crate) fn set_bounds(&mut self, queue: QueueIndex, bounds: QueueBounds) {
        self.queues[queue.0].bounds = bounds;
    }

    /// Whether one more live job fits into a queue.
    pub(crate) fn has_room(&self, queue: QueueIndex) -> bool {
        let ChangedQueue { bounds, live, .. } = self.at(queue);
        bounds
            .max_size
            .is_none_or(|max| live.max(&0).unsigned_abs() < max)
    }

    /// Whether one more dead job fits into a queue.
    pub(crate) fn has_room_for_dead(&self, queue: QueueIndex) -> bool {
        let ChangedQueue { bounds, dead, .. } = self.at(queue);
        dead.max(&0).unsigned_abs() < bounds.dead_max
    }

    /// The next free place at the end of the queue. [`WriteTransaction::use_seq`] takes it.
    pub(crate) fn next_seq(&self, queue: QueueIndex) -> i64 {
        self.queues[queue.0].next_seq
    }

    /// Takes the place that [`WriteTransaction::next_seq`] returned.
    pub(crate) fn use_seq(&mut self, queue: QueueIndex) {
        let queue = &mut self.queues[queue.0];
        queue.next_seq += 1;
        queue.changed = true;
    }

    /// Adds jobs to the count of a state, or subtracts them.
    pub(crate) fn count(&mut self, queue: QueueIndex, state: JobState, by: i64) {
        let queue = &mut self.queues[queue.0];
        queue.counts[state as usize] += by;
        match state {
            JobState::Scheduled | JobState::Ready | JobState::Running | JobState::Retrying => {
                queue.live += by;
            }
            JobState::Dead => queue.dead += by,
            JobState::Done | JobState::Cancelled => {}
        }
        queue.changed |= by != 0;
    }

    pub(crate) fn count_enqueued(&mut self, queue: QueueIndex) {
        self.queues[queue.0].totals[0] += 1;
    }

    /// Counts an ended job in the totals of its queue.
    pub(crate) fn count_end(&mut self, queue: QueueIndex, state: JobState) {
        let queue = &mut self.queues[queue.0];
        queue.changed = true;
        match state {
            JobState::Done => queue.totals[1] += 1,
            JobState::Dead => queue.totals[2] += 1,
            JobState::Cancelled => queue.totals[3] += 1,
            JobState::Scheduled | JobState::Ready | JobState::Running | JobState::Retrying => {}
        }
    }

    /// Records that jobs left a claim.
    pub(crate) fn leave_claim(&mut self, number: LeaseNumber, jobs: i64) {
        *self.left.entry(number).or_default() += jobs;
    }

    /// Records that this transaction left new work to claim or to promote.
    pub(crate) fn mark_new_work(&mut self) {
        self.has_new_work = true;
    }

    /// Whether this transaction left new work to claim or to promote.
    pub(crate) fn has_new_work(&self) -> bool {
        self.has_new_work
    }

    /// Writes the changed claims. This is due before they are read, and at the end.
    pub(crate) fn flush_claims(&mut self) -> Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        let mut left = self.db.prepare_cached(CLAIM_LEFT)?;
        let mut close = self.db.prepare_cached(CLAIM_CLOSE)?;
        for (number, jobs) in self.left.drain() {
            left.execute(params![number.as_i64(), jobs])?;
            close.execute([number.as_i64()])?;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.flush_claims()?;
        for queue in self.queues.iter_mut().filter(|queue| queue.changed) {
            queue.write(self.db)?;
        }
        self.streams.flush(self.db)
    }
}

/// Gives the jobs of an unreadable queue row a new queue, so that they are not lost with it. The
/// name of the new queue says that it was recovered.
fn recover(db: &Connection, id: i64) -> Result<()> {
    let name = format!("recovered-{id}");
    tracing::error!(
        id,
        name,
        "a row of backstop_queue is lost; its jobs have a new queue. Run `backstop doctor`"
    );
    db.prepare_cached(QUEUE_RECOVER)?
        .execute(params![id, name])
        .map(drop)
}

impl ChangedQueue {
    fn new(id: i64, name: QueueName) -> Self {
        Self {
            id,
            name,
            paused: false,
            bounds: QueueBounds::default(),
            live: 0,
            dead: 0,
            next_seq: 0,
            counts: [0; JobState::ALL.len()],
            totals: [0; 4],
            changed: false,
        }
    }

    fn read(row: &Row<'_>) -> Result<Self> {
        let name: String = row.get(1)?;
        let name = QueueName::new(&name)
            .map_err(|error| Error::FromSqlConversionFailure(1, Type::Text, error.into()))?;
        Ok(Self {
            paused: row.get(2)?,
            next_seq: row.get(3)?,
            bounds: row::bounds(row, 4)?,
            live: row::whole(row, 7)?,
            dead: row::whole(row, 8)?,
            ..Self::new(row.get(0)?, name)
        })
    }

    fn write(&mut self, db: &Connection) -> Result<()> {
        let (counts, totals) = (&self.counts, &self.totals);
        db.prepare_cached(QUEUE_COUNT)?.execute(params![
            self.id,
            self.next_seq,
            counts[0],
            counts[1],
            counts[2],
            counts[3],
            counts[4],
            counts[5],
            counts[6],
            totals[0],
            totals[1],
            totals[2],
            totals[3],
        ])?;
        (self.counts, self.totals, self.changed) = ([0; JobState::ALL.len()], [0; 4], false);
        Ok(())
    }
}
