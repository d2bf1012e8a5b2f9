//! `backstop bench`: what this machine does with a store, beside what the bare engine under it could do.

mod fill;
mod measure;
mod raw;
mod report;

use anyhow::{Context, Result};
use backstop::core::amend::{Action, Filter, Selection};
use backstop::core::limits::AMEND_MAX;
use backstop::core::port::Amendment;
use backstop::{Backstop, Durability, QueueName};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Latency, Rate};
use report::Report;
use serde::Serialize;
use tempfile::TempDir;

/// What to measure.
#[derive(Args, Debug, Clone)]
pub struct BenchArgs {
    /// Jobs pushed and drained in each measurement.
    #[arg(long, default_value_t = 200_000)]
    pub jobs: usize,
    /// Callers that push one job at a time and wait for its durable answer.
    #[arg(long, default_value_t = 64)]
    pub callers: usize,
    /// Handlers that run at once while draining.
    #[arg(long, default_value_t = 256)]
    pub handlers: usize,
    /// Measure again with so many scheduled, done and dead jobs present (a third each); 0 for not at all.
    #[arg(long, default_value_t = 1_000_000)]
    pub present: usize,
    /// Single jobs whose way from push to handler is timed.
    #[arg(long, default_value_t = 300)]
    pub samples: usize,
    /// A few seconds only: shows that it runs, and nothing else.
    #[arg(long, conflicts_with_all = ["jobs", "present", "samples"])]
    pub quick: bool,
}

impl BenchArgs {
    fn sized(&self) -> Self {
        if self.quick {
            Self { jobs: 5_000, present: 3_000, samples: 20, ..self.clone() }
        } else {
            self.clone()
        }
    }
}

/// One round of measurements.
#[derive(Debug, Clone, Copy, Serialize)]
struct Round {
    /// Jobs of other states that were present.
    present: usize,
    enqueue_single: Rate,
    enqueue_callers: Rate,
    enqueue_bulk: Rate,
    drain: Rate,
    pickup: Latency,
}

/// Measures the store at `url`, or one in a new file beside the current folder's files if there is none.
pub async fn run(args: &BenchArgs, url: Option<&str>, durability: Durability, json: bool) -> Result<String> {
    let args = args.sized();
    let folder = tempfile::tempdir_in(".").context("a folder for the measurements could not be made here")?;
    let own = format!("sqlite:{}", folder.path().join("bench.db").display());
    let url = url.unwrap_or(&own);
    let bar = spinner();
    let raw = raw_limit(&args, url, durability, &folder, &bar).await?;
    let backstop = Backstop::open_with(url, durability).await?;
    let mut rounds = vec![round(&backstop, &args, 0, &bar).await?];
    if args.present > 0 {
        bar.set_message(format!("filling in {} other jobs", args.present));
        fill::fill(&backstop, args.present, &bar).await?;
        rounds.push(round(&backstop, &args, args.present, &bar).await?);
    }
    if url != own {
        bar.set_message("cleaning up");
        clear(&backstop).await?;
    }
    bar.finish_and_clear();
    let report = Report { store: url, durability, args: &args, raw, rounds: &rounds };
    Ok(if json { report.json()? } else { report.text() })
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}

/// The raw limit, for stores that are a file here.
async fn raw_limit(
    args: &BenchArgs,
    url: &str,
    durability: Durability,
    folder: &TempDir,
    bar: &ProgressBar,
) -> Result<Option<raw::Raw>> {
    if !url.starts_with("sqlite:") {
        return Ok(None);
    }
    bar.set_message("raw limit of SQLite on this disk");
    let path = folder.path().join("raw.db");
    let measured = raw::measure(path, durability, args).await;
    measured.map(Some).context("the raw limit could not be measured")
}

async fn round(backstop: &Backstop, args: &BenchArgs, present: usize, bar: &ProgressBar) -> Result<Round> {
    // What was written before is not to be on its way to the disk while this round waits for its own.
    tokio::task::spawn_blocking(rustix::fs::sync).await?;
    let beside = if present > 0 { format!(", {present} other jobs present") } else { String::new() };
    let say = |what: &str| bar.set_message(format!("{what}{beside}"));
    say("pickup of single jobs");
    let pickup = measure::pickup(backstop, args.samples).await?;
    say("pushing, one caller");
    let single = (args.jobs / 100).max(100);
    let enqueue_single = measure::callers(backstop, single, 1).await?;
    say("pushing, many callers");
    let grouped = (args.jobs / 4).max(args.callers);
    let enqueue_callers = measure::callers(backstop, grouped, args.callers).await?;
    measure::drain(backstop, enqueue_single.count + enqueue_callers.count, args.handlers).await?;
    say("pushing in batches");
    let enqueue_bulk = measure::bulk(backstop, args.jobs).await?;
    say("draining");
    let drain = measure::drain(backstop, enqueue_bulk.count, args.handlers).await?;
    Ok(Round { present, enqueue_single, enqueue_callers, enqueue_bulk, drain, pickup })
}

/// Leaves a store of the user's as it was.
async fn clear(backstop: &Backstop) -> Result<()> {
    let filter = Filter { queue: Some(QueueName::new(measure::QUEUE)?), ..Filter::default() };
    let (selection, action) = (Selection::Matching(filter), Action::Delete);
    let mut amendment = Amendment { selection, action, cursor: None, max: AMEND_MAX };
    loop {
        amendment.cursor = backstop.store().amend(amendment.clone(), backstop.now()).await?.next;
        if amendment.cursor.is_none() {
            return Ok(());
        }
    }
}
