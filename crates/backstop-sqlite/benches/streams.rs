//! How fast ordered streams are by themselves: `cargo bench -p backstop-sqlite --bench streams`.
//! Prints records per second, the best and the median of several rounds, for both durabilities; a
//! path as argument says on which disk.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, missing_docs)]

use backstop_core::port::{
    KeyAdvance, KeyLease, KeyLeaseAction, KeySelection, OfferOutcome, Store, StreamStore,
    TakeRequest, TakeResult,
};
use backstop_core::stream::{KeyChange, Record, StoredKey, StreamCounter, StreamCounts};
use backstop_core::{LeaseNumber, Payload, Span, StreamKey, StreamName, Time, WorkerName};
use backstop_sqlite::{SqliteDurability, SqliteOptions, SqliteStore};
use std::time::Instant;

const BATCH: usize = 1_000;
const RECORDS: usize = 60_000;
const ROUNDS: usize = 5;
/// Keys of a small and of a large stream.
const FEW: usize = 2_000;
const MANY: usize = 100_000;

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
    let store = SqliteStore::open(
        dir.path().join("bench.db"),
        SqliteOptions {
            durability,
            ..SqliteOptions::default()
        },
    );
    let store = store.expect("the file opens");
    store.migrate().await.expect("the store migrates");
    let mut small = Bench::new(&store, "small", FEW);
    let mut large = Bench::new(&store, "large", MANY);
    small.in_order(FEW).await;
    large.in_order(MANY).await;
    let mut rates: [Vec<f64>; 6] = Default::default();
    for _ in 0..ROUNDS {
        rates[0].push(rate(small.in_order(RECORDS)).await);
        rates[1].push(rate(large.in_order(RECORDS)).await);
        large.shuffle();
        rates[2].push(rate(large.in_order(RECORDS)).await);
        large.sort();
        rates[3].push(rate(large.one_by_one(RECORDS)).await);
        rates[4].push(rate(large.offer(RECORDS)).await);
        rates[5].push(rate(large.drain_due(RECORDS)).await);
    }
    let what = [
        "in order, 2,000 keys",
        "in order, 100,000 keys as they came",
        "in order, 100,000 keys at random",
        "in order, 100,000 keys, one call after the other",
        "offer, 100,000 keys",
        "take what is due and drop it, 100,000 keys",
    ];
    what.iter()
        .zip(rates)
        .for_each(|(what, rates)| report(durability, what, rates));
}

async fn rate(work: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    work.await;
    RECORDS as f64 / began.elapsed().as_secs_f64()
}

fn report(durability: SqliteDurability, what: &str, mut rates: Vec<f64>) {
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
    println!("{durability:?}: {what}: {median:.0}/s (best {best:.0})");
}

fn now() -> Time {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Time::default().after(since_1970.unwrap_or_default().into())
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
}

/// A stream and its keys, in the order in which their records come.
struct Bench<'s> {
    store: &'s SqliteStore,
    stream: StreamName,
    keys: Vec<StreamKey>,
    first: Vec<StreamKey>,
    next: usize,
    position: i64,
    draws: Draws,
}

impl<'s> Bench<'s> {
    fn new(store: &'s SqliteStore, name: &str, keys: usize) -> Self {
        let mut draws = Draws(keys as u64);
        // Names as long as those of subscriptions, and in no order.
        let name_of = |draws: &mut Draws| format!("{:016x}{:016x}", draws.next(), draws.next());
        let keys: Vec<StreamKey> = (0..keys)
            .map(|_| StreamKey::new(&name_of(&mut draws)).expect("a key"))
            .collect();
        let stream = StreamName::new(name).expect("a name");
        Self {
            store,
            stream,
            first: keys.clone(),
            keys,
            next: 0,
            position: 1_700_000_000,
            draws,
        }
    }

    fn shuffle(&mut self) {
        for at in (1..self.keys.len()).rev() {
            let other = self.draws.next() as usize % (at + 1);
            self.keys.swap(at, other);
        }
    }

    fn sort(&mut self) {
        self.keys.clone_from(&self.first);
    }

    /// The keys of the next batch.
    fn batch(&mut self) -> Vec<StreamKey> {
        let from = self.next;
        self.next = (self.next + BATCH) % self.keys.len();
        self.keys[from..from + BATCH].to_vec()
    }

    fn take_of(&mut self, wanted: KeySelection) -> TakeRequest {
        TakeRequest {
            stream: self.stream.clone(),
            number: LeaseNumber::draw(self.draws.next()),
            worker: WorkerName::new("bench-host-4711"),
            until: now().after(Span::secs(30)),
            wanted,
        }
    }

    async fn take(&self, take: &TakeRequest) -> TakeResult {
        self.store.take(take.clone(), now()).await.expect("taken")
    }

    async fn advance(&self, number: LeaseNumber, keys: &[StoredKey], position: i64) {
        let advances: Vec<KeyAdvance> = keys
            .iter()
            .map(|key| self.decided(number, key, position))
            .collect();
        self.store.advance(advances, now()).await.expect("advanced");
    }

    fn decided(&self, number: LeaseNumber, key: &StoredKey, position: i64) -> KeyAdvance {
        let mut counts = StreamCounts::default();
        counts[StreamCounter::Handled] = 1;
        let change = KeyChange {
            watermark: Some(position),
            state: b"{\"step\":60}".to_vec(),
            hold: Vec::new(),
            drop: key.records.iter().map(|record| record.position).collect(),
            counts,
        };
        let lease = KeyLease {
            stream: self.stream.clone(),
            key: key.key.clone(),
            number,
        };
        KeyAdvance {
            lease,
            turn: 1,
            seen: key.arrived,
            change,
            lease_action: KeyLeaseAction::Release(None),
        }
    }

    /// Takes the next keys while the last ones are advanced, as an engine does.
    async fn in_order(&mut self, records: usize) {
        let mut take = self.take_next();
        let mut keys = self.take(&take).await.keys;
        for _ in 1..records / BATCH {
            let next = self.take_next();
            let ((), taken) = tokio::join!(
                self.advance(take.number, &keys, self.position),
                self.take(&next)
            );
            assert_eq!(taken.keys.len(), BATCH);
            (take, keys) = (next, taken.keys);
        }
        self.advance(take.number, &keys, self.position).await;
    }

    async fn one_by_one(&mut self, records: usize) {
        for _ in 0..records / BATCH {
            let take = self.take_next();
            let keys = self.take(&take).await.keys;
            self.advance(take.number, &keys, self.position).await;
        }
    }

    fn take_next(&mut self) -> TakeRequest {
        self.position += 60;
        let wanted = KeySelection::Keys(self.batch());
        self.take_of(wanted)
    }

    async fn offer(&mut self, records: usize) {
        for _ in 0..records / BATCH {
            self.position += 60;
            let position = self.position;
            let record = |key| Record {
                key,
                position,
                step: 60,
                tenant: None,
                payload: Payload::from_stored(
                    format!("{{\"args\":\"{position:0>87}\"}}").into_bytes(),
                ),
            };
            let records = self.batch().into_iter().map(record).collect();
            let offered = self
                .store
                .offer(self.stream.clone(), records, now())
                .await
                .expect("offered");
            assert!(offered.iter().all(|offered| *offered == OfferOutcome::Held));
        }
    }

    async fn drain_due(&mut self, records: usize) {
        let mut drained = 0;
        while drained < records {
            let take = self.take_of(KeySelection::Due(BATCH));
            let keys = self.take(&take).await.keys;
            drained += keys.len();
            self.advance(take.number, &keys, self.position).await;
        }
    }
}
