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
    produce(&address, &results);

    let consume =
        || Consumer::start(folder.path(), &["--kafka", &address, "--topic", "results"], "reading").0;
    let consumers = [consume(), consume()];
    let expected = crate::foretold::admitted(folder.path());
    let deadline = Instant::now() + PATIENCE;
    while handled(folder.path()).values().flatten().count() < expected.len() {
        assert!(Instant::now() < deadline, "{} of {}", output(folder.path()).lines().count(), expected.len());
        std::thread::sleep(LOOK_EVERY);
    }
    let received: u64 =
        consumers.into_iter().map(|consumer| consumer.end()["counts"]["received"].as_u64().unwrap()).sum();
    assert!(received >= results.len() as u64, "{received} of {}", results.len());
    for (key, positions) in handled(folder.path()) {
        assert!(positions.is_sorted(), "{key}: {positions:?}");
    }
    assert_eq!(output(folder.path()).lines().count(), expected.len(), "no misses");
}

/// Neighbours go to different partitions, so what the order is nobody knows.
fn produce(address: &str, results: &[String]) {
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", address).create().unwrap();
    for (nth, result) in (0..).zip(results) {
        let record = BaseRecord::<str, str>::to("results").partition(nth % PARTITIONS).payload(result);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

/// The positions that were handled, in the order in which they were.
fn handled(folder: &Path) -> BTreeMap<String, Vec<i64>> {
    let mut handled: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for line in output(folder).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let result = &line["result"];
        let key = result["subscription_id"].as_str().unwrap().to_owned();
        handled.entry(key).or_default().push(result["scheduled_check_time_ms"].as_i64().unwrap());
    }
    handled
}
