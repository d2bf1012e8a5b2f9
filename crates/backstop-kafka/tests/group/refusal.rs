//! A sink that refuses the records of a partition for a while.

use crate::brokers::Brokers;
use crate::recorder::Recorder;
use crate::until;
use backstop_kafka::{KafkaConsumer, KafkaFlow, PartitionStatus, RunningConsumer};
use std::sync::Arc;

fn partition(source: &RunningConsumer, number: i32) -> Option<PartitionStatus> {
    source
        .status()
        .partitions
        .into_iter()
        .find(|status| status.place.partition == number)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_whose_records_are_refused_waits_and_loses_nothing() {
    let brokers = Brokers::with_topic("refusal", 3).await;
    brokers.produce(0..300);
    let recorder = Arc::new(Recorder::open());
    recorder.seen().refused.insert(0);
    let source =
        KafkaConsumer::start(&brokers.settings(), Arc::clone(&recorder) as _).expect("a source");

    until("the others go on", || {
        recorder.taken() == 200 && brokers.committed_records() == 200
    })
    .await;
    until("it is tried again and again", || {
        recorder.seen().refusals > 2
    })
    .await;
    brokers.produce(300..360);
    until("the others still go on", || recorder.taken() == 240).await;
    let held = partition(&source, 0).expect("it is ours");
    assert_eq!(held.flow, KafkaFlow::Failing);
    assert!(
        held.records_waiting <= 20 && held.records_uncommitted == 10,
        "{held:?}"
    );
    assert_eq!(brokers.committed().get(&0), None);
    assert!(source.status().last_failure.is_some());
    until("its lag shows", || {
        partition(&source, 0).and_then(|status| status.lag) == Some(120)
    })
    .await;

    recorder.seen().refused.clear();
    until("everything is taken in", || recorder.taken() == 360).await;
    until("nothing is left", || source.lag() == Some(0)).await;
    assert_eq!(
        partition(&source, 0).map(|status| status.flow),
        Some(KafkaFlow::Flowing)
    );
    let left = source.stop().await;
    assert_eq!((left.unfinished, left.uncommitted), (0, 0));
    recorder.check_all_once(0..360);
    assert_eq!(brokers.committed_records(), 360);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_a_batch_that_is_refused() {
    let brokers = Brokers::with_topic("refused-stop", 2).await;
    brokers.produce(0..20);
    let recorder = Arc::new(Recorder::open());
    recorder.seen().refused.insert(0);
    let source =
        KafkaConsumer::start(&brokers.settings(), Arc::clone(&recorder) as _).expect("a source");
    until("the other goes on", || {
        recorder.taken() == 10 && recorder.seen().refusals > 2
    })
    .await;
    let left = source.stop().await;
    assert_eq!((left.unfinished, left.uncommitted), (10, 0));
    assert_eq!(
        brokers.committed().into_iter().collect::<Vec<_>>(),
        [(1, 10)]
    );
}
