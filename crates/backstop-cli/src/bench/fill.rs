//! Other jobs to be in the way: a third each scheduled, done and dead.

use super::measure::{QUEUE, jobs};
use anyhow::{Result, ensure};
use backstop::core::lease::LeaseNumber;
use backstop::core::limits::CLAIM_JOBS_MAX;
use backstop::core::plan::QueueQuota;
use backstop::core::port::Claim;
use backstop::core::verdict::{DoneRetention, EndReason, Outcome, Settlement};
use backstop::core::{LeasedRun, WorkerName};
use backstop::{Backstop, QueueName, Span};
use indicatif::ProgressBar;

/// In the queue that is measured: that is where they could be in the way.
pub(super) async fn fill(backstop: &Backstop, count: usize, bar: &ProgressBar) -> Result<()> {
    let third = count / 3;
    let far = backstop.now().after(Span::days(365));
    for first in (0..third).step_by(5_000) {
        let mut batch = jobs(backstop, QUEUE, 5_000.min(third - first))?;
        for job in &mut batch {
            job.run_at = Some(far);
        }
        bar.inc(batch.len() as u64);
        backstop.push_jobs(batch).await?;
    }
    end(backstop, third, bar, &|_| {
        Outcome::Done(DoneRetention::Listed)
    })
    .await?;
    let dead = |run: &LeasedRun| Outcome::Dead {
        reason: EndReason::Rejected,
        history: run.history.clone(),
    };
    end(backstop, count - 2 * third, bar, &dead).await
}

/// Pushes, claims and ends jobs in the way given, without a worker.
async fn end(
    backstop: &Backstop,
    count: usize,
    bar: &ProgressBar,
    outcome: &(dyn Fn(&LeasedRun) -> Outcome + Sync),
) -> Result<()> {
    for first in (0..count).step_by(CLAIM_JOBS_MAX) {
        let pushed = CLAIM_JOBS_MAX.min(count - first);
        backstop.push_jobs(jobs(backstop, QUEUE, pushed)?).await?;
        let mut ended = 0;
        while ended < pushed {
            let runs = claim(backstop).await?;
            ensure!(
                !runs.is_empty(),
                "{ended} of {pushed} jobs could be claimed to be ended"
            );
            ended += runs.len();
            bar.inc(runs.len() as u64);
            let settle = |run: &LeasedRun| Settlement {
                lease: run.lease.clone(),
                outcome: outcome(run),
            };
            backstop
                .store()
                .settle(runs.iter().map(settle).collect(), backstop.now())
                .await?;
        }
    }
    Ok(())
}

async fn claim(backstop: &Backstop) -> Result<Vec<LeasedRun>> {
    let now = backstop.now();
    let number = LeaseNumber::draw(rand::random());
    let wants = vec![QueueQuota {
        queue: QueueName::new(QUEUE)?,
        max: CLAIM_JOBS_MAX,
    }];
    let claim = Claim {
        number,
        worker: WorkerName::new("bench"),
        until: now.after(Span::minutes(1)),
        wants,
    };
    Ok(backstop.store().claim(claim, now).await?.runs)
}
