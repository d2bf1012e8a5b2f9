//! `backstop demo`: three queues, failures, retries and deaths, on a store that stays to be looked at.

mod show;
mod workload;

use crate::context::Context;
use crate::trouble::{Trouble, Verdict};
use backstop::{Address, Backstop};
use backstop_core::port::{Answer, QueueStatus};
use clap::Args;
use std::time::{Duration, Instant};
use workload::QUEUES;

/// No demo takes longer; what is left then stays in the store.
const ENOUGH: Duration = Duration::from_secs(14);

/// How much of it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop demo
  backstop demo --store sqlite:demo.db      keep it in a file of your choice
  backstop demo --jobs 500

Pushes jobs to three queues and works them off: some fail and are tried again, some die, some are due later.
Without --store a new file in the temporary folder is used; it stays, and the summary says what to try on it.")]
pub(crate) struct DemoArgs {
    /// Jobs in all
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(30..=100_000))]
    jobs: u64,
}

/// Plays the demo.
pub(crate) async fn run(args: &DemoArgs, context: &Context) -> Result<Verdict, Trouble> {
    let address = context.named_store.clone().map_or_else(new_store, Ok)?;
    let backstop = context.open_at(&address).await?;
    refuse_used(&backstop, &address).await?;
    show::open(&address, context);
    let started = Instant::now();
    let pushed = workload::push(&backstop, args.jobs).await?;
    show::pushed(pushed, started.elapsed(), context);
    let mut running = workload::start(&backstop)?;
    let bars = show::Bars::new(args.jobs, context);
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
    show::summary(&backstop, &address, running.progress(), started.elapsed(), context).await?;
    Ok(Verdict::Fine)
}

/// The demo's queues, and nobody else's.
async fn queues(backstop: &Backstop) -> Answer<Vec<QueueStatus>> {
    let mut queues = backstop.store().queues(backstop.now()).await?;
    queues.retain(|queue| QUEUES.iter().any(|ours| ours.name == queue.name.as_str()));
    Ok(queues)
}

/// A file that outlives the demo.
fn new_store() -> Result<Address, Trouble> {
    let folder = tempfile::Builder::new().prefix("backstop-demo-").tempdir()?.keep();
    Ok(Address::new(format!("sqlite:{}", folder.join("backstop.db").display())))
}

/// The demo's handlers must not run anybody's real jobs.
async fn refuse_used(backstop: &Backstop, address: &Address) -> Result<(), Trouble> {
    match queues(backstop).await?.iter().find(|queue| queue.counts.live() > 0) {
        None => Ok(()),
        Some(queue) => {
            let cause = format!("{address} has live jobs in {}; the demo would run them", queue.name);
            Err(Trouble::misuse(cause).advise("backstop demo, without --store"))
        }
    }
}
