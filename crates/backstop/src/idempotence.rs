//! What makes a handler safe to repeat.
//!
//! A job starts at least once, so its handler may be called again after a crash, and beside a copy
//! of itself after a pause. Which of these helps depends on how long the work takes, and where its
//! effect is:
//!
//! | the work | use | a second copy |
//! |---|---|---|
//! | has a service behind it that takes an idempotency key | [`crate::Run::id`] as that key | is recognised there |
//! | is slow | [`Backstop::try_lock_for`], then [`Backstop::already_done`] | ends at once, as done, without an effect |
//! | is fast, with its effect in a database | a row lock in its own transaction, see below | waits for the first, then finds it done |
//! | is fast, on Redis | [`Backstop::lock_within`], then [`Backstop::already_done`] | the same |
//!
//! # Slow work
//!
//! ```
//! # use backstop::{Backstop, RunError, Run, Span, Task};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize)]
//! # struct ContentChange { id: u64 }
//! # impl Task for ContentChange { const KIND: &'static str = "content_change"; }
//! # async fn send_everything(_: &ContentChange) -> Result<(), std::io::Error> { Ok(()) }
//! async fn process(change: ContentChange, run: Run, backstop: Backstop) -> Result<(), RunError> {
//!     let name = format!("content_change:{}", change.id);
//!     let Some(lock) = backstop.try_lock_for(&run, &name).await? else {
//!         return Ok(()); // another job is at it
//!     };
//!     if backstop.already_done(&name).await? {
//!         return Ok(());
//!     }
//!     tokio::select! {
//!         sent = send_everything(&change) => sent?,
//!         () = lock.lost() => return Err(RunError::retry("the lock was lost half-way")),
//!     }
//!     backstop.mark_done(&name, Span::days(7)).await?;
//!     lock.release().await?;
//!     Ok(())
//! }
//! ```
//!
//! A lock is taken in the name of the job: when its worker is killed, the next run of the same job
//! takes it over at once. Taken in nobody's name ([`Backstop::try_lock`]) it would still be held
//! then, by the dead; a handler that ends as done because of that would lose its work. It is held
//! for [`LOCK_SPAN`] and extended while its guard lives, by a thread of its own: a handler that
//! blocks its runtime keeps it. It outlives a holder that was killed by no more than that; where
//! the clock was set back meanwhile, by no more than that from when somebody asks for it. A clock
//! that leaps forward takes it from nobody: whoever finds it run out looks at the store's clock
//! first, and leaves its holder the time it would have had. (A process that starts within seconds
//! of such a leap cannot know of it.) Whoever loses it to a long pause is told by [`Lock::lost`],
//! and can give [`Lock::term`] to services that refuse an older one.
//!
//! # Fast work in a database
//!
//! Lock the row in the transaction that changes it. On PostgreSQL:
//!
//! ```sql
//! BEGIN;
//! SELECT status FROM emails WHERE id = $1 FOR UPDATE;      -- a second copy waits here
//! -- already sent? then COMMIT and end as done
//! UPDATE emails SET status = 'sent' WHERE id = $1;
//! COMMIT;
//! ```
//!
//! On SQLite begin with `BEGIN IMMEDIATE` (`TransactionBehavior::Immediate`): a second copy waits
//! for the whole file, up to its busy timeout, and then reads what the first wrote. Jobs that
//! follow from it are pushed in the same transaction, with [`Backstop::enqueue_in`] or
//! [`Backstop::enqueue_in_postgres`].

use crate::client::Backstop;
use crate::handler::Run;
use crate::shared_cells::update;
use backstop_core::limits::CELL_NAME_BYTES_MAX;
use backstop_core::lock::LockLease;
use backstop_core::port::StoreResult;
use backstop_core::{JobId, Span, Time};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a lock is held without being extended: it outlives a holder that was killed by no more
/// than this.
pub const LOCK_SPAN: Span = Span::secs(30);
/// A lock is extended so many times before it would end: one lost answer does not lose it.
const EXTENSIONS: u32 = 3;
/// Waits between two tries for a lock that is taken.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LAST: Duration = Duration::from_millis(250);

pub(crate) const LOCK: &str = "lock/";
pub(crate) const DONE: &str = "done/";

/// A lock as its cell holds it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LockCell(pub(crate) Option<LockLease>);

/// What came of asking for a lock.
enum LockAttempt {
    Taken(LockLease),
    Refused,
    /// Somebody had it, and neither extended it nor gave it back.
    Expired,
}

/// That something was done, and until when that is remembered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct DoneMark {
    pub(crate) until: Time,
}

