//! Workers that are elsewhere and speak through somebody, such as a server: jobs are handed out,
//! kept alive and ended on their behalf, by the same rules as in a worker of this process.
//!
//! | what stands before a job | what happens here |
//! |---|---|
//! | the breaker of its queue | asked before a claim; told with every end |
//! | the rate limit of its queue | leave is asked before a claim, and unused leave given back |
//! | the gate of its kind | asked after a claim: what it keeps back goes back, not charged; told of deaths |
//! | being asked to take no new jobs | nothing is claimed for such a worker, as `worker_commands.rs` says |
//! | being a suspect, as [`backstop_core::blame`] says | each worker has one at a time, as `suspects.rs` says, and it is noted before |
//!
//! Nothing is remembered here between two calls but when a worker was last seen, what it told and
//! was asked for then, which queues did not answer, and when jobs were last made ready: what ending
//! a run needs to know travels with it, in its [`LeaseToken`]. Any process on the store can end
//! what any other handed out.

mod admission;
mod claim;
mod lease;
mod lease_token;
mod overlaps;
mod release;
mod settle;
pub(crate) mod suspects;
mod worker_commands;

pub use lease::{LeaseRequest, LeasedJob};
pub use lease_token::{InvalidLeaseToken, LeaseToken};
pub use settle::{SettleRequest, SettleResult};

