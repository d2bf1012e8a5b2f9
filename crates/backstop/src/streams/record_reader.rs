//! Records as people and programs write them: with their key and position beside the payload, or
//! with both somewhere in it.

use super::fields::StepField;
use crate::config::StreamConfig;
use backstop_core::stream::Record;
use backstop_core::{Payload, StreamKey};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A line that says where its record belongs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine<'a> {
    key: String,
    position: i64,
    #[serde(alias = "step_ms")]
    step: Option<i64>,
    tenant: Option<String>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

/// Reads the key, the position and the tenant of a record from its JSON.
#[derive(Clone, Copy, Debug)]
pub struct RecordReader<'a> {
    config: &'a StreamConfig,
    step_override: Option<i64>,
}

impl<'a> RecordReader<'a> {
    /// By what is said about the stream; `flagged` is a step that wins over what the configuration
    /// says.
    pub const fn new(config: &'a StreamConfig, step_override: Option<i64>) -> Self {
        Self {
            config,
            step_override,
        }
    }

    /// How far apart positions are, for records that do not say.
    pub fn step(&self) -> Option<i64> {
        self.step_override
            .or_else(|| self.config.step.as_ref().and_then(StepField::usual))
    }

    /// The record that a line stands for, or what is wrong with it.
    pub fn record(&self, line: &[u8]) -> Result<Record, String> {
        if self.config.fields.is_some() {
            return self.whole_line(line);
        }
        let line_record: RecordLine<'_> =
            serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let payload = line_record.payload.map_or("null", RawValue::get);
        let record = Record {
            key: StreamKey::new(&line_record.key).map_err(|error| error.to_string())?,
            position: line_record.position,
            step: line_record
                .step
                .or_else(|| self.step())
                .ok_or("it has no \"step\", and neither has the command or the configuration")?,
            tenant: line_record.tenant.map(Into::into),
            payload: Payload::from_valid_json(payload.to_owned())
                .map_err(|error| error.to_string())?,
        };
        record.check().map_err(|error| error.to_string())?;
        Ok(record)
    }

    /// A line that is the record itself.
    pub fn whole_line(&self, line: &[u8]) -> Result<Record, String> {
        let Some(fields) = &self.config.fields else {
            return Err(
                "which key and position? Give --key and --position, or say in [streams.NAME] where they are"
                    .to_owned(),
            );
        };
        let mut record = fields
            .record(line.to_vec())
            .map_err(|error| error.to_string())?;
        record.step = self.step_override.unwrap_or(record.step);
        record.check().map_err(|error| error.to_string())?;
        Ok(record)
    }
}
