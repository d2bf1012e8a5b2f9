//! A coordinator that refuses commits.

use crate::brokers::Brokers;
use crate::recorder::Recorder;
use crate::until;
use backstop_kafka::{KafkaConsumer, KafkaFlow};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_commits_no_more_is_taken_in_than_may_come_twice() {
    let Some(brokers) = Brokers::mock_with_topic("commits", 2).await else {
        return;
    };
    brokers.produce(0..500);
    let refusals = vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE; 10_000];
    brokers
        .mock()
        .request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
    let recorder = Arc::new(Recorder::open());
    let source =
        KafkaConsumer::start(&brokers.settings(), Arc::clone(&recorder) as _).expect("a source");
    let is_full = || {
        source
            .status()
            .partitions
            .iter()
            .all(|partition| partition.flow == KafkaFlow::Full)
    };
    until("the bound is reached", || {
        recorder.taken() == 80 && is_full()
    })
    .await;
    let trouble = source.status().last_failure.expect("it is told").what;
    assert!(trouble.contains("a commit was refused"), "{trouble}");
    assert_eq!(recorder.taken(), 80);

    brokers
        .mock()
        .clear_request_errors(RDKafkaApiKey::OffsetCommit);
    until("all is taken in", || recorder.taken() == 500).await;
    let left = source.stop().await;
    assert_eq!((left.unfinished, left.uncommitted), (0, 0));
    assert_eq!(brokers.committed_records(), 500);
    recorder.check_all_once(0..500);
}
