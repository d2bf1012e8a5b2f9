//! The API over a loopback connection, beside what the library does with the same jobs on the same
//! file.

mod client;
mod memory;

use super::BenchArgs;
use super::figures::BenchRate;
use super::measure::{self, QUEUE};
use super::report::grouped;
use anyhow::{Context, Result, ensure};
use backstop::config::{self, Config, ConfigFile, ConfigOverrides};
use backstop::core::limits::LEASE_MAX;
use backstop::core::plan::QueueQuota;
use backstop::core::port::{Claim, EnqueueOutcome, SettleOutcome};
use backstop::core::verdict::{DoneRetention, Settlement};
use backstop::core::{LeaseNumber, Outcome, WorkerName};
use backstop::{Backstop, NewJob, QueueName};
use backstop_server::App;
use backstop_server::serve::{RunningServer, Server};
pub(super) use client::BenchClient;
use comfy_table::{Table, presets};
use futures_util::future::try_join_all;
use indicatif::ProgressBar;
use memory::ServerMemory;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

const BATCH: usize = 100;
/// Connections, each with one request under way; so many callers of the library too.
const CONNECTIONS: usize = 8;
/// What is to be reached, jobs a second.
const PUSH_TARGET: usize = 40_000;
const WORK_TARGET: usize = 20_000;

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct HttpBench {
    push: HttpComparison,
    lease_and_settle: HttpComparison,
    memory: ServerMemory,
}

/// The same over HTTP and by the library.
#[derive(Debug, Clone, Copy, Serialize)]
struct HttpComparison {
    http: BenchRate,
    library: BenchRate,
    /// The first as a share of the second.
    ratio: f64,
    /// What is to be reached over HTTP, a second.
    target: usize,
}

impl HttpComparison {
    fn of(http: Vec<BenchRate>, library: Vec<BenchRate>, target: usize) -> Self {
        let (http, library) = (BenchRate::median(http), BenchRate::median(library));
        Self {
            http,
            library,
            ratio: http.ratio_to(library),
            target,
        }
    }

    /// Whether it is slower over HTTP than it is to be.
    fn falls_short(self) -> bool {
        self.http.count_per_second() < self.target
    }
}

/// Measures both, by turns, on one file that is gone afterwards.
pub(super) async fn measure(args: &BenchArgs, bar: &ProgressBar) -> Result<HttpBench> {
    let folder = tempfile::tempdir_in(".")
        .context("a folder for the measurements could not be made here")?;
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    let backstop = Backstop::open(&url).await?;
    let mut serving = serve(&App::new(backstop.clone(), config("")?, "")).await?;
    let rounds = rounds(args.jobs());
    let [mut pushed, mut worked, mut lib_pushed, mut lib_worked] = [const { Vec::new() }; 4];
    for repetition in 1..=args.repeat {
        let say = |what: &str| bar.set_message(format!("{what}, {repetition} of {}", args.repeat));
        say("pushing by the library");
        lib_pushed.push(library_push(&backstop, rounds).await?);
        say("taking and ending by the library");
        lib_worked.push(library_work(&backstop, rounds).await?);
        say("pushing over HTTP");
        pushed.push(push(serving.address(), rounds).await?);
        say("taking and ending over HTTP");
        worked.push(work(serving.address(), rounds).await?);
    }
    serving.stop();
    serving.wait_until_ended().await;
    let memory = memory::measure(args, folder.path(), bar).await?;
    Ok(HttpBench {
        memory,
        push: HttpComparison::of(pushed, lib_pushed, PUSH_TARGET),
        lease_and_settle: HttpComparison::of(worked, lib_worked, WORK_TARGET),
    })
}

/// What a configuration with this text says, on a port that is free.
pub(super) fn config(text: &str) -> Result<Config> {
    let written = ConfigFile {
        path: "backstop.toml",
        text,
    };
    let mut config = config::resolve(
        Some(written),
        ConfigOverrides::default(),
        ConfigOverrides::default(),
    )?;
    config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Ok(config)
}

/// A server in this process.
pub(super) async fn serve(app: &App) -> Result<RunningServer> {
    Ok(Server::bind(app).await?.start())
}

