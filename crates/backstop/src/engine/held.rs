//! The leases a worker holds, from the claim that gave them until their end is settled.
//!
//! How long a lease is certain is kept on this process's own monotonic clock: a stepping wall clock must neither end
//! a run nor keep one going.

use super::suspects::Alone;
use backstop_core::lease::LeaseNumber;
use backstop_core::{JobId, Lease, Leased, QueueName, Span};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The leases of one worker.
#[derive(Default)]
pub(crate) struct Held {
    claims: Mutex<BTreeMap<LeaseNumber, Claimed>>,
    /// Leases that were lost while their runs were alive, until those have ended.
    outlived: Mutex<BTreeMap<Lease, Outlived>>,
}

/// A lease that its run outlives.
struct Outlived {
    /// Until when it was certain to be ours.
    until: Instant,
    noticed: Instant,
}

/// What is left of one claim.
struct Claimed {
    /// How far each beat extends it.
    term: Span,
    /// Until when it is certain to be ours.
    until: Instant,
    jobs: BTreeMap<JobId, Entry>,
}

struct Entry {
    queue: QueueName,
    cancel: CancellationToken,
    stage: Stage,
    /// A suspect's place, for as long as the lease is held.
    alone: Option<Arc<Alone>>,
}

/// How far a job has come here.
enum Stage {
    /// Waits for a free handler.
    Waits,
    /// Runs, and should have ended by then, if there is a time limit.
    Runs(Option<Instant>),
    /// Has ended; the store is being told. A beat that overtakes that message may hear that the lease is gone.
    Settles,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseNumber, Claimed>> {
        // Every critical section below leaves the map whole, so a panic in one cannot have torn it.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outlived(&self) -> MutexGuard<'_, BTreeMap<Lease, Outlived>> {
        self.outlived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry<T>(&self, lease: &Lease, look: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.lock().get_mut(&lease.number)?.jobs.get_mut(&lease.job).map(look)
    }

    /// Takes in what a claim was granted; it was asked for at `asked`.
    pub(crate) fn insert(&self, number: LeaseNumber, term: Span, asked: Instant, runs: &[Leased]) {
        if runs.is_empty() {
            return;
        }
        let entry = |run: &Leased| Entry {
            queue: run.lease.queue.clone(),
            cancel: CancellationToken::new(),
            stage: Stage::Waits,
            alone: None,
        };
        let jobs = runs.iter().map(|run| (run.lease.job, entry(run))).collect();
        self.lock().insert(number, Claimed { term, until: asked + term.into(), jobs });
    }

    /// Notes that the run under this lease begins, and should have ended by `limit`; answers what calls it off, or
    /// `None` if the lease is no longer ours.
    pub(crate) fn begin(&self, lease: &Lease, limit: Option<Instant>) -> Option<CancellationToken> {
        self.entry(lease, |entry| {
            entry.stage = Stage::Runs(limit);
            entry.cancel.clone()
        })
    }

    /// Notes that a suspect runs under this lease: its place is taken until the lease is let go.
    pub(crate) fn keep_alone(&self, lease: &Lease, alone: Arc<Alone>) {
        self.entry(lease, |entry| entry.alone = Some(alone));
    }

    /// Notes that the run under this lease has ended; answers when the loss of the lease was noticed, if somebody else may have had
    /// the job before that end.
    pub(crate) fn ended(&self, lease: &Lease) -> Option<Instant> {
        let now = Instant::now();
        let outlived = self.outlived().remove(lease);
        let held_until = || self.lock().get(&lease.number).map(|claimed| claimed.until);
        let (until, noticed) = match outlived {
            Some(Outlived { until, noticed }) => (until, noticed),
            None => (held_until()?, now),
        };
        (now > until).then_some(noticed)
    }

    /// Notes that the store is being told how these runs ended.
    pub(crate) fn settling<'a>(&self, leases: impl IntoIterator<Item = &'a Lease>) {
        for lease in leases {
            self.entry(lease, |entry| entry.stage = Stage::Settles);
        }
    }

    pub(crate) fn holds(&self, lease: &Lease) -> bool {
        self.entry(lease, |_| ()).is_some()
    }

