//! The client: how it is set up, and what its refusal to be set up means.

use crate::context::Context;
use crate::limits::HEARTBEAT_MAX;
use crate::settings::{Settings, Start};
use crate::source::StartError;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

/// A client that has subscribed. It connects by itself, and goes on trying.
pub(crate) fn open(
    settings: &Settings,
    context: Context,
) -> Result<BaseConsumer<Context>, StartError> {
    let consumer: BaseConsumer<Context> = config(settings)
        .create_with_context(context)
        .map_err(refused)?;
    let topics: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).map_err(refused)?;
    Ok(consumer)
}

fn config(settings: &Settings) -> ClientConfig {
    let heartbeat = (settings.session_timeout / 3).min(HEARTBEAT_MAX);
    let start = match settings.start {
        Start::Earliest => "earliest",
        Start::Latest => "latest",
    };
    let mut config = ClientConfig::new();
    config.set_log_level(RDKafkaLogLevel::Info);
    config.set("client.id", "backstop");
    config.set("partition.assignment.strategy", "cooperative-sticky");
    for (name, value) in settings.properties.iter() {
        config.set(name, value);
    }
    config.set("bootstrap.servers", &settings.brokers);
    config.set("group.id", &settings.group);
    // The newer protocol stalls, and commits under stale epochs, in the librdkafka we are built
    // with.
    config.set("group.protocol", "classic");
    config.set(
        "session.timeout.ms",
        settings.session_timeout.as_millis().to_string(),
    );
    config.set("heartbeat.interval.ms", heartbeat.as_millis().to_string());
    config.set("auto.offset.reset", start);
    // The client knows what it has handed to us, never what has been taken in.
    config.set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false");
    config
}

/// The client's own words may repeat the value of a property, and that may be a password.
fn refused(error: KafkaError) -> StartError {
    match error {
        KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, _, name, _) => {
            StartError::UnknownProperty(name)
        }
        KafkaError::ClientConfig(_, _, name, _) => StartError::BadProperty(name),
        other => StartError::Client(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
