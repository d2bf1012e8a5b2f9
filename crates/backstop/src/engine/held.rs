//! The leases a worker holds, from the claim that gave them until their end is settled.

use backstop_core::lease::LeaseNumber;
use backstop_core::{JobId, Lease, Leased, QueueName, Span, Time};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// The leases of one worker.
#[derive(Default)]
pub(crate) struct Held(Mutex<BTreeMap<LeaseNumber, Claimed>>);

/// What is left of one claim.
struct Claimed {
    /// How far each beat extends it.
    term: Span,
    /// Until when it is certain to be ours.
    until: Time,
    jobs: BTreeMap<JobId, Entry>,
}

struct Entry {
    queue: QueueName,
    cancel: CancellationToken,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseNumber, Claimed>> {
        // Every critical section below leaves the map whole, so a panic in one cannot have torn it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, number: LeaseNumber, term: Span, until: Time, runs: &[Leased]) {
        if runs.is_empty() {
            return;
        }
        let entry = |run: &Leased| Entry { queue: run.lease.queue.clone(), cancel: CancellationToken::new() };
        let jobs = runs.iter().map(|run| (run.lease.job, entry(run))).collect();
        self.lock().insert(number, Claimed { term, until, jobs });
    }

    /// What calls off the run under this lease; `None` once it is no longer ours.
    pub(crate) fn cancel_token(&self, lease: &Lease) -> Option<CancellationToken> {
        let held = self.lock();
        held.get(&lease.number)?.jobs.get(&lease.job).map(|entry| entry.cancel.clone())
    }

    pub(crate) fn holds(&self, lease: &Lease) -> bool {
        self.lock().get(&lease.number).is_some_and(|claimed| claimed.jobs.contains_key(&lease.job))
    }

    pub(crate) fn remove<'a>(&self, leases: impl IntoIterator<Item = &'a Lease>) {
        let mut held = self.lock();
        for lease in leases {
            if let Some(claimed) = held.get_mut(&lease.number) {
                claimed.jobs.remove(&lease.job);
                if claimed.jobs.is_empty() {
                    held.remove(&lease.number);
                }
            }
        }
    }

    /// Calls off the runs under these leases and forgets them.
    pub(crate) fn lose(&self, leases: &[Lease]) {
        let tokens: Vec<_> = leases.iter().filter_map(|lease| self.cancel_token(lease)).collect();
        self.remove(leases);
        for token in tokens {
            token.cancel();
        }
    }

    /// Calls off every run, but keeps beating for it: its end is still to be settled.
    pub(crate) fn cancel_all(&self) {
        let tokens: Vec<_> = self
            .lock()
            .values()
            .flat_map(|claimed| claimed.jobs.values().map(|entry| entry.cancel.clone()))
            .collect();
        for token in tokens {
            token.cancel();
        }
    }

    /// All leases, by how far a beat extends them.
    pub(crate) fn by_term(&self) -> BTreeMap<Span, Vec<Lease>> {
        let mut by_term: BTreeMap<Span, Vec<Lease>> = BTreeMap::new();
        for (number, claimed) in self.lock().iter() {
            let lease = |(job, entry): (&JobId, &Entry)| Lease {
                queue: entry.queue.clone(),
                job: *job,
                number: *number,
            };
            by_term.entry(claimed.term).or_default().extend(claimed.jobs.iter().map(lease));
        }
        by_term
    }

    /// The claims of this term are certain until then.
    pub(crate) fn extended(&self, term: Span, until: Time) {
        for claimed in self.lock().values_mut().filter(|claimed| claimed.term == term) {
            claimed.until = claimed.until.max(until);
        }
    }

    /// Leases that may be somebody else's before the next beat gets through: within a fifth of their term, and at
    /// least a second where the term has one to spare.
    pub(crate) fn uncertain(&self, now: Time) -> Vec<Lease> {
        let held = self.lock();
        let uncertain = held.iter().filter(|(_, claimed)| now.after(margin(claimed.term)) >= claimed.until);
        uncertain
            .flat_map(|(number, claimed)| {
                let lease = |(job, entry): (&JobId, &Entry)| Lease {
                    queue: entry.queue.clone(),
                    job: *job,
                    number: *number,
                };
                claimed.jobs.iter().map(lease).collect::<Vec<_>>()
            })
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

fn margin(term: Span) -> Span {
    term.scaled(0.2).max(Span::secs(1).min(term.scaled(0.5)))
}
