//! A member that the group has given up.

use crate::brokers::Brokers;
use crate::recorder::Recorder;
use crate::until;
use backstop_kafka::KafkaConsumer;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ends_after_the_partition_was_lost_is_not_committed() {
    let Some(brokers) = Brokers::mock_with_topic("lost", 1).await else {
        return;
    };
    brokers.produce(0..10);
    let recorder = Arc::new(Recorder::closed());
    let source =
        KafkaConsumer::start(&brokers.settings(), Arc::clone(&recorder) as _).expect("a source");
    until("the records are with the sink", || {
        recorder.seen().calls == [(0, 0)]
    })
    .await;

    let unknown = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID];
    brokers
        .mock()
        .request_errors(RDKafkaApiKey::Heartbeat, &unknown);
    until("they come again", || recorder.seen().calls.len() == 2).await;
    recorder.let_through(1);
    until("the first call ends", || recorder.taken() == 10).await;
    // Many commits would have been sent by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(brokers.committed_records(), 0);

    recorder.let_through(1);
    until("the second call is committed", || {
        brokers.committed_records() == 10
    })
    .await;
    let left = source.stop().await;
    assert_eq!((left.unfinished, left.uncommitted), (0, 0));
}
