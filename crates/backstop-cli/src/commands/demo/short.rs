//! The short form: a backlog in, a backlog out, and a summary.

use super::workload::QUEUES;
use super::{new_folder, show, store_in, workload};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::{Backstop, QueueName, StoreAddress};
use backstop_core::port::{QueueStatus, StoreResult};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// No demo takes longer; what is left then stays in the store.
const ENOUGH: Duration = Duration::from_secs(14);

pub(super) async fn run(jobs: u64, context: &CliContext) -> Result<ExitStatus, CliError> {
    let address = match &context.named_store {
        Some(named) => named.clone(),
        None => store_in(&new_folder()?),
    };
    let backstop = context.open_at(&address).await?;
    refuse_used(&backstop, &address, &workload::names()?).await?;
    show::open(&address, context);
    let started = Instant::now();
    let pushed = workload::push(&backstop, jobs).await?;
    show::pushed(pushed, started.elapsed(), context);
    let mut running = workload::start(&backstop)?;
    let bars = show::DemoBars::new(jobs, context);
    while started.elapsed() < ENOUGH {
        let queues = queues(&backstop).await?;
        bars.show(&queues);
        if queues.iter().all(|queue| queue.counts.live() == 0) {
            break;
        }
        tokio::time::sleep(show::LOOK).await;
    }
    running.stop();
    running.ended().await;
    bars.finish();
    show::summary(
        &backstop,
        &address,
        running.progress(),
        started.elapsed(),
        context,
    )
    .await?;
    Ok(ExitStatus::Success)
}

/// The demo's queues, and nobody else's.
pub(super) async fn queues(backstop: &Backstop) -> StoreResult<Vec<QueueStatus>> {
    let mut queues = backstop.store().queues(backstop.now()).await?;
    queues.retain(|queue| QUEUES.iter().any(|ours| ours.name == queue.name.as_str()));
    Ok(queues)
}

/// The demo's handlers must not run anybody's real jobs.
pub(super) async fn refuse_used(
    backstop: &Backstop,
    address: &StoreAddress,
    served: impl IntoIterator<Item = &QueueName>,
) -> Result<(), CliError> {
    let queues = backstop.store().queues(backstop.now()).await?;
    let served: BTreeSet<&QueueName> = served.into_iter().collect();
    match queues
        .iter()
        .find(|queue| served.contains(&queue.name) && queue.counts.live() > 0)
    {
        None => Ok(()),
        Some(queue) => {
            let cause = format!(
                "{address} has live jobs in {}; the demo would run them",
                queue.name
            );
            Err(CliError::misuse(cause).advise("backstop demo, without --store"))
        }
    }
}