impl Backstop {
    /// Takes the lock `name` for a run of a job, for as long as what it answers lives; `None` if
    /// another job has it. Does not wait.
    ///
    /// A handler that finds its lock taken ends as done: whoever has it does the work. A later run
    /// of the same job takes it over from the one before, whose worker is dead or no longer counts.
    pub async fn try_lock_for(&self, run: &Run, name: &str) -> StoreResult<Option<Lock>> {
        self.acquire(name, &format!("job {}", run.id())).await
    }

    /// Takes the lock `name`, for as long as what it answers lives; `None` if somebody has it. Does
    /// not wait. In handlers of jobs use [`Backstop::try_lock_for`]: this one is held by a killed
    /// worker for up to [`LOCK_SPAN`], also against the next run of its job.
    pub async fn try_lock(&self, name: &str) -> StoreResult<Option<Lock>> {
        self.acquire(
            name,
            &format!("process {} ({})", std::process::id(), self.new_id()),
        )
        .await
    }

    async fn acquire(&self, name: &str, holder: &str) -> StoreResult<Option<Lock>> {
        let cell = cell_name(LOCK, name);
        self.current_time().await;
        let mut requested_at = Instant::now();
        let mut attempt = self.try_acquire(&cell, holder, false).await?;
        if matches!(attempt, LockAttempt::Expired) {
            // Dead, or by another clock than this process.
            self.follow_clock().await?;
            requested_at = Instant::now();
            attempt = self.try_acquire(&cell, holder, true).await?;
        }
        let taken = match attempt {
            LockAttempt::Taken(held) => Some(Lock::start(self, cell, held.term, requested_at)),
            LockAttempt::Expired | LockAttempt::Refused => None,
        };
        let result = if taken.is_some() { "acquired" } else { "taken" };
        metrics::counter!("backstop_locks_total", "result" => result).increment(1);
        Ok(taken)
    }

    /// Asks for the lock of a cell once. One that has run out is left alone, unless it `surely`
    /// has.
    async fn try_acquire(
        &self,
        cell: &str,
        holder: &str,
        is_certain: bool,
    ) -> StoreResult<LockAttempt> {
        let (_, attempt) = update(self, cell, LockCell::default(), |slot: &mut LockCell| {
            let (leapt, now) = (self.clock().jumped_within(LOCK_SPAN.into()), self.now());
            if !is_certain
                && slot
                    .0
                    .as_ref()
                    .is_some_and(|held| held.has_expired(holder, now))
            {
                return LockAttempt::Expired;
            }
            let (current, attempt) =
                match LockLease::acquire(slot.0.as_ref(), holder, LOCK_SPAN, leapt, now) {
                    Ok(held) => (held.clone(), LockAttempt::Taken(held)),
                    Err(current) => (current, LockAttempt::Refused),
                };
            slot.0 = Some(current);
            attempt
        })
        .await?;
        Ok(attempt)
    }

    /// As [`Backstop::try_lock`], and tries again for so long while somebody has it. For work that
    /// is fast: who waits holds up its worker.
    pub async fn lock_within(&self, name: &str, wait: Span) -> StoreResult<Option<Lock>> {
        let end = Instant::now() + Duration::from(wait);
        let mut pause = RETRY_FIRST;
        loop {
            let lock = self.try_lock(name).await?;
            if lock.is_some() || Instant::now() + pause > end {
                return Ok(lock);
            }
            tokio::time::sleep(pause.mul_f64(0.5 + self.random().unit() / 2.0)).await;
            pause = (pause * 2).min(RETRY_LAST);
        }
    }

    /// Whether [`Backstop::mark_done`] was said of `key`, and is still remembered.
    pub async fn already_done(&self, key: &str) -> StoreResult<bool> {
        let now = self.current_time().await;
        let cell = self
            .store()
            .cells(vec![cell_name(DONE, key)])
            .await?
            .pop()
            .flatten();
        let is_done = cell
            .and_then(|cell| crate::shared_cells::read::<DoneMark>(&cell))
            .is_some_and(|mark| mark.until > now);
        if is_done {
            metrics::counter!("backstop_already_done_total").increment(1);
        }
        Ok(is_done)
    }

    /// Notes that the work of `key` is done, and keeps that for so long; answers whether this was
    /// the first to say so.
    pub async fn mark_done(&self, key: &str, keep: Span) -> StoreResult<bool> {
        let now = self.current_time().await;
        let forgotten = DoneMark { until: now };
        let (_, is_first) = update(
            self,
            &cell_name(DONE, key),
            forgotten,
            |mark: &mut DoneMark| {
                let is_first = mark.until <= now;
                mark.until = mark.until.max(now.after(keep));
                is_first
            },
        )
        .await?;
        Ok(is_first)
    }
}