use crate::client::Backstop;
use crate::config::Config;
use crate::worker::QueueSettings;
use crate::workers::heartbeat::WorkerHeartbeat;
use crate::workers::{LISTED, WorkerDescription};
use backstop_core::limits::{LEASE_MAX, LEASE_MIN};
use backstop_core::port::{BeatRequest, StoreError, StoreResult};
use backstop_core::worker_command::DesiredWorkerState;
use backstop_core::{JobId, QueueName, Span, Time, WorkerName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A worker that asks for jobs more often than this is noted as alive only so often.
const NOTED_EVERY: Span = Span::secs(5);
/// How long it is believed what the store says of a worker that asks elsewhere; and what it said
/// last, where it does not answer.
const LOOKUP_BELIEVED_FOR: Span = Span::secs(30);
const LAST_LOOKUP_BELIEVED_FOR: Span = Span::secs(5);
/// How long a beat waits for what is beside the point of it: no longer than this, nor than this
/// share of the lease.
const SIDE_WAIT_MAX: Duration = Duration::from_secs(1);
const SIDE_WAIT_SHARE: u32 = 8;
/// Workers whose last note is remembered; with more of them, some are noted more often.
const NOTED_MAX: usize = 10_000;

/// When workers elsewhere were last noted as alive, what they asked for, and when jobs were last
/// made ready for them: one for each process that speaks for them.
#[derive(Debug, Default)]
pub struct SeenWorkers {
    workers: Mutex<BTreeMap<WorkerName, SeenWorker>>,
    last_promotion: Mutex<Option<LastPromotion>>,
    /// What they told of themselves.
    heartbeats: worker_commands::HttpWorkerCache<WorkerHeartbeat>,
    /// What they were asked for.
    commands: worker_commands::HttpWorkerCache<worker_commands::HttpCommandState>,
    /// Queues that do not answer.
    unreachable: claim::HttpUnreachableQueues,
}

/// A look for jobs whose time has come.
#[derive(Clone, Copy, Debug)]
struct LastPromotion {
    at: Time,
    /// How long after it the next one is due.
    next: Duration,
}

#[derive(Debug)]
struct SeenWorker {
    at: Time,
    queues: Vec<QueueName>,
    /// It did not ask here: the store told so, and is believed for so long.
    believed_for: Option<Span>,
}

impl SeenWorkers {
    /// Whether this worker is to be noted now.
    fn is_due(&self, worker: &WorkerName, now: Time) -> bool {
        !self
            .lock_workers()
            .get(worker)
            .is_some_and(|noted| noted.is_fresh(now) && noted.believed_for.is_none())
    }

    /// This worker was noted as alive, serving these queues.
    fn note(&self, worker: &WorkerName, queues: &[QueueName], now: Time) {
        self.put(
            worker,
            SeenWorker {
                at: now,
                queues: queues.to_vec(),
                believed_for: None,
            },
            now,
        );
    }

    fn put(&self, worker: &WorkerName, new: SeenWorker, now: Time) {
        let mut seen = self.lock_workers();
        if seen.len() >= NOTED_MAX && !seen.contains_key(worker) {
            seen.retain(|_, noted| noted.is_fresh(now));
        }
        if seen.len() < NOTED_MAX || seen.contains_key(worker) {
            seen.insert(worker.clone(), new);
        }
    }

    /// The queues this worker last asked for jobs of, if it ever asked here, or that was looked up
    /// not long ago.
    fn queues_of(&self, worker: &WorkerName, now: Time) -> Option<Vec<QueueName>> {
        let seen = self.lock_workers();
        let is_believed = |noted: &&SeenWorker| {
            noted
                .believed_for
                .is_none_or(|believed| now.since(noted.at) < believed)
        };
        seen.get(worker)
            .filter(is_believed)
            .map(|noted| noted.queues.clone())
    }

    /// The same, however long ago.
    fn last_queues_of(&self, worker: &WorkerName) -> Vec<QueueName> {
        self.lock_workers()
            .get(worker)
            .map(|noted| noted.queues.clone())
            .unwrap_or_default()
    }

    /// What the last look for jobs whose time has come said, if it was made less than `gap` ago;
    /// otherwise whoever asks makes the next. However many ask, and however often, the store is
    /// asked once in a gap.
    fn promoted_within(&self, gap: Duration, now: Time) -> Option<Duration> {
        let mut promoted = self
            .last_promotion
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fresh =
            promoted.filter(|last| last.at <= now && Duration::from(now.since(last.at)) < gap);
        if fresh.is_none() {
            *promoted = Some(LastPromotion { at: now, next: gap });
        }
        fresh.map(|last| last.next)
    }

    /// What a look said that was made at `at`.
    fn note_promotion(&self, at: Time, next: Duration) {
        *self
            .last_promotion
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(LastPromotion { at, next });
    }

    fn lock_workers(&self) -> MutexGuard<'_, BTreeMap<WorkerName, SeenWorker>> {
        // One map, always whole.
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SeenWorker {
    fn is_fresh(&self, now: Time) -> bool {
        self.at <= now && now.since(self.at) < NOTED_EVERY
    }
}

/// What a worker elsewhere hears when it beats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpBeatResult {
    /// Which jobs are no longer its own.
    pub lost: Vec<JobId>,
    /// What it is asked for.
    pub desired_state: Option<DesiredWorkerState>,
}

/// What can be done on behalf of workers elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct HttpWorkers<'a> {
    backstop: &'a Backstop,
    config: &'a Config,
    seen_workers: &'a SeenWorkers,
}

impl Backstop {
    /// What can be done on behalf of workers elsewhere, by what `config` says about queues.
    pub const fn http_workers<'a>(
        &'a self,
        config: &'a Config,
        seen_workers: &'a SeenWorkers,
    ) -> HttpWorkers<'a> {
        HttpWorkers {
            backstop: self,
            config,
            seen_workers,
        }
    }
}