    /// Forgets a lease; whether it was held.
    pub(crate) fn remove(&self, lease: &Lease) -> bool {
        let mut held = self.lock();
        let Some(claimed) = held.get_mut(&lease.number) else { return false };
        let removed = claimed.jobs.remove(&lease.job).is_some();
        if claimed.jobs.is_empty() {
            held.remove(&lease.number);
        }
        removed
    }

    /// Of these leases, forgets those that wait or run here and calls their runs off; answers which they were.
    pub(crate) fn lose(&self, leases: Vec<Lease>) -> Vec<Lease> {
        let is_settling = |lease: &Lease| self.entry(lease, |entry| matches!(entry.stage, Stage::Settles));
        let lost: Vec<Lease> = leases.into_iter().filter(|lease| is_settling(lease) == Some(false)).collect();
        for lease in &lost {
            self.outlive(lease);
            if let Some(cancel) = self.entry(lease, |entry| entry.cancel.clone()) {
                self.remove(lease);
                cancel.cancel();
            }
        }
        lost
    }

    /// Remembers a lease that is about to be lost, if something runs under it.
    fn outlive(&self, lease: &Lease) {
        let until = self.lock().get(&lease.number).map(|claimed| claimed.until);
        let runs = self.entry(lease, |entry| matches!(entry.stage, Stage::Runs(_))) == Some(true);
        if let Some(until) = until.filter(|_| runs) {
            self.outlived().insert(lease.clone(), Outlived { until, noticed: Instant::now() });
        }
    }

    /// Calls off every run, but keeps beating for it: its end is still to be settled.
    pub(crate) fn cancel_all(&self) {
        let of =
            |claimed: &Claimed| claimed.jobs.values().map(|entry| entry.cancel.clone()).collect::<Vec<_>>();
        let tokens: Vec<_> = self.lock().values().flat_map(of).collect();
        for token in tokens {
            token.cancel();
        }
    }

    /// All leases to be kept alive, by how far a beat extends them.
    pub(crate) fn by_term(&self) -> BTreeMap<Span, Vec<Lease>> {
        let mut by_term: BTreeMap<Span, Vec<Lease>> = BTreeMap::new();
        for (number, claimed) in self.lock().iter() {
            by_term.entry(claimed.term).or_default().extend(claimed.leases(*number, |_| true));
        }
        by_term
    }

    /// The claims of these leases were extended by a beat sent at `sent`.
    pub(crate) fn extended(&self, leases: &[Lease], sent: Instant) {
        let mut held = self.lock();
        for lease in leases {
            if let Some(claimed) = held.get_mut(&lease.number) {
                claimed.until = claimed.until.max(sent + claimed.term.into());
            }
        }
    }

    /// Leases that may be somebody else's before the next beat gets through: within a fifth of their term, and at
    /// least a second where the term has one to spare.
    pub(crate) fn uncertain(&self, now: Instant) -> Vec<Lease> {
        let held = self.lock();
        let uncertain = held.iter().filter(|(_, claimed)| now + margin(claimed.term).into() >= claimed.until);
        uncertain.flat_map(|(number, claimed)| claimed.leases(*number, |_| true)).collect()
    }

    /// Leases of runs that went on past their time limit although they were told to stop: they block their thread.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<Lease> {
        let is_over = |entry: &Entry| matches!(entry.stage, Stage::Runs(Some(limit)) if limit < now);
        self.lock().iter().flat_map(|(number, claimed)| claimed.leases(*number, is_over)).collect()
    }

    /// How many runs there are.
    pub(crate) fn running(&self) -> usize {
        let of = |claimed: &Claimed| {
            claimed.jobs.values().filter(|entry| matches!(entry.stage, Stage::Runs(_))).count()
        };
        self.lock().values().map(of).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl Claimed {
    fn leases(&self, number: LeaseNumber, which: impl Fn(&Entry) -> bool) -> Vec<Lease> {
        let chosen = self.jobs.iter().filter(|(_, entry)| which(entry));
        chosen.map(|(job, entry)| Lease { queue: entry.queue.clone(), job: *job, number }).collect()
    }
}

fn margin(term: Span) -> Span {
    term.scaled(0.2).max(Span::secs(1).min(term.scaled(0.5)))
}