/// A lock that is held while this lives. Dropped, it is released soon after.
#[derive(Debug)]
#[must_use = "a lock that is dropped is released"]
pub struct Lock {
    term: u64,
    lost: CancellationToken,
    /// Tells the one that extends it to release it.
    over: CancellationToken,
    keeping: Option<JoinHandle<StoreResult<()>>>,
}

impl Lock {
    fn start(backstop: &Backstop, cell: String, term: u64, requested_at: Instant) -> Self {
        let (lost, over) = (CancellationToken::new(), CancellationToken::new());
        let keep = keep_lock(
            backstop.clone(),
            cell,
            term,
            requested_at,
            lost.clone(),
            over.clone(),
        );
        let keeping = backstop.locks().spawn(keep);
        Self {
            term,
            lost,
            over,
            keeping: Some(keeping),
        }
    }

    /// Grows with every holder: a service that remembers the highest it has seen can refuse whoever
    /// comes under a lower one.
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Whether somebody else may have it by now.
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Waits until somebody else may have it.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Releases it. When it answers, others can have it. An error leaves it to end by itself.
    pub async fn release(mut self) -> StoreResult<()> {
        self.over.cancel();
        match self.keeping.take() {
            Some(keeping) => keeping.await.unwrap_or(Ok(())),
            None => Ok(()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// Extends a lock until it is over, or lost; then releases it.
async fn keep_lock(
    backstop: Backstop,
    cell: String,
    term: u64,
    requested_at: Instant,
    lost: CancellationToken,
    over: CancellationToken,
) -> StoreResult<()> {
    let span = Duration::from(LOCK_SPAN);
    // By this process's own clock, from before it asked: certain whatever becomes of the store's.
    // Whoever loses it has time to stop.
    let certain = span * 9 / 10;
    let mut certain_until = requested_at + certain;
    loop {
        tokio::select! {
            biased;
            () = over.cancelled() => return release(&backstop, &cell, term).await,
            () = tokio::time::sleep_until(certain_until) => {
                lost.cancel();
                return release(&backstop, &cell, term).await;
            }
            () = tokio::time::sleep(span / (EXTENSIONS + 1)) => {}
        }
        let requested_at = Instant::now();
        let extended = tokio::select! {
            biased;
            () = tokio::time::sleep_until(certain_until) => continue,
            extended = extend(&backstop, &cell, term) => extended,
        };
        match extended {
            Ok(true) => certain_until = requested_at + certain,
            Ok(false) => {
                tracing::warn!(%cell, term, "a lock was lost: its holder was not heard of for too long");
                lost.cancel();
                return Ok(());
            }
            Err(error) => tracing::warn!(%error, %cell, "a lock was not extended; trying again"),
        }
    }
}

async fn extend(backstop: &Backstop, cell: &str, term: u64) -> StoreResult<bool> {
    // By the time of those who ask for it: a process without a worker has nobody else who follows
    // it.
    backstop.follow_clock().await?;
    let held = change_lock(backstop, cell, |held| {
        LockLease::extend(held, term, LOCK_SPAN, backstop.now())
    })
    .await?;
    Ok(held.is_some())
}

async fn release(backstop: &Backstop, cell: &str, term: u64) -> StoreResult<()> {
    change_lock(backstop, cell, |held| {
        LockLease::release(held, term, backstop.now())
    })
    .await
    .map(drop)
}

/// Writes what `decide` makes of a lock, and answers that; `None` if it is left as it was.
async fn change_lock(
    backstop: &Backstop,
    cell: &str,
    decide: impl Fn(Option<&LockLease>) -> Option<LockLease>,
) -> StoreResult<Option<LockLease>> {
    let (_, decided) = update(
        backstop,
        cell,
        LockCell::default(),
        |slot: &mut LockCell| {
            let decided = decide(slot.0.as_ref());
            slot.0 = decided.clone().or_else(|| slot.0.take());
            decided
        },
    )
    .await?;
    Ok(decided)
}

/// The cell for a name; one that is too long stands for itself by its digest.
pub(crate) fn cell_name(prefix: &str, name: &str) -> String {
    if prefix.len() + name.len() <= CELL_NAME_BYTES_MAX && !name.contains('\0') {
        format!("{prefix}{name}")
    } else {
        format!("{prefix}{}", JobId::named(name))
    }
}
