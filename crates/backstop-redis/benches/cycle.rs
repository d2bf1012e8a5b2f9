//! How fast the store is by itself: `cargo bench -p backstop-redis`. Prints jobs and keys per
//! second, the median and the best of several rounds, on a server of its own for each way of
//! logging.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, missing_docs)]

use backstop_core::plan::QueueQuota;
use backstop_core::port::{
    AdvanceOutcome, Claim, JobStore, KeyAdvance, KeyLease, KeyLeaseAction, KeySelection, Store,
    StreamStore, TakeRequest, TakeResult,
};
use backstop_core::stream::{KeyChange, StreamCounter, StreamCounts};
use backstop_core::verdict::{DoneRetention, Settlement};
use backstop_core::{
    JobId, Kind, LeaseNumber, LeasedRun, NewJob, Outcome, Payload, QueueName, Span, StreamKey,
    StreamName, Time, WorkerName,
};
use backstop_redis::RedisStore;
use backstop_testkit::servers::Redis;
use backstop_testkit::servers::redis::{Append, Settings};
use std::time::Instant;

const JOBS: usize = 60_000;
const BATCH: usize = 1_000;
const CLAIM: usize = 256;
const ROUNDS: usize = 5;
const FEW: usize = 1_000;
const MANY: usize = 100_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        for append in [Append::EverySecond, Append::Always] {
            measure(append).await;
        }
    });
}

/// Rounds of all measures take turns, so that a noisy neighbour bothers all of them alike.
async fn measure(append: Append) {
    let what = format!("{append:?}");
    let server = Redis::start(Settings {
        append,
        ..Settings::default()
    });
    let store = RedisStore::open(&server.fresh_url()).expect("a good address");
    store.migrate().await.expect("the store migrates");
    let mut draws = Draws(1);
    let (few, many) = (Stream::new("few", FEW), Stream::new("many", MANY));
    many.pass(&store, &mut draws, MANY).await;
    let [mut jobs, mut few_keys, mut many_keys] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        enqueue_all(&store, &mut draws).await;
        jobs.push(rate(drain(&store, &mut draws)).await);
        few_keys.push(rate(few.pass(&store, &mut draws, JOBS)).await);
        many_keys.push(rate(many.pass(&store, &mut draws, JOBS)).await);
    }
    report(&what, "jobs, claim 256 + settle 256", jobs);
    report(
        &what,
        "keys in order, take 1000 + advance 1000, of 1,000",
        few_keys,
    );
    report(
        &what,
        "keys in order, take 1000 + advance 1000, of 100,000",
        many_keys,
    );
}

async fn rate(work: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    work.await;
    JOBS as f64 / began.elapsed().as_secs_f64()
}

fn report(append: &str, what: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
    println!("{append}: {what}: {median:.0}/s (best {best:.0})");
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

async fn enqueue_all(store: &RedisStore, draws: &mut Draws) {
    for _ in 0..JOBS / BATCH {
        let jobs = (0..BATCH).map(|_| draws.job()).collect();
        store.enqueue(jobs, now()).await.expect("enqueued");
    }
}

/// Claims the next jobs while the last ones are settled, as an engine does.
async fn drain(store: &RedisStore, draws: &mut Draws) {
    let mut runs = claim(store, draws.next()).await;
    while !runs.is_empty() {
        let number = draws.next();
        let ((), next) = tokio::join!(settle(store, runs), claim(store, number));
        runs = next;
    }
}

async fn claim(store: &RedisStore, draw: u64) -> Vec<LeasedRun> {
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

async fn settle(store: &RedisStore, runs: Vec<LeasedRun>) {
    let end = |run: LeasedRun| Settlement {
        lease: run.lease,
        outcome: Outcome::Done(DoneRetention::Gone),
    };
    store
        .settle(runs.into_iter().map(end).collect(), now())
        .await
        .expect("settled");
}

/// A stream whose keys are gone through in order, each with nothing held.
struct Stream {
    name: StreamName,
    keys: Vec<StreamKey>,
}

impl Stream {
    fn new(name: &str, count: usize) -> Self {
        let keys = (0..count).map(|n| StreamKey::new(&format!("device-{n}")).expect("a key"));
        Self {
            name: StreamName::new(name).expect("a name"),
            keys: keys.collect(),
        }
    }

    /// So many keys, one batch after the other, from the first one on again where there are fewer.
    async fn pass(&self, store: &RedisStore, draws: &mut Draws, count: usize) {
        for batch in self.keys.chunks(BATCH).cycle().take(count / BATCH) {
            let number = LeaseNumber::draw(draws.next());
            let taken = self.take(store, number, batch).await;
            assert_eq!(taken.keys.len(), BATCH, "every key is to be had");
            self.advance(store, number, taken).await;
        }
    }

    async fn take(
        &self,
        store: &RedisStore,
        number: LeaseNumber,
        keys: &[StreamKey],
    ) -> TakeResult {
        let (worker, until) = (WorkerName::new("bench"), now().after(Span::secs(30)));
        let wanted = KeySelection::Keys(keys.to_vec());
        store
            .take(
                TakeRequest {
                    stream: self.name.clone(),
                    number,
                    worker,
                    until,
                    wanted,
                },
                now(),
            )
            .await
            .expect("taken")
    }

    async fn advance(&self, store: &RedisStore, number: LeaseNumber, taken: TakeResult) {
        let mut counts = StreamCounts::default();
        counts[StreamCounter::Handled] = 1;
        let advances = taken.keys.into_iter().map(|stored| KeyAdvance {
            lease: KeyLease {
                stream: self.name.clone(),
                key: stored.key,
                number,
            },
            turn: 1,
            seen: stored.arrived,
            change: KeyChange {
                watermark: Some(stored.watermark.unwrap_or_default() + 60),
                state: b"{\"step\":60}".to_vec(),
                counts,
                ..KeyChange::default()
            },
            lease_action: KeyLeaseAction::Release(None),
        });
        let answers = store
            .advance(advances.collect(), now())
            .await
            .expect("advanced");
        assert!(
            answers
                .iter()
                .all(|answer| *answer == AdvanceOutcome::Applied)
        );
    }
}
