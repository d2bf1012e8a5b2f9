//! How fast the store is by itself: `cargo bench -p backstop-postgres`. Prints jobs and records per
//! second, the best and the median of several rounds, on a server of its own that waits for the
//! disk.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, missing_docs)]

use backstop_core::plan::QueueQuota;
use backstop_core::port::{
    AdvanceOutcome, Claim, JobStore, KeyAdvance, KeyLease, KeyLeaseAction, KeySelection, Store,
    StreamStore, TakeRequest,
};
use backstop_core::stream::{KeyChange, Record, StoredKey, StreamCounter, StreamCounts};
use backstop_core::verdict::{DoneRetention, Settlement};
use backstop_core::{
    JobId, Kind, LeaseNumber, NewJob, Outcome, Payload, QueueName, Span, StreamKey, StreamName,
    Time, WorkerName,
};
use backstop_postgres::{PostgresDurability, PostgresStore};
use backstop_testkit::servers::postgres::{Fsync, Postgres, Settings};
use std::time::Instant;

const BATCH: usize = 1_000;
const JOBS: usize = 20_000;
const KEYS: usize = 100_000;
const ROUNDS: i64 = 5;
/// Rounds over all keys while a snapshot is held.
const HELD_ROUNDS: i64 = 10;
const NOW: Time = Time::from_millis(1_700_000_000_000);
const LEASE: Span = Span::secs(30);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(measure());
}

/// Rounds of all measures take turns, so that a noisy neighbour bothers all of them alike.
async fn measure() {
    let server = Postgres::start(Settings {
        fsync: Fsync::On,
        ..Settings::default()
    });
    let address = server.fresh_url();
    let store = PostgresStore::open(&address, PostgresDurability::Full).expect("an address");
    store.migrate().await.expect("the store migrates");
    let mut bench = Bench { store, draws: 1 };
    let first = rate(KEYS, bench.in_order(0)).await;
    report("first record of 100,000 keys", vec![first]);
    let (mut drained, mut in_order, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        bench.push_all().await;
        drained.push(rate(JOBS, bench.drain()).await);
        in_order.push(rate(KEYS, bench.in_order(round + 1)).await);
        bench.offer_all(round).await;
        held.push(rate(JOBS, bench.drain_due()).await);
    }
    report("jobs: claim 1,000, settle 1,000", drained);
    report(
        "in order: take 1,000 of 100,000 keys, advance 1,000",
        in_order,
    );
    report(
        "held: take 1,000 that are due, drop 1 record of each, advance 1,000",
        held,
    );
    let user = backstop_postgres::connect(&address)
        .await
        .expect("a connection");
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    user.batch_execute(snapshot).await.expect("a snapshot");
    for round in 0..HELD_ROUNDS {
        let beside = rate(KEYS, bench.in_order(ROUNDS + round + 1)).await;
        report(
            &format!("in order, a snapshot is held, round {}", round + 1),
            vec![beside],
        );
    }
}

async fn rate(number: usize, work: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    work.await;
    number as f64 / began.elapsed().as_secs_f64()
}

fn report(what: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
    println!("{what}: {median:.0}/s (best {best:.0})");
}

struct Bench {
    store: PostgresStore,
    draws: u64,
}

impl Bench {
    /// Numbers that do not repeat.
    fn draw(&mut self) -> u64 {
        self.draws = self
            .draws
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.draws ^ (self.draws >> 29)
    }

    async fn push_all(&mut self) {
        for _ in 0..JOBS / BATCH {
            let jobs = (0..BATCH).map(|_| self.job()).collect();
            self.store.enqueue(jobs, NOW).await.expect("jobs");
        }
    }

