//! `backstop bench`: what this machine does with a store, beside what a bare loop on the same store could do.

mod figures;
mod fill;
mod held;
mod http;
mod measure;
mod place;
mod raw;
mod report;
mod round;
mod server;
mod streams;
mod tables;

use anyhow::{Context, Result};
use backstop::{Address, Backstop, Durability};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use place::Place;
use report::Report;

/// What to measure.
#[derive(Args, Debug, Clone)]
pub struct BenchArgs {
    /// What to measure.
    #[arg(value_enum, default_value_t = Subject::Jobs)]
    pub subject: Subject,
    /// Jobs pushed and drained in each measurement.
    #[arg(long, default_value_t = 200_000)]
    pub jobs: usize,
    /// Callers that push one job at a time and wait for its durable answer. On PostgreSQL the raw loop has as many connections for
    /// them as backstop's own pool, 8.
    #[arg(long, default_value_t = 64)]
    pub callers: usize,
    /// Handlers that run at once while draining.
    #[arg(long, default_value_t = 256)]
    pub handlers: usize,
    /// Measure again with so many scheduled, done and dead jobs present (a third each); 0 for not at all.
    #[arg(long, visible_alias = "others", default_value_t = 1_000_000)]
    pub present: usize,
    /// Single jobs whose way from push to handler is timed.
    #[arg(long, default_value_t = 300)]
    pub samples: usize,
    /// Do everything so often and show the middle.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub repeat: usize,
    /// On PostgreSQL: ten more rounds with a snapshot held open by an idle transaction.
    #[arg(long)]
    pub held_snapshot: bool,
    /// A few seconds only: shows that it runs, and nothing else.
    #[arg(long, conflicts_with_all = ["jobs", "present", "samples", "repeat", "rows"])]
    pub quick: bool,
    /// Of tables: so many rows, of which 1,000 are due.
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    pub rows: usize,
    /// Of tables: the database, postgres://… or mysql://…, in which a table is made and dropped again [default: a new SQLite file]
    #[arg(long)]
    pub url: Option<String>,
}

/// What to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Subject {
    /// Jobs: push, claim, run, settle
    Jobs,
    /// Ordered streams, beside jobs
    Streams,
    /// The API over a loopback connection, beside the library, on a file of its own
    Http,
    /// Finding what is due in a large table of a user's, without the suggested indexes and with them
    Tables,
}

impl BenchArgs {
    fn sized(&self) -> Self {
        if self.quick {
            Self { jobs: 5_000, present: 3_000, samples: 20, repeat: 1, rows: 100_000, ..self.clone() }
        } else {
            Self { repeat: self.repeat.max(1), ..self.clone() }
        }
    }
}

/// Measures what was asked for: the store at `named`, or one in a new file beside the current folder's files if there is none.
pub async fn run(
    args: &BenchArgs,
    named: Option<&Address>,
    durability: Durability,
    json: bool,
) -> Result<String> {
    let args = args.sized();
    let bar = spinner();
    let report = match args.subject {
        Subject::Tables => {
            let figures = tables::measure(&args, &bar).await;
            figures.and_then(|figures| if json { figures.json() } else { Ok(figures.text()) })
        }
        Subject::Http => {
            let figures = http::measure(&args, &bar).await;
            figures.and_then(|figures| if json { figures.json() } else { Ok(figures.text()) })
        }
        Subject::Jobs | Subject::Streams => measure_store(&args, named, durability, json, &bar).await,
    };
    bar.finish_and_clear();
    report
}

async fn measure_store(
    args: &BenchArgs,
    named: Option<&Address>,
    durability: Durability,
    json: bool,
    bar: &ProgressBar,
) -> Result<String> {
    let place = Place::choose(named)?;
    let backstop = Backstop::open_with(place.measured().as_written(), durability).await?;
    let measured = if args.subject == Subject::Streams {
        let store = place.kind().word();
        let figures = streams::measure(&backstop, args, bar).await;
        figures.and_then(|figures| if json { figures.json(store) } else { Ok(figures.text(store)) })
    } else {
        let report = measure_all(&place, &backstop, durability, args, bar).await;
        report.and_then(|report| if json { report.json() } else { Ok(report.text()) })
    };
    bar.set_message("cleaning up");
    let cleaned = place.clean_up(&backstop).await;
    let report = measured?;
    cleaned?;
    Ok(report)
}

async fn measure_all<'a>(
    place: &Place,
    backstop: &Backstop,
    durability: Durability,
    args: &'a BenchArgs,
    bar: &ProgressBar,
) -> Result<Report<'a>> {
    let promise = backstop.store().examine().await?.promise;
    bar.set_message("raw limit of the store, without backstop");
    let raw = raw::measure(place, durability, args).await.context("the raw limit could not be measured")?;
    let mut rounds = vec![round::measure(place, backstop, args, 0, bar).await?];
    let held = if args.held_snapshot {
        Some(held::measure(backstop, place.named(), args, bar).await?)
    } else {
        None
    };
    if args.present > 0 {
        bar.set_message(format!("filling in {} other jobs", args.present));
        fill::fill(backstop, args.present, bar).await?;
        rounds.push(round::measure(place, backstop, args, args.present, bar).await?);
    }
    Ok(Report { kind: place.kind(), durability, promise, args, raw, rounds, held })
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}
