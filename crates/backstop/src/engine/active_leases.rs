//! The leases a worker holds, from the claim that gave them until their end is settled.
//!
//! A claim is certain queue by queue: of a store in parts one may have heard a beat that another
//! did not.
//!
//! How long a lease is certain is kept on this process's own monotonic clock: a stepping wall clock
//! must neither end a run nor keep one going.

use super::suspects::LocalSuspectGuard;
use backstop_core::lease::LeaseNumber;
use backstop_core::{JobId, Lease, LeasedRun, QueueName, Span};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The leases of one worker.
#[derive(Default)]
pub(crate) struct ActiveLeases {
    claims: Mutex<BTreeMap<ClaimKey, ActiveClaim>>,
    /// Leases that were lost while their runs were alive, until those have ended.
    outlived: Mutex<BTreeMap<Lease, OutlivedLease>>,
}

/// A lease that its run outlives.
struct OutlivedLease {
    /// Until when it was certain to be ours.
    until: Instant,
    noticed: Instant,
}

/// One claim, in one queue.
type ClaimKey = (LeaseNumber, QueueName);

/// What is left of it.
struct ActiveClaim {
    /// How far each beat extends it.
    term: Span,
    /// Until when it is certain to be ours.
    until: Instant,
    jobs: BTreeMap<JobId, ActiveJob>,
}

struct ActiveJob {
    cancel: CancellationToken,
    stage: RunStage,
    /// A suspect's place, for as long as the lease is held.
    suspect_guard: Option<Arc<LocalSuspectGuard>>,
}

/// How far a job has come here.
enum RunStage {
    /// Waits for a free handler.
    Waits,
    /// Runs, and should have ended by then, if there is a time limit.
    Runs(Option<Instant>),
    /// Has ended; the store is being told since then. A beat that overtakes that message may hear
    /// that the lease is gone.
    Settles(Instant),
}

impl ActiveLeases {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClaimKey, ActiveClaim>> {
        // Every critical section below leaves the map whole, so a panic in one cannot have torn it.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outlived(&self) -> MutexGuard<'_, BTreeMap<Lease, OutlivedLease>> {
        self.outlived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry<T>(&self, lease: &Lease, look: impl FnOnce(&mut ActiveJob) -> T) -> Option<T> {
        self.lock()
            .get_mut(&claim_key(lease))?
            .jobs
            .get_mut(&lease.job)
            .map(look)
    }

    /// Takes in what a claim was granted; it was asked for at `asked`. Some of its queues may have
    /// answered before.
    pub(crate) fn insert(
        &self,
        number: LeaseNumber,
        term: Span,
        sent_at: Instant,
        runs: &[LeasedRun],
    ) {
        let mut held = self.lock();
        for run in runs {
            let claimed = held.entry((number, run.lease.queue.clone()));
            let claimed = claimed.or_insert_with(|| ActiveClaim {
                term,
                until: sent_at + term.into(),
                jobs: BTreeMap::new(),
            });
            let entry = ActiveJob {
                cancel: CancellationToken::new(),
                stage: RunStage::Waits,
                suspect_guard: None,
            };
            claimed.jobs.insert(run.lease.job, entry);
        }
    }

    /// Whether anything is held under this number, in whichever queue.
    pub(crate) fn holds_any(&self, number: LeaseNumber) -> bool {
        self.lock().keys().any(|(held, _)| *held == number)
    }

    /// Notes that the run under this lease begins, and should have ended by `limit`; answers what
    /// calls it off, or `None` if the lease is no longer ours.
    pub(crate) fn start_run(
        &self,
        lease: &Lease,
        limit: Option<Instant>,
    ) -> Option<CancellationToken> {
        self.entry(lease, |entry| {
            entry.stage = RunStage::Runs(limit);
            entry.cancel.clone()
        })
    }

    /// Notes that a suspect runs under this lease: its place is taken until the lease is let go.
    pub(crate) fn hold_suspect_slot(&self, lease: &Lease, suspect_guard: Arc<LocalSuspectGuard>) {
        self.entry(lease, |entry| entry.suspect_guard = Some(suspect_guard));
    }

    /// Notes that the run under this lease has ended; answers when the loss of the lease was
    /// noticed, if somebody else may have had the job before that end.
    pub(crate) fn note_run_end(&self, lease: &Lease) -> Option<Instant> {
        let now = Instant::now();
        let outlived = self.outlived().remove(lease);
        let held_until = || {
            self.lock()
                .get(&claim_key(lease))
                .map(|claimed| claimed.until)
        };
        let (until, noticed) = match outlived {
            Some(OutlivedLease { until, noticed }) => (until, noticed),
            None => (held_until()?, now),
        };
        (now > until).then_some(noticed)
    }

    /// Notes that the store is being told how these runs ended.
    pub(crate) fn note_settling<'a>(&self, leases: impl IntoIterator<Item = &'a Lease>) {
        for lease in leases {
            self.entry(lease, |entry| {
                if !matches!(entry.stage, RunStage::Settles(_)) {
                    entry.stage = RunStage::Settles(Instant::now());
                }
            });
        }
    }

