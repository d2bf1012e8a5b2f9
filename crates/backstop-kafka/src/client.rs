//! Configures the librdkafka client, and explains its configuration errors.

use crate::context::RebalanceHandler;
use crate::limits::HEARTBEAT_MAX;
use crate::settings::{KafkaSettings, StartOffset};
use crate::source::ConsumerStartError;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

/// Opens a client and subscribes it. It connects by itself, and keeps trying.
pub(crate) fn open(
    settings: &KafkaSettings,
    context: RebalanceHandler,
) -> Result<BaseConsumer<RebalanceHandler>, ConsumerStartError> {
    let consumer: BaseConsumer<RebalanceHandler> = config(settings)
        .create_with_context(context)
        .map_err(start_error)?;
    let topics: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).map_err(start_error)?;
    Ok(consumer)
}

fn config(settings: &KafkaSettings) -> ClientConfig {
    let heartbeat = (settings.session_timeout / 3).min(HEARTBEAT_MAX);
    let start = match settings.start {
        StartOffset::Earliest => "earliest",
        StartOffset::Latest => "latest",
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
    // The client knows which records it gave us, but not which ones the sink accepted.
    config.set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false");
    config
}

/// Maps the client's error. Its message may repeat the value of a property, which may be a
/// password.
fn start_error(error: KafkaError) -> ConsumerStartError {
    match error {
        KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, _, name, _) => {
            ConsumerStartError::UnknownProperty(name)
        }
        KafkaError::ClientConfig(_, _, name, _) => ConsumerStartError::BadProperty(name),
        other => ConsumerStartError::Client(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
