//! Where in a record its key, position, tenant and step are.

use backstop_core::limits::{PAYLOAD_BYTES_MAX, POSITION_MAX};
use backstop_core::name::InvalidName;
use backstop_core::payload::InvalidPayload;
use backstop_core::stream::Record;
use backstop_core::{Payload, Span, StreamKey};
use bytes::Bytes;
use serde_json::Value;

/// Where in a record its parts are: JSON pointers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordFields {
    /// Where the key is: a text or a whole number.
    pub key: String,
    /// Where the position is: a whole number.
    pub position: String,
    /// Where the tenant is, if records have one.
    pub tenant: Option<String>,
    /// How far apart positions are.
    pub step: StepField,
}

/// How far apart positions are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepField {
    /// The same for all; positions are milliseconds.
    Every(Span),
    /// Where in the record it is, in the unit of positions.
    At(String),
}

/// A record whose parts cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordFieldsError {
    /// Not JSON within the limits.
    #[error(transparent)]
    Payload(#[from] InvalidPayload),
    /// Nothing there, or something else than expected.
    #[error("{what} of the record is not at `{pointer}`: there is {found}")]
    Missing {
        what: &'static str,
        pointer: String,
        found: String,
    },
    /// A key that cannot be one.
    #[error(transparent)]
    Key(#[from] InvalidName),
    #[error("{0}")]
    Range(String),
}

impl StepField {
    /// Reads what a configuration says: a pointer, or a length of time.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::At(text.to_owned()));
        }
        let every: Span = text
            .parse()
            .map_err(|error| format!("{error}, and no pointer such as \"/interval_ms\""))?;
        if every < Span::millis(1) {
            return Err(format!(
                "a step of {every} is shorter than a millisecond, the unit of positions"
            ));
        }
        Ok(Self::Every(every))
    }

    /// The step of records that bring none.
    pub fn usual(&self) -> Option<i64> {
        match self {
            Self::Every(span) => Some(span.as_micros() / 1_000),
            Self::At(_) => None,
        }
    }
}

impl RecordFields {
    /// The record that these bytes are.
    pub fn record(&self, bytes: impl Into<Bytes>) -> Result<Record, RecordFieldsError> {
        let bytes = bytes.into();
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(InvalidPayload::TooLarge(bytes.len()).into());
        }
        let payload = Payload::json(bytes)?;
        let value: Value = serde_json::from_slice(payload.as_bytes())
            .map_err(|error| InvalidPayload::NotJson(error.to_string()))?;
        let tenant = match &self.tenant {
            Some(pointer) => value.pointer(pointer).and_then(text_or_integer),
            None => None,
        };
        let step = match &self.step {
            StepField::Every(span) => span.as_micros() / 1_000,
            StepField::At(pointer) => integer(&value, "the step", pointer)?,
        };
        let record = Record {
            key: StreamKey::new(&text(&value, "the key", &self.key)?)?,
            position: integer(&value, "the position", &self.position)?,
            step,
            tenant: tenant.map(Into::into),
            payload,
        };
        record
            .check()
            .map_err(|error| RecordFieldsError::Range(error.to_string()))?;
        Ok(record)
    }
}

fn text(value: &Value, what: &'static str, pointer: &str) -> Result<String, RecordFieldsError> {
    let found = value.pointer(pointer);
    found
        .and_then(text_or_integer)
        .ok_or_else(|| missing(what, pointer, found))
}

/// A text, or a whole number as text.
fn text_or_integer(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "positions end where doubles stop being exact"
)]
fn integer(value: &Value, what: &'static str, pointer: &str) -> Result<i64, RecordFieldsError> {
    let found = value.pointer(pointer);
    let exact = |number: f64| {
        (number.fract() == 0.0 && number.abs() <= POSITION_MAX as f64).then_some(number as i64)
    };
    // The wire says "number": 1.7e12 and 1700000000000.0 are positions too.
    let number = found.and_then(|found| found.as_i64().or_else(|| found.as_f64().and_then(exact)));
    number.ok_or_else(|| missing(what, pointer, found))
}

fn missing(what: &'static str, pointer: &str, found: Option<&Value>) -> RecordFieldsError {
    let found = match found {
        None => "nothing".to_owned(),
        Some(Value::Array(_)) => "an array".to_owned(),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(value) => value.to_string().chars().take(60).collect(),
    };
    RecordFieldsError::Missing {
        what,
        pointer: pointer.to_owned(),
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(step: &str) -> RecordFields {
        RecordFields {
            key: "/id".to_owned(),
            position: "/at/ms".to_owned(),
            tenant: Some("/org".to_owned()),
            step: StepField::parse(step).unwrap(),
        }
    }

    #[test]
    fn parts_are_found_by_pointers() {
        let json = r#"{"id": 7, "at": {"ms": 1.7e12}, "org": "o", "every": 300}"#;
        let record = fields("5m").record(json).unwrap();
        assert_eq!(
            (record.key.as_str(), record.position, record.step),
            ("7", 1_700_000_000_000, 300_000)
        );
        assert_eq!(
            (record.tenant.as_deref(), record.payload.as_bytes()),
            (Some("o"), json.as_bytes())
        );
        assert_eq!(fields("/every").record(json).unwrap().step, 300);
    }

    #[test]
    fn what_is_missing_is_named_with_its_place() {
        let error = |json: &str, step| {
            fields(step)
                .record(json.to_owned())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(r#"{"at":{"ms":1}}"#, "5m"),
            "the key of the record is not at `/id`: there is nothing"
        );
        assert_eq!(
            error(r#"{"id":"a","at":{"ms":"soon"}}"#, "5m"),
            "the position of the record is not at `/at/ms`: there is \"soon\""
        );
        assert!(
            error(r#"{"id":"a","at":{"ms":1},"every":0}"#, "/every")
                .starts_with("step 0 is out of range")
        );
        assert!(error("nope", "5m").starts_with("the payload is not JSON"));
        assert!(error(r#"{"id":"","at":{"ms":1}}"#, "5m").starts_with("a stream's key has 1 to"));
    }

    #[test]
    fn a_step_is_a_pointer_or_a_length_of_time() {
        assert_eq!(StepField::parse("5m").unwrap().usual(), Some(300_000));
        assert_eq!(
            StepField::parse("/step").unwrap(),
            StepField::At("/step".to_owned())
        );
        assert!(StepField::parse("often").is_err() && StepField::parse("0s").is_err());
    }
}
