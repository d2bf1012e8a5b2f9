//! Brokers that are gone for a while.

use crate::brokers::Brokers;
use crate::recorder::Recorder;
use crate::until;
use backstop_kafka::{ConsumerPhase, KafkaConsumer};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_all_brokers_is_survived() {
    let Some(brokers) = Brokers::mock_with_topic("outage", 2).await else {
        return;
    };
    brokers.produce(0..600);
    let recorder = Arc::new(Recorder::closed());
    let mut settings = brokers.settings();
    settings.session_timeout = Duration::from_secs(10);
    let source = KafkaConsumer::start(&settings, Arc::clone(&recorder) as _).expect("a source");
    recorder.let_through(10);
    until("some are taken in", || recorder.taken() == 100).await;

    brokers.mock().broker_down(-1).expect("down");
    recorder.let_through(1_000);
    until("it is noticed", || source.status().last_failure.is_some()).await;
    assert_eq!(source.status().phase, ConsumerPhase::Running);
    assert!(recorder.taken() <= 180, "no more than may be uncommitted");
    brokers.mock().broker_up(-1).expect("up");
    until("all is taken in", || recorder.taken() == 600).await;
    let left = source.stop().await;
    assert_eq!((left.unfinished, left.uncommitted), (0, 0));
    recorder.check_all_once(0..600);
    assert_eq!(brokers.committed_records(), 600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_starts_before_its_brokers_do() {
    let Some(brokers) = Brokers::mock_with_topic("late", 1).await else {
        return;
    };
    brokers.produce(0..10);
    brokers.mock().broker_down(-1).expect("down");
    let recorder = Arc::new(Recorder::open());
    let source =
        KafkaConsumer::start(&brokers.settings(), Arc::clone(&recorder) as _).expect("a source");
    until("it says that it cannot connect", || {
        source.status().last_failure.is_some()
    })
    .await;
    brokers.mock().broker_up(-1).expect("up");
    until("all is taken in", || recorder.taken() == 10).await;
    source.stop().await;
}
