//! A sink that passes the records of a topic to a stream.

use crate::message::KafkaMessage;
use crate::sink::{MessageSink, MessageSinkError};
use async_trait::async_trait;
use backstop::streams::{RecordFields, RecordOutcome, RunningStream};
use std::sync::Arc;

/// Passes records to a stream that is served in this process. A message that is not a record of the
/// stream becomes a dead letter; a message without a value is skipped.
pub struct StreamSink {
    stream: Arc<RunningStream>,
    fields: RecordFields,
}

impl StreamSink {
    /// A sink for this stream; `fields` says where its records have their parts.
    pub const fn new(stream: Arc<RunningStream>, fields: RecordFields) -> Self {
        Self { stream, fields }
    }
}

#[async_trait]
impl MessageSink for StreamSink {
    async fn take_in(&self, batch: Vec<KafkaMessage>) -> Result<(), MessageSinkError> {
        let mut records = Vec::with_capacity(batch.len());
        for message in &batch {
            let Some(bytes) = &message.payload else {
                continue;
            };
            match self.fields.record(bytes.clone()) {
                Ok(record) => records.push(record),
                Err(error) => {
                    let origin =
                        format!("{}/{}/{}", message.topic, message.partition, message.offset);
                    self.stream
                        .put_aside(&origin, bytes, &error.to_string())
                        .await
                        .map_err(MessageSinkError::new)?;
                }
            }
        }
        let became = self
            .stream
            .handle(records)
            .await
            .map_err(MessageSinkError::new)?;
        // The batch comes again; the records that were accepted are duplicates then.
        let full = became
            .iter()
            .filter(|became| **became == RecordOutcome::Full)
            .count();
        if full > 0 {
            return Err(MessageSinkError::new(format!(
                "{full} records found their keys full; is a key halted?"
            )));
        }
        Ok(())
    }
}
