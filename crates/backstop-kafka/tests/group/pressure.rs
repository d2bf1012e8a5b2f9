//! A sink that is slower than the brokers.

use crate::brokers::{Brokers, SESSION};
use crate::recorder::Recorder;
use crate::until;
use backstop_kafka::{ConsumerPhase, KafkaConsumer, KafkaFlow, KafkaSettings, RunningConsumer};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const RECORDS: u64 = 600;
/// As many as could ever be.
const BATCHES: usize = 600;
const PARTITION_WAITING_MAX: usize = 50;
const RECORDS_MAX: usize = 80;
/// What the client allows between two polls.
const POLL_MAX: Duration = SESSION;

/// The one recorder of metrics that a process has.
fn metrics() -> &'static Snapshotter {
    static METRICS: OnceLock<Snapshotter> = OnceLock::new();
    METRICS.get_or_init(|| {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        recorder.install().expect("nobody else installs one");
        snapshotter
    })
}

/// What stands under each name for a topic, over all partitions. Counters begin anew each time they
/// are read.
fn figures(topic: &str) -> BTreeMap<String, u64> {
    let mut figures = BTreeMap::new();
    for (key, _, _, value) in metrics().snapshot().into_vec() {
        let figure = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Gauge(gauge) => format!("{gauge:.0}").parse().expect("a whole number"),
            DebugValue::Histogram(_) => 0,
        };
        if key.key().labels().any(|label| label.value() == topic) {
            *figures.entry(key.key().name().to_owned()).or_default() += figure;
        }
    }
    figures
}

fn settings(brokers: &Brokers) -> KafkaSettings {
    let mut settings = brokers.settings();
    settings.partition_waiting_max = PARTITION_WAITING_MAX;
    settings.records_max = RECORDS_MAX;
    settings
        .properties
        .set("max.poll.interval.ms", POLL_MAX.as_millis().to_string());
    settings
}

/// Bounds are kept, and the partitions are ours; tells whether they are all paused.
fn check(source: &RunningConsumer) -> bool {
    let status = source.status();
    let partitions = status.partitions.iter();
    assert!(
        partitions
            .clone()
            .all(|partition| partition.records_waiting <= PARTITION_WAITING_MAX),
        "{status:?}"
    );
    let records =
        partitions.map(|partition| partition.records_waiting + partition.records_uncommitted);
    assert!(records.sum::<usize>() <= RECORDS_MAX, "{status:?}");
    assert_eq!(status.phase, ConsumerPhase::Running);
    status.partitions.len() == 3
        && status
            .partitions
            .iter()
            .all(|partition| partition.flow == KafkaFlow::Full)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_sink_pauses_the_source_and_stays_in_the_group() {
    let brokers = Brokers::with_topic("pressure", 3).await;
    metrics();
    brokers.produce(0..RECORDS);
    let recorder = Arc::new(Recorder::closed());
    let source =
        KafkaConsumer::start(&settings(&brokers), Arc::clone(&recorder) as _).expect("a source");
    until("all is paused", || check(&source)).await;
    let since = Instant::now();
    until("more time passes than a poll may take", || {
        assert!(check(&source), "still paused, and still ours");
        since.elapsed() > POLL_MAX + POLL_MAX / 4
    })
    .await;
    until("the lag shows", || source.lag() == Some(RECORDS)).await;
    assert_eq!(figures(&brokers.topic)["backstop_kafka_lag"], RECORDS);
    assert!(
        recorder.seen().calls.len() <= 3,
        "one batch of each partition at most is with the sink"
    );

    recorder.let_through(BATCHES);
    until("all is taken in", || {
        check(&source);
        recorder.taken() as u64 == RECORDS
    })
    .await;
    until("the lag is gone", || source.lag() == Some(0)).await;
    let figures = figures(&brokers.topic);
    assert_eq!(figures["backstop_kafka_lag"], 0);
    assert_eq!(figures["backstop_kafka_records_total"], RECORDS);
    assert!(figures["backstop_kafka_batches_total"] >= RECORDS / 10);
    assert!(figures["backstop_kafka_commits_total"] > 0);
    let left = source.stop().await;
    assert_eq!((left.unfinished, left.uncommitted), (0, 0));
    recorder.check_all_once(0..RECORDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_behind_what_does_not_end_in_time() {
    let brokers = Brokers::with_topic("deadline", 1).await;
    brokers.produce(0..40);
    let recorder = Arc::new(Recorder::closed());
    let mut settings = settings(&brokers);
    settings.stop_wait = Duration::from_millis(300);
    let source = KafkaConsumer::start(&settings, Arc::clone(&recorder) as _).expect("a source");
    recorder.let_through(1);
    until("one is taken in and one is not", || {
        recorder.taken() == 10 && recorder.seen().calls.len() == 2
    })
    .await;
    until("the one is committed", || brokers.committed_records() == 10).await;
    let left = source.stop().await;
    assert_eq!((left.unfinished, left.uncommitted), (10, 0));
    assert_eq!(brokers.committed_records(), 10);
}
