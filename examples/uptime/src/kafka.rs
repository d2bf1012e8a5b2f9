//! Results from a topic: each process that reads it as a member of the group is one more consumer.
//!
//! Offsets are committed when the results are safe. What is no result is named and passed over: the
//! topic keeps it.

use crate::intake::Intake;
use anyhow::{Result, bail};
use async_trait::async_trait;
use backstop_kafka::{
    ConsumerPhase, KafkaConsumer, KafkaMessage, KafkaSettings, MessageSink, MessageSinkError,
};
use bytes::Bytes;
use std::sync::Arc;

/// Takes results from a topic until `stop`.
pub async fn serve(
    settings: &KafkaSettings,
    intake: Intake,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let source = KafkaConsumer::start(settings, Arc::new(intake))?;
    let failed = tokio::select! {
        phase = source.ended() => Some(phase),
        () = stop => None,
    };
    match failed {
        None => {
            source.stop().await;
            Ok(())
        }
        Some(ConsumerPhase::Failed(why)) => bail!("the topic cannot be read on: {why}"),
        Some(phase) => bail!("the source ended by itself: {phase:?}"),
    }
}

#[async_trait]
impl MessageSink for Intake {
    async fn take_in(&self, batch: Vec<KafkaMessage>) -> Result<(), MessageSinkError> {
        let results: Vec<Bytes> = batch
            .iter()
            .map(|message| message.payload.clone().unwrap_or_default())
            .collect();
        let taken = self
            .take(results)
            .await
            .map_err(|error| MessageSinkError::new(format!("{error:#}")))?;
        for (place, broken) in &taken.broken {
            let KafkaMessage {
                topic,
                partition,
                offset,
                ..
            } = &batch[*place];
            tracing::warn!(%topic, partition, offset, "a record is no result: {broken}");
        }
        Ok(())
    }
}
