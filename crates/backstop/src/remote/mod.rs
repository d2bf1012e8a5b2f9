//! Workers that are elsewhere and speak through somebody, such as a server: jobs are handed out,
//! kept alive and ended on their behalf, by the same rules as in a worker of this process.
//!
//! | what stands before a job | what happens here |
//! |---|---|
//! | the breaker of its queue | asked before a claim; told with every end |
//! | the rate limit of its queue | leave is asked before a claim, and unused leave given back |
//! | the gate of its kind | asked after a claim: what it keeps back goes back, not charged; told of deaths |
//! | being asked to take no new jobs | nothing is claimed for such a worker, as `orders.rs` says |
//! | being a suspect, as [`backstop_core::blame`] says | each worker has one at a time, as `suspects.rs` says, and it is noted before |
//!
//! Nothing is remembered here between two calls but when a worker was last seen, what it told and
//! was asked for then, which queues did not answer, and when jobs were last made ready: what ending
//! a run needs to know travels with it, in its [`Ticket`]. Any process on the store can end what
//! any other handed out.

mod back;
mod claim;
mod guards;
mod lease;
mod orders;
mod overlaps;
mod settle;
pub(crate) mod suspects;
mod ticket;

pub use lease::{Ask, Handed};
pub use settle::{Ended, Said};
pub use ticket::{NotATicket, Ticket};

use crate::client::Backstop;
use crate::config::Config;
use crate::worker::QueueSettings;
use crate::workers::card::Card;
use crate::workers::{About, LISTED};
use backstop_core::limits::{LEASE_MAX, LEASE_MIN};
use backstop_core::order::Asked;
use backstop_core::port::{Answer, Beat, StoreError};
use backstop_core::{JobId, QueueName, Span, Time, WorkerName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A worker that asks for jobs more often than this is noted as alive only so often.
const NOTED_EVERY: Span = Span::secs(5);
/// How long it is believed what the store says of a worker that asks elsewhere; and what it said
/// last, where it does not answer.
const HEARSAY_FOR: Span = Span::secs(30);
const LAST_HEARSAY_FOR: Span = Span::secs(5);
/// How long a beat waits for what is beside the point of it: no longer than this, nor than this
/// share of the lease.
const BESIDE_MAX: Duration = Duration::from_secs(1);
const BESIDE_SHARE: u32 = 8;
/// Workers whose last note is remembered; with more of them, some are noted more often.
const NOTED_MAX: usize = 10_000;

/// When workers elsewhere were last noted as alive, what they asked for, and when jobs were last
/// made ready for them: one for each process that speaks for them.
#[derive(Debug, Default)]
pub struct Attendance {
    noted: Mutex<BTreeMap<WorkerName, Noted>>,
    promoted: Mutex<Option<Promotion>>,
    /// What they told of themselves.
    cards: orders::Memory<Card>,
    /// What they were asked for.
    orders: orders::Memory<orders::Heard>,
    /// Queues that do not answer.
    silence: claim::Silence,
}

/// A look for jobs whose time has come.
#[derive(Clone, Copy, Debug)]
struct Promotion {
    at: Time,
    /// How long after it the next one is due.
    next: Duration,
}

#[derive(Debug)]
struct Noted {
    at: Time,
    queues: Vec<QueueName>,
    /// It did not ask here: the store told so, and is believed for so long.
    hearsay: Option<Span>,
}

impl Attendance {
    /// Whether this worker is to be noted now.
    fn is_due(&self, worker: &WorkerName, now: Time) -> bool {
        !self
            .noted()
            .get(worker)
            .is_some_and(|noted| noted.is_fresh(now) && noted.hearsay.is_none())
    }

    /// This worker was noted as alive, serving these queues.
    fn note(&self, worker: &WorkerName, queues: &[QueueName], now: Time) {
        self.put(
            worker,
            Noted {
                at: now,
                queues: queues.to_vec(),
                hearsay: None,
            },
            now,
        );
    }

    fn put(&self, worker: &WorkerName, new: Noted, now: Time) {
        let mut noted = self.noted();
        if noted.len() >= NOTED_MAX && !noted.contains_key(worker) {
            noted.retain(|_, noted| noted.is_fresh(now));
        }
        if noted.len() < NOTED_MAX || noted.contains_key(worker) {
            noted.insert(worker.clone(), new);
        }
    }

    /// The queues this worker last asked for jobs of, if it ever asked here, or that was looked up
    /// not long ago.
    fn queues_of(&self, worker: &WorkerName, now: Time) -> Option<Vec<QueueName>> {
        let noted = self.noted();
        let is_believed = |noted: &&Noted| {
            noted
                .hearsay
                .is_none_or(|believed| now.since(noted.at) < believed)
        };
        noted
            .get(worker)
            .filter(is_believed)
            .map(|noted| noted.queues.clone())
    }

    /// The same, however long ago.
    fn last_queues_of(&self, worker: &WorkerName) -> Vec<QueueName> {
        self.noted()
            .get(worker)
            .map(|noted| noted.queues.clone())
            .unwrap_or_default()
    }

    /// What the last look for jobs whose time has come said, if it was made less than `gap` ago;
    /// otherwise whoever asks makes the next. However many ask, and however often, the store is
    /// asked once in a gap.
    fn promoted_within(&self, gap: Duration, now: Time) -> Option<Duration> {
        let mut promoted = self.promoted.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh =
            promoted.filter(|last| last.at <= now && Duration::from(now.since(last.at)) < gap);
        if fresh.is_none() {
            *promoted = Some(Promotion { at: now, next: gap });
        }
        fresh.map(|last| last.next)
    }

    /// What a look said that was made at `at`.
    fn note_promotion(&self, at: Time, next: Duration) {
        *self.promoted.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Promotion { at, next });
    }

    fn noted(&self) -> MutexGuard<'_, BTreeMap<WorkerName, Noted>> {
        // One map, always whole.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    fn is_fresh(&self, now: Time) -> bool {
        self.at <= now && now.since(self.at) < NOTED_EVERY
    }
}