    /// Frees the places of suspects whose ends the store has not heard of for a whole lease: in
    /// their queues it does not answer, and those of others are not to wait for that. A process
    /// that dies meanwhile leaves two that had begun, at the price of one strike.
    pub(crate) fn free_suspect_slots(&self, now: Instant) {
        let mut freed = Vec::new();
        for claimed in self.lock().values_mut() {
            let term = claimed.term.into();
            let is_over = |stage: &RunStage| matches!(stage, RunStage::Settles(since) if *since + term <= now);
            let over = claimed
                .jobs
                .values_mut()
                .filter(|entry| is_over(&entry.stage));
            freed.extend(over.filter_map(|entry| entry.suspect_guard.take()));
        }
        // Whoever waits for a place looks in here: it is let go when nobody holds this.
        drop(freed);
    }

    /// Forgets a lease; whether it was held.
    pub(crate) fn remove(&self, lease: &Lease) -> bool {
        let (mut held, claim) = (self.lock(), claim_key(lease));
        let Some(claimed) = held.get_mut(&claim) else {
            return false;
        };
        let removed = claimed.jobs.remove(&lease.job);
        if claimed.jobs.is_empty() {
            held.remove(&claim);
        }
        removed.is_some()
    }

    /// Of these leases, forgets those that wait or run here and calls their runs off; answers which
    /// they were.
    pub(crate) fn drop_lost(&self, leases: Vec<Lease>) -> Vec<Lease> {
        let is_settling =
            |lease: &Lease| self.entry(lease, |entry| matches!(entry.stage, RunStage::Settles(_)));
        let lost: Vec<Lease> = leases
            .into_iter()
            .filter(|lease| is_settling(lease) == Some(false))
            .collect();
        for lease in &lost {
            self.note_outlived(lease);
            if let Some(cancel) = self.entry(lease, |entry| entry.cancel.clone()) {
                self.remove(lease);
                cancel.cancel();
            }
        }
        lost
    }

    /// Remembers a lease that is about to be lost, if something runs under it.
    fn note_outlived(&self, lease: &Lease) {
        let until = self
            .lock()
            .get(&claim_key(lease))
            .map(|claimed| claimed.until);
        let runs =
            self.entry(lease, |entry| matches!(entry.stage, RunStage::Runs(_))) == Some(true);
        if let Some(until) = until.filter(|_| runs) {
            self.outlived().insert(
                lease.clone(),
                OutlivedLease {
                    until,
                    noticed: Instant::now(),
                },
            );
        }
    }

    /// Calls off every run, but keeps beating for it: its end is still to be settled.
    pub(crate) fn cancel_all(&self) {
        let of = |claimed: &ActiveClaim| {
            claimed
                .jobs
                .values()
                .map(|entry| entry.cancel.clone())
                .collect::<Vec<_>>()
        };
        let tokens: Vec<_> = self.lock().values().flat_map(of).collect();
        for token in tokens {
            token.cancel();
        }
    }

    /// All leases to be kept alive, by how far a beat extends them.
    pub(crate) fn by_term(&self) -> BTreeMap<Span, Vec<Lease>> {
        let mut by_term: BTreeMap<Span, Vec<Lease>> = BTreeMap::new();
        for (claim, claimed) in self.lock().iter() {
            by_term
                .entry(claimed.term)
                .or_default()
                .extend(claimed.leases(claim, |_| true));
        }
        by_term
    }

    /// The claims of these leases were extended by a beat sent at `sent`, in their queues.
    pub(crate) fn note_extended<'a>(
        &self,
        leases: impl IntoIterator<Item = &'a Lease>,
        sent: Instant,
    ) {
        let mut held = self.lock();
        for lease in leases {
            if let Some(claimed) = held.get_mut(&claim_key(lease)) {
                claimed.until = claimed.until.max(sent + claimed.term.into());
            }
        }
    }

    /// Leases that may be somebody else's before the next beat gets through: within a fifth of
    /// their term, and at least a second where the term has one to spare.
    pub(crate) fn expiring(&self, now: Instant) -> Vec<Lease> {
        let held = self.lock();
        let expiring = held
            .iter()
            .filter(|(_, claimed)| now + margin(claimed.term).into() >= claimed.until);
        expiring
            .flat_map(|(claim, claimed)| claimed.leases(claim, |_| true))
            .collect()
    }

    /// Leases of runs that went on past their time limit although they were told to stop: they
    /// block their thread.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<Lease> {
        let is_over =
            |entry: &ActiveJob| matches!(entry.stage, RunStage::Runs(Some(limit)) if limit < now);
        self.lock()
            .iter()
            .flat_map(|(claim, claimed)| claimed.leases(claim, is_over))
            .collect()
    }

    /// How many runs there are.
    pub(crate) fn running(&self) -> usize {
        let of = |claimed: &ActiveClaim| {
            claimed
                .jobs
                .values()
                .filter(|entry| matches!(entry.stage, RunStage::Runs(_)))
                .count()
        };
        self.lock().values().map(of).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl ActiveClaim {
    fn leases(&self, (number, queue): &ClaimKey, which: impl Fn(&ActiveJob) -> bool) -> Vec<Lease> {
        let chosen = self.jobs.iter().filter(|(_, entry)| which(entry));
        chosen
            .map(|(job, _)| Lease {
                queue: queue.clone(),
                job: *job,
                number: *number,
            })
            .collect()
    }
}

fn claim_key(lease: &Lease) -> ClaimKey {
    (lease.number, lease.queue.clone())
}

/// How much of a lease's end is not counted on.
pub(crate) fn margin(term: Span) -> Span {
    term.scaled(0.2).max(Span::secs(1).min(term.scaled(0.5)))
}