    fn job(&mut self) -> NewJob {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.draw().to_le_bytes());
        let (queue, payload) = (
            QueueName::new("q").expect("a name"),
            Payload::from_stored(vec![b' '; 100]),
        );
        NewJob::new(JobId::at(NOW, random), queue, Kind::default(), payload)
    }

    async fn drain(&mut self) {
        let queue = QueueName::new("q").expect("a name");
        loop {
            let claim = Claim {
                number: LeaseNumber::draw(self.draw()),
                worker: WorkerName::new("bench"),
                until: NOW.after(LEASE),
                wants: vec![QueueQuota {
                    queue: queue.clone(),
                    max: BATCH,
                }],
            };
            let runs = self.store.claim(claim, NOW).await.expect("a claim");
            if runs.runs.is_empty() {
                return;
            }
            let settle = |lease| Settlement {
                lease,
                outcome: Outcome::Done(DoneRetention::Listed),
            };
            let settlements = runs.runs.into_iter().map(|run| settle(run.lease)).collect();
            self.store.settle(settlements, NOW).await.expect("they end");
        }
    }

    fn take(&mut self, wanted: KeySelection) -> TakeRequest {
        let (number, worker) = (LeaseNumber::draw(self.draw()), WorkerName::new("bench"));
        TakeRequest {
            stream: stream(),
            number,
            worker,
            until: NOW.after(LEASE),
            wanted,
        }
    }

    /// One record for every key, each in its place. Keys of one batch are from all over the stream.
    async fn in_order(&mut self, round: i64) {
        for batch in 0..KEYS / BATCH {
            let keys = (0..BATCH)
                .map(|n| key(n * (KEYS / BATCH) + batch))
                .collect();
            let take = self.take(KeySelection::Keys(keys));
            let taken = self.store.take(take.clone(), NOW).await.expect("keys").keys;
            assert_eq!(taken.len(), BATCH);
            self.advance(take.number, taken, 60 * round).await;
        }
    }

    async fn offer_all(&mut self, round: i64) {
        for batch in 0..JOBS / BATCH {
            let record = |n| Record {
                key: key(batch * BATCH + n),
                position: 60 * round + 120,
                step: 60,
                tenant: None,
                payload: Payload::from_stored(vec![b' '; 100]),
            };
            self.store
                .offer(stream(), (0..BATCH).map(record).collect(), NOW)
                .await
                .expect("records");
        }
    }

    async fn drain_due(&mut self) {
        loop {
            let take = self.take(KeySelection::Due(BATCH));
            let taken = self.store.take(take.clone(), NOW).await.expect("keys").keys;
            if taken.is_empty() {
                return;
            }
            self.advance(take.number, taken, 0).await;
        }
    }

    async fn advance(&mut self, number: LeaseNumber, taken: Vec<StoredKey>, watermark: i64) {
        let advances = taken
            .into_iter()
            .map(|stored| advance(number, stored, watermark))
            .collect();
        let answers = self.store.advance(advances, NOW).await.expect("answers");
        assert!(
            answers
                .iter()
                .all(|answer| *answer == AdvanceOutcome::Applied)
        );
    }
}

fn advance(number: LeaseNumber, stored: StoredKey, watermark: i64) -> KeyAdvance {
    let mut counts = StreamCounts::default();
    counts[StreamCounter::Handled] = 1;
    let drop = stored
        .records
        .iter()
        .map(|record| record.position)
        .collect();
    let standing = b"{\"step\":60}".to_vec();
    let change = KeyChange {
        watermark: Some(watermark),
        state: standing,
        hold: Vec::new(),
        drop,
        counts,
    };
    let lease = KeyLease {
        stream: stream(),
        key: stored.key,
        number,
    };
    KeyAdvance {
        lease,
        turn: 1,
        seen: stored.arrived,
        change,
        lease_action: KeyLeaseAction::Release(None),
    }
}

fn stream() -> StreamName {
    StreamName::new("uptime").expect("a name")
}

fn key(number: usize) -> StreamKey {
    StreamKey::new(&format!("organisation-7/monitor-{number:07}")).expect("a key")
}
