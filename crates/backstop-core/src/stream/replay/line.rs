//! One line of the input of a replay.

use crate::name::{InvalidName, StreamKey};
use crate::payload::Payload;
use crate::stream::record::{InvalidRecord, Record};
use crate::time::Time;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An event and its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayLine {
    pub at: Time,
    pub event: ReplayEvent,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayEvent {
    /// A record arrives, and its handler fails `fail` times.
    Record {
        record: Record,
        /// How often the handler fails before it succeeds.
        fail: u32,
    },
    Forget(StreamKey),
    Disable(StreamKey),
    /// An operator enables a key again.
    Enable(StreamKey),
    /// The store stops answering calls.
    StoreDown,
    StoreUp,
}

/// A line that the replay cannot play.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReplayLine {
    /// The line is not valid JSON of a known shape.
    #[error(
        "{0}; write {{\"at_ms\":0,\"key\":\"a\",\"position\":60000}}, {{\"at_ms\":0,\"key\":\"a\",\"event\":\"forget\"}} or {{\"at_ms\":0,\"event\":\"store_down\"}}"
    )]
    Shape(String),
    #[error("no step: give the stream a `step`, or this line a `step_ms`")]
    NoStep,
    #[error(transparent)]
    Key(#[from] InvalidName),
    #[error(transparent)]
    Record(#[from] InvalidRecord),
    /// The time of the line is before the time of the line before it.
    #[error("at_ms {at_ms} comes after {after_ms}; lines must be in the order of their at_ms")]
    OutOfOrder {
        at_ms: i64,
        /// The time that the replay has already reached.
        after_ms: i64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayLineInput<'a> {
    at_ms: i64,
    key: Option<String>,
    position: Option<i64>,
    tenant: Option<String>,
    step_ms: Option<i64>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    fail: Option<u32>,
    event: Option<String>,
}

impl ReplayLine {
    /// Parses a line. `step` is the default for records without a `step_ms`.
    pub fn parse(text: &str, step: Option<i64>) -> Result<Self, InvalidReplayLine> {
        let written: ReplayLineInput<'_> = serde_json::from_str(text)
            .map_err(|error| InvalidReplayLine::Shape(error.to_string()))?;
        let at = Time::from_millis(written.at_ms);
        let event = match (&written.event, &written.key, written.position) {
            (Some(event), key, None) => parse_event(event, key.as_deref())?,
            (None, Some(key), Some(position)) => parse_record(&written, key, position, step)?,
            _ => {
                return Err(InvalidReplayLine::Shape(
                    "neither a record nor an event".to_owned(),
                ));
            }
        };
        Ok(Self { at, event })
    }
}

fn parse_record(
    written: &ReplayLineInput<'_>,
    key: &str,
    position: i64,
    step: Option<i64>,
) -> Result<ReplayEvent, InvalidReplayLine> {
    let payload = written.payload.map_or("null", RawValue::get);
    let record = Record {
        key: StreamKey::new(key)?,
        position,
        step: written.step_ms.or(step).ok_or(InvalidReplayLine::NoStep)?,
        tenant: written.tenant.as_deref().map(Into::into),
        payload: Payload::json(payload.to_owned())
            .map_err(|error| InvalidReplayLine::Shape(error.to_string()))?,
    };
    record.check()?;
    Ok(ReplayEvent::Record {
        record,
        fail: written.fail.unwrap_or(0),
    })
}

fn parse_event(event: &str, key: Option<&str>) -> Result<ReplayEvent, InvalidReplayLine> {
    Ok(match (event, key) {
        ("store_down", None) => ReplayEvent::StoreDown,
        ("store_up", None) => ReplayEvent::StoreUp,
        ("forget", Some(key)) => ReplayEvent::Forget(StreamKey::new(key)?),
        ("disable", Some(key)) => ReplayEvent::Disable(StreamKey::new(key)?),
        ("enable", Some(key)) => ReplayEvent::Enable(StreamKey::new(key)?),
        ("forget" | "disable" | "enable", None) => {
            return Err(InvalidReplayLine::Shape(format!("`{event}` of which key?")));
        }
        (other, _) => {
            let known = "forget, disable, enable (of a key), store_down, store_up";
            return Err(InvalidReplayLine::Shape(format!(
                "`{other}` is no event; there are {known}"
            )));
        }
    })
}
