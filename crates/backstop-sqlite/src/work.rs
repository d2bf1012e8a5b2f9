//! One transaction at work: its connection, and what it has learned and changed about queues,
//! claims and streams.
//!
//! Counts and claims change with every job, but are written once per transaction. What is read of
//! them before that goes through here.

use crate::row;
use crate::streams::Ledger;
use backstop_core::{Bounds, LeaseNumber, QueueName, State};
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

/// A transaction at work. Dropped without [`Work::flush`], its counts are lost with it: only a
/// rollback may follow.
pub(crate) struct Work<'c> {
    pub(crate) db: &'c Connection,
    queues: Vec<Queue>,
    by_name: HashMap<QueueName, QueueAt>,
    by_id: HashMap<i64, QueueAt>,
    left: HashMap<LeaseNumber, i64>,
    pub(crate) streams: Ledger,
    /// How many queues there are, once somebody asked.
    queue_count: Option<usize>,
    stirred: bool,
}

/// A queue of this transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueAt(usize);

/// What a transaction knows of a queue.
pub(crate) struct Queue {
    pub(crate) id: i64,
    pub(crate) name: QueueName,
    pub(crate) paused: bool,
    pub(crate) bounds: Bounds,
    /// Its live jobs and its dead ones, as they are by now.
    live: i64,
    dead: i64,
    next_seq: i64,
    counts: [i64; State::ALL.len()],
    /// Enqueued, done, dead, cancelled.
    totals: [i64; 4],
    changed: bool,
}

impl<'c> Work<'c> {
    /// Work on a connection that is inside a transaction.
    pub(crate) fn new(db: &'c Connection) -> Self {
        Self {
            db,
            queues: Vec::new(),
            by_name: HashMap::new(),
            by_id: HashMap::new(),
            left: HashMap::new(),
            streams: Ledger::default(),
            queue_count: None,
            stirred: false,
        }
    }

    /// What is known of a queue.
    pub(crate) fn at(&self, queue: QueueAt) -> &Queue {
        &self.queues[queue.0]
    }

    /// The queue of this name, if there is one.
    pub(crate) fn queue(&mut self, name: &QueueName) -> Result<Option<QueueAt>> {
        if let Some(at) = self.by_name.get(name) {
            return Ok(Some(*at));
        }
        let found = self
            .db
            .prepare_cached(QUEUE_FIND)?
            .query_row([name.as_str()], Queue::read)
            .optional()?;
        Ok(found.map(|queue| self.remember(queue)))
    }

    /// The queue of this name, made if there is none.
    pub(crate) fn queue_or_new(&mut self, name: &QueueName) -> Result<QueueAt> {
        if let Some(at) = self.queue(name)? {
            return Ok(at);
        }
        self.db
            .prepare_cached(QUEUE_ADD)?
            .execute([name.as_str()])?;
        let id = self.db.last_insert_rowid();
        self.queue_count = self.queue_count.map(|count| count + 1);
        Ok(self.remember(Queue::new(id, name.clone())))
    }

    /// How many queues there are: counted once in a transaction.
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

    /// Forgets a queue that has no jobs: what comes for it from now on makes a new one.
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

    /// The queue a row names.
    pub(crate) fn queue_of(&mut self, id: i64) -> Result<QueueAt> {
        if let Some(at) = self.by_id.get(&id) {
            return Ok(*at);
        }
        let mut get = self.db.prepare_cached(QUEUE_GET)?;
        let queue = match get.query_row([id], Queue::read) {
            Err(Error::QueryReturnedNoRows | Error::FromSqlConversionFailure(..)) => {
                recover(self.db, id)?;
                get.query_row([id], Queue::read)?
            }
            read => read?,
        };
        Ok(self.remember(queue))
    }

    fn remember(&mut self, queue: Queue) -> QueueAt {
        let at = QueueAt(self.queues.len());
        self.by_name.insert(queue.name.clone(), at);
        self.by_id.insert(queue.id, at);
        self.queues.push(queue);
        at
    }

    /// Notes that a queue was paused or opened.
    pub(crate) fn set_paused(&mut self, queue: QueueAt, paused: bool) {
        self.queues[queue.0].paused = paused;
    }

    /// Notes how much a queue holds from now on.
    pub(crate) fn set_bounds(&mut self, queue: QueueAt, bounds: Bounds) {
        self.queues[queue.0].bounds = bounds;
    }

    /// Whether one more live job fits into a queue.
    pub(crate) fn has_room(&self, queue: QueueAt) -> bool {
        let Queue { bounds, live, .. } = self.at(queue);
        bounds
            .max_size
            .is_none_or(|max| live.max(&0).unsigned_abs() < max)
    }

    /// Whether one more dead job fits into a queue.
    pub(crate) fn has_room_for_dead(&self, queue: QueueAt) -> bool {
        let Queue { bounds, dead, .. } = self.at(queue);
        dead.max(&0).unsigned_abs() < bounds.dead_max
    }

    /// The place behind all others of the queue; taken only by [`Work::use_seq`].
    pub(crate) fn next_seq(&self, queue: QueueAt) -> i64 {
        self.queues[queue.0].next_seq
    }

    /// Takes the place that [`Work::next_seq`] told.
    pub(crate) fn use_seq(&mut self, queue: QueueAt) {
        let queue = &mut self.queues[queue.0];
        queue.next_seq += 1;
        queue.changed = true;
    }

    /// Counts jobs into a state, or out of it.
    pub(crate) fn count(&mut self, queue: QueueAt, state: State, by: i64) {
        let queue = &mut self.queues[queue.0];
        queue.counts[state as usize] += by;
        match state {
            State::Scheduled | State::Ready | State::Running | State::Retrying => queue.live += by,
            State::Dead => queue.dead += by,
            State::Done | State::Cancelled => {}
        }
        queue.changed |= by != 0;
    }

    /// Counts jobs taken in.
    pub(crate) fn count_enqueued(&mut self, queue: QueueAt) {
        self.queues[queue.0].totals[0] += 1;
    }

    /// Counts the end of a job in the totals.
    pub(crate) fn count_end(&mut self, queue: QueueAt, state: State) {
        let queue = &mut self.queues[queue.0];
        queue.changed = true;
        match state {
            State::Done => queue.totals[1] += 1,
            State::Dead => queue.totals[2] += 1,
            State::Cancelled => queue.totals[3] += 1,
            State::Scheduled | State::Ready | State::Running | State::Retrying => {}
        }
    }

    /// Notes that jobs left a claim.
    pub(crate) fn leave_claim(&mut self, number: LeaseNumber, jobs: i64) {
        *self.left.entry(number).or_default() += jobs;
    }

    /// Notes that there is something to claim or to promote that was not there before.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Whether there is something to claim or to promote that was not there before.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// Brings the claims up to date: before they are read, and at the end.
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

    /// Writes what was counted.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.flush_claims()?;
        for queue in self.queues.iter_mut().filter(|queue| queue.changed) {
            queue.write(self.db)?;
        }
        self.streams.flush(self.db)
    }
}

/// A queue that cannot be read must not take its jobs with it: they go on under a name that says
/// so.
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

impl Queue {
    fn new(id: i64, name: QueueName) -> Self {
        Self {
            id,
            name,
            paused: false,
            bounds: Bounds::default(),
            live: 0,
            dead: 0,
            next_seq: 0,
            counts: [0; State::ALL.len()],
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
        (self.counts, self.totals, self.changed) = ([0; State::ALL.len()], [0; 4], false);
        Ok(())
    }
}