/// Batches of each connection, for so many jobs or a few more.
pub(super) fn rounds(jobs: usize) -> usize {
    jobs.div_ceil(BATCH * CONNECTIONS).max(1)
}

/// Runs one of these for each connection, and counts `rounds` batches of each.
async fn all<F: Future<Output = Result<()>> + Send + 'static>(
    rounds: usize,
    each: impl Fn() -> F,
) -> Result<BenchRate> {
    let started = Instant::now();
    let running: Vec<_> = (0..CONNECTIONS).map(|_| tokio::spawn(each())).collect();
    for ended in try_join_all(running).await? {
        ended?;
    }
    Ok(BenchRate::of(
        rounds * CONNECTIONS * BATCH,
        started.elapsed(),
    ))
}

async fn push(address: SocketAddr, rounds: usize) -> Result<BenchRate> {
    let body = pushed_body();
    let each = || {
        let body = body.clone();
        async move {
            let mut client = BenchClient::connect(address).await?;
            for _ in 0..rounds {
                let answer = client.post("/v1/jobs/batch", &body).await?;
                ensure!(
                    answer.matches("\"inserted\"").count() == BATCH,
                    "not all jobs were taken in: {answer}"
                );
            }
            Ok(())
        }
    };
    all(rounds, each).await
}

/// A batch of jobs without ids: every one that is sent is new.
fn pushed_body() -> String {
    let jobs = (0..BATCH).map(|n| {
        let payload = String::from_utf8_lossy(&measure::payload(n)).into_owned();
        format!(r#"{{"queue":"{QUEUE}","kind":"noop","payload":{payload}}}"#)
    });
    format!(r#"{{"jobs":[{}]}}"#, jobs.collect::<Vec<_>>().join(","))
}

#[derive(Deserialize)]
struct LeaseAnswerBody<'a> {
    #[serde(borrow)]
    jobs: Vec<LeasedJobBody<'a>>,
}

#[derive(Deserialize)]
struct LeasedJobBody<'a> {
    id: &'a str,
    lease: &'a str,
}

