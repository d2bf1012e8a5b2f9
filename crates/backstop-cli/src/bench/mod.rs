//! `backstop bench`: what this machine does with a store, beside what a bare loop on the same store
//! could do.

mod bench_store;
mod figures;
mod fill;
mod held_snapshot;
mod http;
mod measure;
mod pages;
mod raw;
mod report;
mod round;
mod server;
mod streams;
mod tables;

use anyhow::{Context, Result};
use backstop::{Backstop, Durability, Span, StoreAddress};
use bench_store::BenchStore;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use report::StoreBenchReport;
use std::time::Duration;

/// What to measure.
#[derive(Args, Debug, Clone)]
pub struct BenchArgs {
    /// What to measure.
    #[arg(value_enum, default_value_t = BenchSubject::Jobs)]
    pub subject: BenchSubject,
    /// Jobs pushed and drained in each measurement; of pages, jobs that are in the store [default:
    /// 200000, of pages 5000000]
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Of pages: so many dead letters beside the jobs.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub dead: usize,
    /// Callers that push one job at a time and wait for its durable answer. On PostgreSQL the raw
    /// loop has as many connections for them as backstop's own pool, 8.
    #[arg(long, default_value_t = 64)]
    pub callers: usize,
    /// Handlers that run at once while draining.
    #[arg(long, default_value_t = 256)]
    pub handlers: usize,
    /// Measure again with so many scheduled, done and dead jobs present (a third each); 0 for not
    /// at all. Of http: the memory of a server with so many waiting jobs.
    #[arg(long, visible_alias = "others", default_value_t = 1_000_000)]
    pub present: usize,
    /// Single jobs whose way from push to handler is timed.
    #[arg(long, default_value_t = 300)]
    pub samples: usize,
    /// Do everything so often and show the middle.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub repeat: usize,
    /// On PostgreSQL: ten more rounds with a snapshot held open by an idle transaction; exits 1 if
    /// one of them, of batches or of single jobs, is below 0.7 of the first.
    #[arg(long)]
    pub held_snapshot: bool,
    /// The same, with the snapshot held for so long: 10m.
    #[arg(long, value_name = "TIME", conflicts_with = "quick")]
    pub held_for: Option<Span>,
    /// A few seconds only: shows that it runs, and nothing else.
    #[arg(long, conflicts_with_all = ["jobs", "present", "samples", "repeat", "rows", "dead"])]
    pub quick: bool,
    /// Of tables: so many rows, of which 1,000 are due.
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    pub rows: usize,
    /// Of tables: the database, postgres://… or mysql://…, in which a table is made and dropped
    /// again [default: a new SQLite file]
    #[arg(long)]
    pub url: Option<String>,
}

/// What to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum BenchSubject {
    /// Jobs: push, claim, run, settle
    Jobs,
    /// Ordered streams, beside jobs
    Streams,
    /// The API over a loopback connection, beside the library, on a file of its own, and the memory
    /// of a server; exits 1 if that is over 50 MB idle, or over 150 MB with a million waiting jobs
    Http,
    /// Finding what is due in a large table of a user's, without the suggested indexes and with
    /// them
    Tables,
    /// Every page of the dashboard on a large store, in a file, a schema or under keys of its own,
    /// and what somebody who looks costs those who work; exits 1 if a page takes over 200 ms, or
    /// claims slow down by more than 5 %
    Pages,
}

impl BenchSubject {
    /// Whether it is measured in the store that was named; the others make one of their own.
    pub const fn is_about_the_store(self) -> bool {
        matches!(self, Self::Jobs | Self::Streams | Self::Pages)
    }
}

impl BenchArgs {
    /// How many jobs are measured with.
    fn jobs(&self) -> usize {
        self.jobs.unwrap_or(if self.subject == BenchSubject::Pages {
            5_000_000
        } else {
            200_000
        })
    }

    /// How long a snapshot is held; nothing: as long as the work of its rounds takes.
    fn held_for(&self) -> Duration {
        Duration::from_micros(
            self.held_for
                .map_or(0, Span::as_micros)
                .max(0)
                .unsigned_abs(),
        )
    }

    fn sized(&self) -> Self {
        if self.quick {
            let small = Self {
                jobs: Some(5_000),
                dead: 500,
                present: 3_000,
                samples: 20,
                rows: 100_000,
                ..self.clone()
            };
            Self { repeat: 1, ..small }
        } else {
            Self {
                repeat: self.repeat.max(1),
                ..self.clone()
            }
        }
    }
}

