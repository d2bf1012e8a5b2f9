//! Where the records of a served stream come from by themselves.

use crate::error::CliError;
use backstop::config::KafkaSource;
use backstop::streams::{RecordFields, RunningStream};
use std::sync::Arc;

/// Where the records of a served stream come from by themselves, if from anywhere.
pub(super) struct StreamSource(#[cfg(feature = "kafka")] Option<backstop_kafka::RunningConsumer>);

#[cfg(feature = "kafka")]
impl StreamSource {
    pub(super) fn start(
        wanted: Option<(KafkaSource, RecordFields)>,
        stream: &Arc<RunningStream>,
    ) -> Result<Self, CliError> {
        let Some((kafka, fields)) = wanted else {
            return Ok(Self(None));
        };
        let mut settings =
            backstop_kafka::KafkaSettings::new(&kafka.brokers, [kafka.topic], &kafka.group);
        for (name, value) in &kafka.properties {
            settings.properties.set(name, value);
        }
        let sink = backstop_kafka::StreamSink::new(Arc::clone(stream), fields);
        let source = backstop_kafka::KafkaConsumer::start(&settings, Arc::new(sink));
        Ok(Self(Some(source.map_err(|error| {
            CliError::misuse(format!("source: {error}"))
        })?)))
    }

    pub(super) async fn stop(self) {
        if let Some(source) = self.0 {
            source.stop().await;
        }
    }
}

#[cfg(not(feature = "kafka"))]
impl StreamSource {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a source keeps it, where there is one"
    )]
    pub(super) fn start(
        wanted: Option<(KafkaSource, RecordFields)>,
        _: &Arc<RunningStream>,
    ) -> Result<Self, CliError> {
        match wanted {
            None => Ok(Self()),
            Some(_) => Err(CliError::misuse(
                "its records come from Kafka, and this program was built without that",
            )
            .advise("cargo install --locked --path crates/backstop-cli --features kafka")),
        }
    }

    #[expect(
        clippy::unused_async,
        reason = "a source takes its time to stop, where there is one"
    )]
    pub(super) async fn stop(self) {}
}