async fn work(address: SocketAddr, rounds: usize) -> Result<BenchRate> {
    let each = || async move {
        let mut client = BenchClient::connect(address).await?;
        let ask =
            format!(r#"{{"queues":["{QUEUE}"],"max":{BATCH},"worker":"bench","lease_ms":600000}}"#);
        for _ in 0..rounds {
            let answer = client.post("/v1/lease", &ask).await?;
            let leased: LeaseAnswerBody<'_> = serde_json::from_str(&answer)?;
            ensure!(
                leased.jobs.len() == BATCH,
                "{} jobs were handed out, not {BATCH}",
                leased.jobs.len()
            );
            let answer = client.post("/v1/settle", &settled_body(&leased)).await?;
            ensure!(
                answer.matches("\"applied\"").count() == BATCH,
                "not all ends were accepted: {answer}"
            );
        }
        Ok(())
    };
    all(rounds, each).await
}

fn settled_body(leased: &LeaseAnswerBody<'_>) -> String {
    let mut body = String::with_capacity(leased.jobs.len() * 128);
    body.push_str(r#"{"settle":["#);
    for (at, LeasedJobBody { id, lease }) in leased.jobs.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(
            body,
            r#"{comma}{{"id":"{id}","lease":"{lease}","outcome":"done"}}"#
        );
    }
    body.push_str("]}");
    body
}

pub(super) async fn library_push(backstop: &Backstop, rounds: usize) -> Result<BenchRate> {
    let each = || {
        let backstop = backstop.clone();
        async move {
            for _ in 0..rounds {
                let jobs: Vec<NewJob> = measure::jobs(&backstop, QUEUE, BATCH)?;
                let answers = backstop.push_jobs(jobs).await?;
                ensure!(
                    answers
                        .iter()
                        .all(|answer| *answer == EnqueueOutcome::Inserted),
                    "a new job was not taken in"
                );
            }
            Ok(())
        }
    };
    all(rounds, each).await
}

/// Claims and ends jobs that are ready.
pub(super) async fn library_work(backstop: &Backstop, rounds: usize) -> Result<BenchRate> {
    let queue = QueueName::new(QUEUE)?;
    let each = || {
        let (backstop, queue) = (backstop.clone(), queue.clone());
        async move {
            for _ in 0..rounds {
                let (number, now) = (LeaseNumber::draw(rand::random()), backstop.now());
                let (worker, wants) = (
                    WorkerName::new("bench"),
                    vec![QueueQuota {
                        queue: queue.clone(),
                        max: BATCH,
                    }],
                );
                let claim = Claim {
                    number,
                    worker,
                    until: now.after(LEASE_MAX),
                    wants,
                };
                let claimed = backstop.store().claim(claim, now).await?.runs;
                ensure!(
                    claimed.len() == BATCH,
                    "{} jobs were claimed, not {BATCH}",
                    claimed.len()
                );
                let done = claimed.into_iter();
                let done = done.map(|run| Settlement {
                    lease: run.lease,
                    outcome: Outcome::Done(DoneRetention::Listed),
                });
                let settled = backstop
                    .store()
                    .settle(done.collect(), backstop.now())
                    .await?;
                ensure!(
                    settled.iter().all(|one| *one == SettleOutcome::Applied),
                    "an end was not accepted"
                );
            }
            Ok(())
        }
    };
    all(rounds, each).await
}

impl HttpBench {
    pub(super) fn json(&self) -> Result<String> {
        let report = json!({ "store": "sqlite", "batch": BATCH, "connections": CONNECTIONS, "figures": self });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "sqlite",
            "over HTTP, a second",
            "by the library",
            "ratio",
            "target",
        ]);
        for (what, beside) in [
            ("push", self.push),
            ("lease and settle", self.lease_and_settle),
        ] {
            table.add_row([
                what.to_owned(),
                beside.http.count_per_second().to_string(),
                beside.library.count_per_second().to_string(),
                format!("{:.2}", beside.ratio),
                format!("≥ {}", beside.target),
            ]);
        }
        format!(
            "{table}\nBatches of {BATCH} on {CONNECTIONS} connections that stay open; client and server share this machine; every push and every end \
             durable when it is answered.\n{}",
            self.memory_text()
        )
    }

    fn memory_text(&self) -> String {
        let ServerMemory {
            idle_mb,
            idle_mb_max,
            waiting,
            waiting_mb,
            waiting_mb_max,
        } = self.memory;
        let format_mb =
            |mb: Option<f64>| mb.map_or_else(|| "unknown".to_owned(), |mb| format!("{mb:.0} MB"));
        format!(
            "Memory of a server: {} idle (at most {idle_mb_max:.0} MB), {} with {} waiting jobs (at most {waiting_mb_max:.0} MB).\n",
            format_mb(idle_mb),
            format_mb(waiting_mb),
            grouped(waiting)
        )
    }

    /// Whether a server is slower than it is to be, or takes more memory than it may.
    pub(super) fn falls_short(&self) -> bool {
        self.push.falls_short() || self.lease_and_settle.falls_short() || self.memory.falls_short()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A server that pushes and works so many jobs a second, and takes so much memory.
    fn check(pushed: usize, worked: usize, idle_mb: f64, falls_short: bool) {
        let of = |count, target| {
            let rate = || vec![BenchRate::of(count, Duration::from_secs(1))];
            HttpComparison::of(rate(), rate(), target)
        };
        let figures = HttpBench {
            push: of(pushed, PUSH_TARGET),
            lease_and_settle: of(worked, WORK_TARGET),
            memory: ServerMemory::of(Some(idle_mb), 1, None),
        };
        assert_eq!(
            figures.falls_short(),
            falls_short,
            "{pushed} {worked} {idle_mb}"
        );
    }

    #[test]
    fn it_falls_short_below_either_rate_and_above_its_memory() {
        check(40_000, 20_000, 50.0, false);
        check(39_999, 20_000, 50.0, true);
        check(40_000, 19_999, 50.0, true);
        check(40_000, 20_000, 50.1, true);
    }
}
