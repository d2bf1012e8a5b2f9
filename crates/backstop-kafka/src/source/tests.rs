use super::{ConsumerStartError, KafkaConsumer};
use crate::message::KafkaMessage;
use crate::settings::KafkaSettings;
use crate::sink::{MessageSink, MessageSinkError};
use async_trait::async_trait;
use std::sync::Arc;

struct Nowhere;

#[async_trait]
impl MessageSink for Nowhere {
    async fn take_in(&self, _: Vec<KafkaMessage>) -> Result<(), MessageSinkError> {
        Ok(())
    }
}

fn start(property: Option<(&str, &str)>) -> Result<(), ConsumerStartError> {
    let mut settings = KafkaSettings::new("127.0.0.1:9", ["orders"], "billing");
    settings.properties = property.into_iter().collect();
    KafkaConsumer::start(&settings, Arc::new(Nowhere)).map(drop)
}

#[track_caller]
fn check(property: (&str, &str), said: &str) {
    let error = start(Some(property))
        .expect_err("it cannot start")
        .to_string();
    assert!(error.contains(said), "{error}");
    assert!(
        !error.contains(property.1),
        "a value is never repeated: {error}"
    );
}

#[test]
fn a_source_needs_a_runtime() {
    assert!(matches!(start(None), Err(ConsumerStartError::NoRuntime)));
}

#[tokio::test]
async fn a_source_needs_no_brokers_to_start() {
    start(None).unwrap();
}

#[tokio::test]
async fn a_property_that_the_client_does_not_take_is_named() {
    check(
        ("no.such.property", "hunter2"),
        "knows no property `no.such.property`",
    );
    check(
        ("socket.timeout.ms", "hunter2"),
        "does not take the value of `socket.timeout.ms`",
    );
}

#[tokio::test]
async fn tls_says_what_it_needs_if_it_is_not_there() {
    // A program that built the client with TLS gets no error here.
    if let Err(error) = start(Some(("security.protocol", "sasl_ssl"))) {
        assert!(
            error
                .to_string()
                .contains("build with rdkafka's feature `ssl`"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn settings_are_checked_first() {
    check(
        ("group.id", "other"),
        "the property `group.id` is set by the source itself",
    );
}