/// What was measured, in words or in JSON.
pub struct BenchOutcome {
    /// What is to be told.
    pub report: String,
    /// Whether it falls short of what is promised; that is not measured of everything.
    pub falls_short: bool,
}

impl From<String> for BenchOutcome {
    fn from(report: String) -> Self {
        Self {
            report,
            falls_short: false,
        }
    }
}

/// Measures what was asked for: the store at `named`, or one in a new file on the disk of the
/// current folder if there is none.
pub async fn run(
    args: &BenchArgs,
    named: Option<&StoreAddress>,
    durability: Durability,
    json: bool,
) -> Result<BenchOutcome> {
    let args = args.sized();
    let bar = spinner();
    let measured = measure(&args, named, durability, json, &bar).await;
    bar.finish_and_clear();
    measured
}

async fn measure(
    args: &BenchArgs,
    named: Option<&StoreAddress>,
    durability: Durability,
    json: bool,
    bar: &ProgressBar,
) -> Result<BenchOutcome> {
    Ok(match args.subject {
        BenchSubject::Tables => {
            let figures = tables::measure(args, bar).await?;
            if json {
                figures.json()?
            } else {
                figures.text()
            }
            .into()
        }
        BenchSubject::Http => {
            let figures = http::measure(args, bar).await?;
            let report = if json {
                figures.json()?
            } else {
                figures.text()
            };
            BenchOutcome {
                report,
                falls_short: !args.quick && figures.falls_short(),
            }
        }
        BenchSubject::Jobs | BenchSubject::Streams | BenchSubject::Pages => {
            measure_store(args, named, durability, json, bar).await?
        }
    })
}

async fn measure_store(
    args: &BenchArgs,
    named: Option<&StoreAddress>,
    durability: Durability,
    json: bool,
    bar: &ProgressBar,
) -> Result<BenchOutcome> {
    let place = BenchStore::choose(named)?;
    let backstop = Backstop::open_with(place.measured().as_written(), durability).await?;
    let measured = match args.subject {
        BenchSubject::Streams => {
            let store = place.kind().word();
            let figures = streams::measure(&backstop, args, bar).await;
            let report = figures.and_then(|figures| {
                if json {
                    figures.json(store)
                } else {
                    Ok(figures.text(store))
                }
            });
            report.map(BenchOutcome::from)
        }
        BenchSubject::Pages => {
            pages::measure(&place, &backstop, durability, args, bar)
                .await
                .and_then(|figures| {
                    // A few seconds show that it runs, and nothing else.
                    let falls_short = !args.quick && figures.falls_short();
                    Ok(BenchOutcome {
                        report: if json {
                            figures.json()?
                        } else {
                            figures.text()
                        },
                        falls_short,
                    })
                })
        }
        BenchSubject::Jobs | BenchSubject::Http | BenchSubject::Tables => {
            let report = measure_all(&place, &backstop, durability, args, bar).await;
            report.and_then(|report| {
                let falls_short = !args.quick
                    && report
                        .held
                        .as_ref()
                        .is_some_and(held_snapshot::HeldSnapshotBench::falls_short);
                Ok(BenchOutcome {
                    report: if json { report.json()? } else { report.text() },
                    falls_short,
                })
            })
        }
    };
    bar.set_message("cleaning up");
    let cleaned = place.clean_up(&backstop).await;
    let report = measured?;
    cleaned?;
    Ok(report)
}

async fn measure_all<'a>(
    place: &BenchStore,
    backstop: &Backstop,
    durability: Durability,
    args: &'a BenchArgs,
    bar: &ProgressBar,
) -> Result<StoreBenchReport<'a>> {
    let promise = backstop.store().examine().await?.promise;
    bar.set_message("raw limit of the store, without backstop");
    let raw = raw::measure(place, durability, args)
        .await
        .context("the raw limit could not be measured")?;
    let mut rounds = vec![round::measure(place, backstop, args, 0, bar).await?];
    let held = if args.held_snapshot || args.held_for.is_some() {
        Some(held_snapshot::measure(backstop, place.named(), args, bar).await?)
    } else {
        None
    };
    if args.present > 0 {
        bar.set_message(format!("filling in {} other jobs", args.present));
        fill::fill(backstop, args.present, bar).await?;
        rounds.push(round::measure(place, backstop, args, args.present, bar).await?);
    }
    Ok(StoreBenchReport {
        kind: place.kind(),
        durability,
        promise,
        args,
        raw,
        rounds,
        held,
    })
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
