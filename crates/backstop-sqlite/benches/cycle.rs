//! How fast the store is by itself: `cargo bench -p backstop-sqlite`. Prints jobs per second, the
//! best and the median of several rounds, for both durabilities; a path as argument says on which
//! disk.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, missing_docs)]

use backstop_core::plan::QueueQuota;
use backstop_core::port::{Claim, JobStore, Store};
use backstop_core::verdict::{DoneRetention, Settlement};
use backstop_core::{
    JobId, Kind, LeaseNumber, LeasedRun, NewJob, Outcome, Payload, QueueName, Span, Time,
    WorkerName,
};
use backstop_sqlite::{SqliteDurability, SqliteOptions, SqliteStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const JOBS: usize = 60_000;
const BATCH: usize = 1_000;
const CLAIM: usize = 256;
const ROUNDS: usize = 5;
/// Jobs of each of two other states.
const OTHERS: usize = 300_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        for durability in [SqliteDurability::Full, SqliteDurability::Relaxed] {
            measure(durability).await;
        }
    });
}

/// Rounds of all measures take turns, so that a noisy neighbour bothers all of them alike.
async fn measure(durability: SqliteDurability) {
    let place = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let dir =
        tempfile::tempdir_in(place.unwrap_or_else(|| "/tmp".to_owned())).expect("a directory");
    let store = open(&dir.path().join("bench.db"), durability).await;
    let crowded = open(&dir.path().join("crowded.db"), durability).await;
    let mut draws = Draws(1);
    crowd(&crowded, &mut draws).await;
    let (mut bulk, mut cycles, mut beside, mut single) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bulk.push(rate(JOBS, enqueue_all(&store, &mut draws)).await);
        cycles.push(rate(JOBS, drain(&store, &mut draws)).await);
        enqueue_all(&crowded, &mut draws).await;
        beside.push(rate(JOBS, drain(&crowded, &mut draws)).await);
        single.push(rate(JOBS / 10, enqueue_by_64(&store, &mut draws)).await);
        drain(&store, &mut draws).await;
    }
    report(durability, "bulk enqueue, 1000 a call", bulk);
    report(durability, "cycle, claim 256 + settle 256", cycles);
    report(durability, "cycle beside 600,000 others", beside);
    report(durability, "enqueue, 64 callers, 1 a call", single);
}

async fn open(path: &Path, durability: SqliteDurability) -> Arc<SqliteStore> {
    let store = SqliteStore::open(
        path,
        SqliteOptions {
            durability,
            ..SqliteOptions::default()
        },
    );
    let store = Arc::new(store.expect("the file opens"));
    store.migrate().await.expect("the store migrates");
    store
}

async fn rate(jobs: usize, work: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    work.await;
    jobs as f64 / began.elapsed().as_secs_f64()
}

fn report(durability: SqliteDurability, what: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
    println!("{durability:?}: {what}: {median:.0}/s (best {best:.0})");
}

/// Numbers that do not repeat.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 29)
    }

    fn job(&mut self) -> NewJob {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.next().to_le_bytes());
        let payload =
            Payload::from_stored(format!("{{\"args\":\"{:0>87}\"}}", self.0).into_bytes());
        NewJob::new(JobId::at(now(), random), queue(), Kind::default(), payload)
    }
}

fn queue() -> QueueName {
    QueueName::new("bench").expect("a name")
}

fn now() -> Time {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Time::default().after(since_1970.unwrap_or_default().into())
}

async fn enqueue_all(store: &SqliteStore, draws: &mut Draws) {
    for _ in 0..JOBS / BATCH {
        let jobs = (0..BATCH).map(|_| draws.job()).collect();
        store.enqueue(jobs, now()).await.expect("enqueued");
    }
}

/// Fills a store with jobs that are done, and with as many that wait for later.
async fn crowd(store: &SqliteStore, draws: &mut Draws) {
    for _ in 0..OTHERS / JOBS {
        enqueue_all(store, draws).await;
        drain(store, draws).await;
    }
    let later = now().after(Span::hours(1));
    for _ in 0..OTHERS / BATCH {
        let jobs = (0..BATCH)
            .map(|_| NewJob {
                run_at: Some(later),
                ..draws.job()
            })
            .collect();
        store.enqueue(jobs, now()).await.expect("enqueued");
    }
}

async fn enqueue_by_64(store: &Arc<SqliteStore>, draws: &mut Draws) {
    let callers = (0..64).map(|_| {
        let jobs: Vec<NewJob> = (0..JOBS / 10 / 64).map(|_| draws.job()).collect();
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for job in jobs {
                store.enqueue(vec![job], now()).await.expect("enqueued");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("a caller ends");
    }
}

/// Claims the next jobs while the last ones are settled, as an engine does.
async fn drain(store: &SqliteStore, draws: &mut Draws) {
    let mut runs = claim(store, draws.next()).await;
    while !runs.is_empty() {
        let number = draws.next();
        let ((), next) = tokio::join!(settle(store, runs), claim(store, number));
        runs = next;
    }
}

async fn claim(store: &SqliteStore, draw: u64) -> Vec<LeasedRun> {
    let claim = Claim {
        number: LeaseNumber::draw(draw),
        worker: WorkerName::new("bench"),
        until: now().after(Span::secs(30)),
        wants: vec![QueueQuota {
            queue: queue(),
            max: CLAIM,
        }],
    };
    store.claim(claim, now()).await.expect("claimed").runs
}

async fn settle(store: &SqliteStore, runs: Vec<LeasedRun>) {
    let end = |run: LeasedRun| Settlement {
        lease: run.lease,
        outcome: Outcome::Done(DoneRetention::Listed),
    };
    store
        .settle(runs.into_iter().map(end).collect(), now())
        .await
        .expect("settled");
}
