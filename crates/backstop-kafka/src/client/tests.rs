use super::{config, start_error};
use crate::settings::{KafkaSettings, StartOffset};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;
use std::time::Duration;

fn settings() -> KafkaSettings {
    KafkaSettings::new("one:9092,two:9092", ["orders"], "billing")
}

#[track_caller]
fn check(settings: &KafkaSettings, name: &str, value: &str) {
    assert_eq!(config(settings).get(name), Some(value), "{name}");
}

#[test]
fn offsets_stay_in_our_own_hands() {
    check(&settings(), "enable.auto.commit", "false");
    check(&settings(), "enable.auto.offset.store", "false");
    check(&settings(), "group.protocol", "classic");
}

#[test]
fn settings_become_properties() {
    let mut settings = settings();
    check(&settings, "bootstrap.servers", "one:9092,two:9092");
    check(&settings, "group.id", "billing");
    check(&settings, "auto.offset.reset", "earliest");
    check(&settings, "session.timeout.ms", "45000");
    check(&settings, "heartbeat.interval.ms", "3000");
    settings.start = StartOffset::Latest;
    settings.session_timeout = Duration::from_secs(3);
    check(&settings, "auto.offset.reset", "latest");
    check(&settings, "heartbeat.interval.ms", "1000");
}

#[test]
fn the_strategy_is_a_default_that_may_be_changed() {
    let mut settings = settings();
    check(
        &settings,
        "partition.assignment.strategy",
        "cooperative-sticky",
    );
    settings
        .properties
        .set("partition.assignment.strategy", "range");
    check(&settings, "partition.assignment.strategy", "range");
}

#[test]
fn a_refusal_does_not_repeat_the_value() {
    let refusal = |result| {
        let said = "hunter2 is not accepted".to_owned();
        start_error(KafkaError::ClientConfig(
            result,
            said,
            "sasl.password".into(),
            "hunter2".into(),
        ))
        .to_string()
    };
    for result in [
        RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
        RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN,
    ] {
        let text = refusal(result);
        assert!(
            text.contains("sasl.password") && !text.contains("hunter2"),
            "{text}"
        );
    }
}
