//! Taking back jobs that were handed out and reached nobody: not charged, and ready at once.

use super::admission::HttpBreakerReports;
use super::{HttpWorkers, LeasedJob};
use crate::client::Backstop;
use backstop_core::breaker::{CallOutcome, CallReport};
use backstop_core::limits::SETTLE_MAX;
use backstop_core::port::{SettleOutcome, StoreError, StoreResult};
use backstop_core::verdict::Settlement;
use backstop_core::{JobId, Lease, LeaseNumber, Outcome, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often a store that does not answer is asked to take leases back, before they are left to run
/// out.
const TRIES_MAX: u32 = 5;
/// The pause after the first try; each further one is twice as long.
const TRY_AGAIN: Duration = Duration::from_millis(100);

impl HttpWorkers<'_> {
    /// Takes back what no worker ever saw, as if it had not been handed out: nobody is charged, and
    /// leave and probes are free again. Where the store does not answer, the leases run out by
    /// themselves.
    pub async fn release_undelivered(&self, mut leased: Vec<LeasedJob>) {
        let leases: Vec<Lease> = leased.iter().map(|one| one.run.lease.clone()).collect();
        if let Err(ReleaseError { leases, error }) = release(self.backstop, &leases).await {
            tracing::warn!(%error, count = leases.len(), "jobs that reached nobody could not be taken back; their leases run out");
            let failed: BTreeSet<(JobId, LeaseNumber)> =
                leases.iter().map(|it| (it.job, it.number)).collect();
            leased.retain(|one| !failed.contains(&(one.run.lease.job, one.run.lease.number)));
        }
        let (mut news, mut unused) = (
            HttpBreakerReports::default(),
            BTreeMap::<QueueName, u32>::new(),
        );
        for LeasedJob { run, token } in &leased {
            let queue = &run.lease.queue;
            *unused.entry(queue.clone()).or_default() += 1;
            if self.has_breaker(queue) {
                news.add_breaker_signal(
                    queue,
                    CallReport {
                        epoch: token.data.epoch,
                        outcome: CallOutcome::Neutral,
                    },
                );
            }
            if let Some(epoch) = token.data.probe.checked_sub(1) {
                news.add_probe_signal(
                    queue,
                    &run.kind,
                    CallReport {
                        epoch,
                        outcome: CallOutcome::Neutral,
                    },
                );
            }
        }
        self.send_reports(news).await;
        for (queue, unused) in unused {
            self.return_tokens(&queue, unused).await;
        }
    }

    async fn return_tokens(&self, queue: &QueueName, unused: u32) {
        let Some(limit) = self
            .settings(queue)
            .and_then(|settings| settings.rate_limit)
        else {
            return;
        };
        if let Err(error) = self.backstop.return_tokens(queue, &limit, unused).await {
            tracing::warn!(%error, %queue, "unused leave could not be given back");
        }
    }
}

/// Leases that could not be given back, and why.
pub(super) struct ReleaseError {
    leases: Vec<Lease>,
    pub(super) error: StoreError,
}

/// Makes jobs ready again whose leases were never used. A queue that does not answer keeps no
/// other's from it.
pub(super) async fn release(backstop: &Backstop, leases: &[Lease]) -> Result<(), ReleaseError> {
    let mut failed: Option<ReleaseError> = None;
    for part in leases.chunks(SETTLE_MAX) {
        if let Err(more) = release_part(backstop, part).await {
            match &mut failed {
                Some(failed) => failed.leases.extend(more.leases),
                None => failed = Some(more),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn release_part(backstop: &Backstop, part: &[Lease]) -> Result<(), ReleaseError> {
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
            return Err(ReleaseError {
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
async fn release_once(backstop: &Backstop, leases: &[Lease]) -> StoreResult<Vec<Lease>> {
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
        .filter(|(_, answer)| *answer == SettleOutcome::Unanswered);
    Ok(unanswered.map(|(lease, _)| lease.clone()).collect())
}