impl HttpWorkers<'_> {
    /// Keeps leases alive, and notes their worker, which tells `about` of itself, as alive.
    pub async fn beat(
        &self,
        worker: &WorkerName,
        about: &WorkerDescription,
        held: Vec<(JobId, Option<LeaseToken>)>,
        term: Option<Span>,
    ) -> StoreResult<HttpBeatResult> {
        let terms = || {
            held.iter()
                .filter_map(|(_, token)| token.as_ref())
                .map(|token| token.term)
        };
        let term = term
            .or_else(|| terms().max())
            .unwrap_or_else(|| QueueSettings::default().lease);
        let term = term.clamp(LEASE_MIN, LEASE_MAX);
        let side_wait = side_wait(terms().min().map_or(term, |shortest| term.min(shortest)));
        // Leases come first: nothing of what is told beside holds them up for long, or fails with
        // them.
        let (desired_state, lost) = if self.may_be_another(worker, about) {
            (
                self.desired_state_within(worker, about, side_wait).await,
                self.extend(worker, held, term, side_wait).await,
            )
        } else {
            tokio::join!(
                self.desired_state_within(worker, about, side_wait),
                self.extend(worker, held, term, side_wait)
            )
        };
        self.save_heartbeat(worker, about, side_wait).await;
        Ok(HttpBeatResult {
            lost: lost?,
            desired_state,
        })
    }

    /// Keeps leases alive; answers which of the jobs are no longer the worker's own.
    async fn extend(
        &self,
        worker: &WorkerName,
        held: Vec<(JobId, Option<LeaseToken>)>,
        term: Span,
        side_wait: Duration,
    ) -> StoreResult<Vec<JobId>> {
        let mut lost: Vec<JobId> = held
            .iter()
            .filter(|(_, token)| token.is_none())
            .map(|(job, _)| *job)
            .collect();
        let held: Vec<(JobId, LeaseToken)> = held
            .into_iter()
            .filter_map(|(job, token)| Some((job, token?)))
            .collect();
        // It still serves what it asks for, also where it holds nothing of that.
        let served = self.queues_served(worker, side_wait).await;
        let queues: BTreeSet<QueueName> = held
            .iter()
            .map(|(_, held)| held.queue.clone())
            .chain(served)
            .collect();
        let now = self.backstop.now();
        let beat = BeatRequest {
            worker: worker.clone(),
            queues: queues.into_iter().collect(),
            leases: held
                .into_iter()
                .map(|(job, token)| token.lease(job))
                .collect(),
            until: now.after(term),
        };
        let beaten = self.backstop.store().beat(beat, now).await?;
        if let Some(queue) = beaten.unanswered.first() {
            // It beats again: what is kept is kept, and nobody may take the rest for kept.
            return Err(StoreError::unavailable(
                "beating",
                format!("queue {queue} does not answer"),
            ));
        }
        lost.extend(beaten.lost.into_iter().map(|lease| lease.job));
        Ok(lost)
    }

    /// The queues a worker asks for jobs of. One that asked another process, or this one before it
    /// was started anew, is asked after in the store: a beat that named fewer queues than it serves
    /// would show it as gone from the others.
    async fn queues_served(&self, worker: &WorkerName, side_wait: Duration) -> Vec<QueueName> {
        let now = self.backstop.now();
        if let Some(queues) = self.seen_workers.queues_of(worker, now) {
            return queues;
        }
        let look =
            tokio::time::timeout(side_wait, self.backstop.store().workers(LISTED, now)).await;
        let (queues, believed) = match look {
            Ok(Ok(workers)) => match workers.into_iter().find(|one| one.name == *worker) {
                Some(known) => (known.queues, LOOKUP_BELIEVED_FOR),
                None => return Vec::new(),
            },
            // Its leases matter more: they do not wait for it with every beat.
            _ => (
                self.seen_workers.last_queues_of(worker),
                LAST_LOOKUP_BELIEVED_FOR,
            ),
        };
        self.seen_workers.put(
            worker,
            SeenWorker {
                at: now,
                queues: queues.clone(),
                believed_for: Some(believed),
            },
            now,
        );
        queues
    }

    fn settings(&self, queue: &QueueName) -> Option<&QueueSettings> {
        self.config.queues.get(queue).map(|queue| &queue.settings)
    }
}

/// How long whoever holds such a lease waits for what is beside it.
fn side_wait(term: Span) -> Duration {
    SIDE_WAIT_MAX.min(Duration::from(term) / SIDE_WAIT_SHARE)
}

#[cfg(test)]
mod tests;
