//! Rate limits of queues as workers heed them: leave is asked of [`crate::rate_limits`] once for
//! each claimed batch.
//!
//! | the queue | a claim | what is too much |
//! |---|---|---|
//! | is within its limit | takes jobs, then asks leave for them | goes back for `over`, or until there is room again, not charged; the queue is over its limit |
//! | is over its limit | waits until there is room again, then asks leave first and takes no more than it got | stays where it is |
//! | cannot be asked about, because the store does not answer | | goes back for a moment: nothing runs without leave |
//!
//! So the backlog of a queue that is over its limit stays in line: only what was in hand when the
//! limit was met is put off. Leave that was asked for ahead and not used is given back; leave for
//! jobs that are then kept back by a breaker is not.

use super::Engine;
use super::metrics;
use crate::rate_limits::TokenGrant;
use backstop_core::port::{StoreError, StoreResult};
use backstop_core::rate::RateLimit;
use backstop_core::verdict::Settlement;
use backstop_core::{LeasedRun, Outcome, QueueName, Span};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// A queue over its limit is looked at no more often than this: a few jobs with each look, not one.
const LOOK_GAP: Span = Span::millis(50);
/// How long jobs stay away for which no leave could be asked.
const UNKNOWN_WAIT: Span = Span::secs(1);

/// The queues over their limits, and when there is room again, by this process's own clock: one
/// that is set back must not keep a queue shut.
#[derive(Default)]
pub(crate) struct LocalRateLimits(Mutex<BTreeMap<QueueName, Instant>>);

impl LocalRateLimits {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueName, Instant>> {
        // One map, always whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is to be claimed from this queue now.
    pub(crate) fn is_shut(&self, queue: &QueueName) -> bool {
        self.lock()
            .get(queue)
            .is_some_and(|room_at| Instant::now() < *room_at)
    }

    /// Whether leave is to be asked before anything is claimed.
    pub(crate) fn is_over(&self, queue: &QueueName) -> bool {
        self.lock().contains_key(queue)
    }

    /// When one of the queues may be looked at again.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let now = Instant::now();
        self.lock()
            .values()
            .filter(|room_at| **room_at > now)
            .min()
            .copied()
    }

    fn shut(&self, queue: &QueueName, wait: Span) {
        self.lock()
            .insert(queue.clone(), Instant::now() + wait.into());
    }

    fn open(&self, queue: &QueueName) {
        self.lock().remove(queue);
    }
}

impl Engine {
    /// Whether any of the queues has a limit; most workers have none, and their claims pay nothing.
    pub(crate) fn has_rate_limits(&self) -> bool {
        self.queues
            .values()
            .any(|settings| settings.rate_limit.is_some())
    }

    fn limit_of(&self, queue: &QueueName) -> Option<RateLimit> {
        self.queues.get(queue)?.rate_limit
    }

    /// Asks leave for runs of a queue that is over its limit, before they are claimed.
    pub(crate) async fn take_tokens(
        &self,
        queue: &QueueName,
        wanted: u32,
    ) -> StoreResult<TokenGrant> {
        let Some(limit) = self.limit_of(queue) else {
            return Ok(TokenGrant {
                taken: wanted,
                free_in: Span::ZERO,
            });
        };
        let grant = self.backstop.take_tokens(queue, &limit, wanted).await?;
        if grant.taken == wanted {
            self.rate_limits.open(queue);
        } else {
            self.rate_limits.shut(queue, grant.free_in.max(LOOK_GAP));
        }
        Ok(grant)
    }

    /// Gives back leave that was not used: there were fewer jobs.
    pub(crate) async fn return_tokens(&self, queue: &QueueName, unused: u32) {
        let Some(limit) = self.limit_of(queue).filter(|_| unused > 0) else {
            return;
        };
        match self.backstop.return_tokens(queue, &limit, unused).await {
            Ok(()) => self.rate_limits.open(queue),
            // It counts as used: less runs than could, for a while.
            Err(error) => tracing::warn!(%error, %queue, "unused leave could not be given back"),
        }
    }

    /// Of jobs that were claimed without asking first, those that may run, and the rest, to be
    /// given back. `term` is their lease: the answer must come well within it.
    pub(crate) async fn within_rate(
        &self,
        granted: Vec<LeasedRun>,
        term: Span,
    ) -> (Vec<LeasedRun>, Vec<Settlement>) {
        let mut by_queue: BTreeMap<QueueName, Vec<LeasedRun>> = BTreeMap::new();
        let (mut may, mut over) = (Vec::new(), Vec::new());
        for leased in granted {
            if self.limit_of(&leased.lease.queue).is_none() {
                may.push(leased);
            } else {
                by_queue
                    .entry(leased.lease.queue.clone())
                    .or_default()
                    .push(leased);
            }
        }
        for (queue, mut jobs) in by_queue {
            let (taken, wait) = self.tokens_for(&queue, jobs.len(), term).await;
            let late = jobs.split_off(taken.min(jobs.len()));
            may.extend(jobs);
            if !late.is_empty() {
                metrics::count_rate_limited(&queue, late.len());
            }
            let outcome = Outcome::Released {
                at: self.now().after(wait),
            };
            let back = |leased: LeasedRun| Settlement {
                lease: leased.lease,
                outcome: outcome.clone(),
            };
            over.extend(late.into_iter().map(back));
        }
        (may, over)
    }

    /// For how many jobs there is leave, and how long the others go back for.
    async fn tokens_for(&self, queue: &QueueName, jobs: usize, term: Span) -> (usize, Span) {
        let wanted = u32::try_from(jobs).unwrap_or(u32::MAX);
        let back_for = |grant: &TokenGrant| {
            self.limit_of(queue)
                .map_or(UNKNOWN_WAIT, |limit| limit.back_for(grant.free_in))
        };
        let answer =
            tokio::time::timeout(term.scaled(0.3).into(), self.take_tokens(queue, wanted)).await;
        let answer = answer
            .unwrap_or_else(|_| Err(StoreError::unavailable("asking leave", "no answer in time")));
        match answer {
            Ok(grant) => (grant.taken as usize, back_for(&grant)),
            Err(error) => {
                tracing::warn!(%error, %queue, "its rate limit could not be asked; nothing runs without leave");
                self.rate_limits.shut(queue, UNKNOWN_WAIT);
                (0, UNKNOWN_WAIT)
            }
        }
    }
}