/// What a worker elsewhere hears when it beats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beaten {
    /// Which jobs are no longer its own.
    pub lost: Vec<JobId>,
    /// What it is asked for.
    pub asked: Option<Asked>,
}

/// What can be done on behalf of workers elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    backstop: &'a Backstop,
    config: &'a Config,
    attendance: &'a Attendance,
}

impl Backstop {
    /// What can be done on behalf of workers elsewhere, by what `config` says about queues.
    pub const fn remote<'a>(
        &'a self,
        config: &'a Config,
        attendance: &'a Attendance,
    ) -> Remote<'a> {
        Remote {
            backstop: self,
            config,
            attendance,
        }
    }
}

impl Remote<'_> {
    /// Keeps leases alive, and notes their worker, which tells `about` of itself, as alive.
    pub async fn beat(
        &self,
        worker: &WorkerName,
        about: &About,
        held: Vec<(JobId, Option<Ticket>)>,
        term: Option<Span>,
    ) -> Answer<Beaten> {
        let terms = || {
            held.iter()
                .filter_map(|(_, ticket)| ticket.as_ref())
                .map(|ticket| ticket.term)
        };
        let term = term
            .or_else(|| terms().max())
            .unwrap_or_else(|| QueueSettings::default().lease);
        let term = term.clamp(LEASE_MIN, LEASE_MAX);
        let beside = beside(terms().min().map_or(term, |shortest| term.min(shortest)));
        // Leases come first: nothing of what is told beside holds them up for long, or fails with
        // them.
        let (asked, lost) = if self.may_be_another(worker, about) {
            (
                self.asked_beside(worker, about, beside).await,
                self.extend(worker, held, term, beside).await,
            )
        } else {
            tokio::join!(
                self.asked_beside(worker, about, beside),
                self.extend(worker, held, term, beside)
            )
        };
        self.put_down(worker, about, beside).await;
        Ok(Beaten { lost: lost?, asked })
    }

    /// Keeps leases alive; answers which of the jobs are no longer the worker's own.
    async fn extend(
        &self,
        worker: &WorkerName,
        held: Vec<(JobId, Option<Ticket>)>,
        term: Span,
        beside: Duration,
    ) -> Answer<Vec<JobId>> {
        let mut lost: Vec<JobId> = held
            .iter()
            .filter(|(_, ticket)| ticket.is_none())
            .map(|(job, _)| *job)
            .collect();
        let held: Vec<(JobId, Ticket)> = held
            .into_iter()
            .filter_map(|(job, ticket)| Some((job, ticket?)))
            .collect();
        // It still serves what it asks for, also where it holds nothing of that.
        let asked = self.asks_for(worker, beside).await;
        let queues: BTreeSet<QueueName> = held
            .iter()
            .map(|(_, held)| held.queue.clone())
            .chain(asked)
            .collect();
        let now = self.backstop.now();
        let beat = Beat {
            worker: worker.clone(),
            queues: queues.into_iter().collect(),
            leases: held
                .into_iter()
                .map(|(job, ticket)| ticket.lease(job))
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
    async fn asks_for(&self, worker: &WorkerName, beside: Duration) -> Vec<QueueName> {
        let now = self.backstop.now();
        if let Some(queues) = self.attendance.queues_of(worker, now) {
            return queues;
        }
        let look = tokio::time::timeout(beside, self.backstop.store().workers(LISTED, now)).await;
        let (queues, believed) = match look {
            Ok(Ok(workers)) => match workers.into_iter().find(|one| one.name == *worker) {
                Some(known) => (known.queues, HEARSAY_FOR),
                None => return Vec::new(),
            },
            // Its leases matter more: they do not wait for it with every beat.
            _ => (self.attendance.last_queues_of(worker), LAST_HEARSAY_FOR),
        };
        self.attendance.put(
            worker,
            Noted {
                at: now,
                queues: queues.clone(),
                hearsay: Some(believed),
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
fn beside(term: Span) -> Duration {
    BESIDE_MAX.min(Duration::from(term) / BESIDE_SHARE)
}

#[cfg(test)]
mod tests;
