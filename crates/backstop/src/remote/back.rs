//! Taking back jobs that were handed out and reached nobody: not charged, and ready at once.

use super::guards::News;
use super::{Handed, Remote};
use crate::client::Backstop;
use backstop_core::breaker::{Sign, Signal};
use backstop_core::limits::SETTLE_MAX;
use backstop_core::port::{Answer, Settled, StoreError};
use backstop_core::verdict::Settlement;
use backstop_core::{JobId, Lease, LeaseNumber, Outcome, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often a store that does not answer is asked to take leases back, before they are left to run
/// out.
const TRIES_MAX: u32 = 5;
/// The pause after the first try; each further one is twice as long.
const TRY_AGAIN: Duration = Duration::from_millis(100);

impl Remote<'_> {
    /// Takes back what no worker ever saw, as if it had not been handed out: nobody is charged, and
    /// leave and probes are free again. Where the store does not answer, the leases run out by
    /// themselves.
    pub async fn take_back(&self, mut handed: Vec<Handed>) {
        let leases: Vec<Lease> = handed.iter().map(|one| one.run.lease.clone()).collect();
        if let Err(Stuck { leases, error }) = release(self.backstop, &leases).await {
            tracing::warn!(%error, count = leases.len(), "jobs that reached nobody could not be taken back; their leases run out");
            let stuck: BTreeSet<(JobId, LeaseNumber)> =
                leases.iter().map(|it| (it.job, it.number)).collect();
            handed.retain(|one| !stuck.contains(&(one.run.lease.job, one.run.lease.number)));
        }
        let (mut news, mut unused) = (News::default(), BTreeMap::<QueueName, u32>::new());
        for Handed { run, ticket } in &handed {
            let queue = &run.lease.queue;
            *unused.entry(queue.clone()).or_default() += 1;
            if self.has_breaker(queue) {
                news.of_breaker(
                    queue,
                    Signal {
                        epoch: ticket.past.epoch,
                        sign: Sign::Neutral,
                    },
                );
            }
            if let Some(epoch) = ticket.past.probe.checked_sub(1) {
                news.of_probe(
                    queue,
                    &run.kind,
                    Signal {
                        epoch,
                        sign: Sign::Neutral,
                    },
                );
            }
        }
        self.tell(news).await;
        for (queue, unused) in unused {
            self.return_leave(&queue, unused).await;
        }
    }

    async fn return_leave(&self, queue: &QueueName, unused: u32) {
        let Some(limit) = self
            .settings(queue)
            .and_then(|settings| settings.rate_limit)
        else {
            return;
        };
        if let Err(error) = self.backstop.return_leave(queue, &limit, unused).await {
            tracing::warn!(%error, %queue, "unused leave could not be given back");
        }
    }
}

/// Leases that could not be given back, and why.
pub(super) struct Stuck {
    leases: Vec<Lease>,
    pub(super) error: StoreError,
}

/// Makes jobs ready again whose leases were never used. A queue that does not answer keeps no
/// other's from it.
pub(super) async fn release(backstop: &Backstop, leases: &[Lease]) -> Result<(), Stuck> {
    let mut stuck: Option<Stuck> = None;
    for part in leases.chunks(SETTLE_MAX) {
        if let Err(more) = release_part(backstop, part).await {
            match &mut stuck {
                Some(stuck) => stuck.leases.extend(more.leases),
                None => stuck = Some(more),
            }
        }
    }
    stuck.map_or(Ok(()), Err)
}

async fn release_part(backstop: &Backstop, part: &[Lease]) -> Result<(), Stuck> {
    let (mut left, mut wait) = (part.to_vec(), TRY_AGAIN);
    for tried in 1.. {
        let error = match release_once(backstop, &left).await {
            Ok(unanswered) if unanswered.is_empty() => break,
            Ok(unanswered) => {
                left = unanswered;
                StoreError::unavailable("giving jobs back", "their queue does not answer")
            }
            Err(error) => error,
        };
        if tried >= TRIES_MAX || !error.is_transient() {
            return Err(Stuck {
                leases: left,
                error,
            });
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
    Ok(())
}

/// Tells which of them were not answered for.
async fn release_once(backstop: &Backstop, leases: &[Lease]) -> Answer<Vec<Lease>> {
    let now = backstop.now();
    let released = |lease: &Lease| Settlement {
        lease: lease.clone(),
        outcome: Outcome::Released { at: now },
    };
    let answers = backstop
        .store()
        .settle(leases.iter().map(released).collect(), now)
        .await?;
    let unanswered = leases
        .iter()
        .zip(answers)
        .filter(|(_, answer)| *answer == Settled::Unanswered);
    Ok(unanswered.map(|(lease, _)| lease.clone()).collect())
}
