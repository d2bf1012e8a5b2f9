//! Results from a topic, read by several processes.

use crate::process::{Consumer, generate, output, results};
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const PARTITIONS: i32 = 4;
/// Far more than anything takes: only a hang gets there.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[test]
fn several_processes_share_a_topic_and_handle_its_results_in_order() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path());
    let brokers = MockCluster::<DefaultProducerContext>::new(1).unwrap();
    brokers.create_topic("results", PARTITIONS, 1).unwrap();
    let address = brokers.bootstrap_servers();
    let results = results(folder.path());
    let expected = crate::foretold::admitted(folder.path());
    let firsts: BTreeMap<&str, i64> = expected
        .iter()
        .rev()
        .map(|(key, position)| (key.as_str(), *position))
        .collect();
    // Whichever result of a subscription comes first is where it begins: nobody can wait for what
    // came before it.
    let is_first = |result: &&String| {
        let (key, position) = place(&serde_json::from_str(result).unwrap());
        firsts.get(key.as_str()) == Some(&position)
    };
    let (begins, others): (Vec<&String>, Vec<&String>) = results.iter().partition(is_first);

    let consume = || {
        Consumer::start(
            folder.path(),
            &["--kafka", &address, "--topic", "results"],
            "reading",
        )
        .0
    };
    let consumers = [consume(), consume()];
    produce(&address, &begins);
    wait_for(folder.path(), firsts.len());
    produce(&address, &others);
    wait_for(folder.path(), expected.len());
    let received: u64 = consumers
        .into_iter()
        .map(|consumer| consumer.end()["counts"]["received"].as_u64().unwrap())
        .sum();
    assert!(
        received >= results.len() as u64,
        "{received} of {}",
        results.len()
    );
    for (key, positions) in handled(folder.path()) {
        assert!(positions.is_sorted(), "{key}: {positions:?}");
    }
    assert_eq!(
        output(folder.path()).lines().count(),
        expected.len(),
        "no misses"
    );
}

/// Waits until so many results were handled.
fn wait_for(folder: &Path, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while handled(folder).values().flatten().count() < count {
        assert!(
            Instant::now() < deadline,
            "{} of {count}",
            output(folder).lines().count()
        );
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Neighbours go to different partitions, so what the order is nobody knows.
fn produce(address: &str, results: &[&String]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", address)
        .create()
        .unwrap();
    for (nth, result) in (0..).zip(results) {
        let record = BaseRecord::<str, str>::to("results")
            .partition(nth % PARTITIONS)
            .payload(result.as_str());
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

/// The positions that were handled, in the order in which they were.
fn handled(folder: &Path) -> BTreeMap<String, Vec<i64>> {
    let mut handled: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for line in output(folder).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (key, position) = place(&line["result"]);
        handled.entry(key).or_default().push(position);
    }
    handled
}

/// Whose result it is, and which.
fn place(result: &Value) -> (String, i64) {
    let key = result["subscription_id"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (
        key,
        result["scheduled_check_time_ms"]
            .as_i64()
            .unwrap_or_default(),
    )
}
