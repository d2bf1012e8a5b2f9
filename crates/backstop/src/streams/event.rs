//! What a handler of a stream gets.

use backstop_core::stream::{HandlerCall, KeyWindow};
use backstop_core::{Payload, StreamKey, StreamName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;
use std::sync::Arc;

/// One thing to be handled, at its turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamEvent {
    pub stream: StreamName,
    pub key: StreamKey,
    /// The position; the first of a range.
    pub position: i64,
    /// How far apart the positions are.
    pub step: i64,
    pub effect: EventEffect,
    pub tenant: Option<Arc<str>>,
    /// The record; none if it is missing.
    pub payload: Option<Payload>,
    /// Of something missing: the record that shows it, right behind the gap.
    pub following: Option<Payload>,
    /// 1 in the first run.
    pub attempt: u32,
}

/// Why the handler of a stream is called: a record, a miss or an amendment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventEffect {
    /// A record at its turn.
    Handled,
    /// A position whose record did not come.
    Miss,
    /// The rest of a gap that is too wide to be told one by one.
    MissRange {
        to: i64,
        /// How many positions it has.
        count: u64,
    },
    /// A record that was declared missing and came after all.
    Amended,
}

impl EventEffect {
    /// The words of all effects.
    pub(super) const WORDS: [&str; 4] = ["handled", "miss", "miss_range", "amended"];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Miss => "miss",
            Self::MissRange { .. } => "miss_range",
            Self::Amended => "amended",
        }
    }
}

impl fmt::Display for EventEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<HandlerCall> for EventEffect {
    fn from(call: HandlerCall) -> Self {
        match call {
            HandlerCall::Handle { .. } => Self::Handled,
            HandlerCall::Miss { .. } => Self::Miss,
            HandlerCall::MissRange { to, count, .. } => Self::MissRange { to, count },
            HandlerCall::Amend { .. } => Self::Amended,
        }
    }
}

/// An event as commands and services get it.
#[derive(Serialize, Deserialize)]
struct EventJson<'a> {
    stream: StreamName,
    key: StreamKey,
    position: i64,
    effect: String,
    step: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    to: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    tenant: Option<String>,
    attempt: u32,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none", default)]
    following: Option<&'a RawValue>,
}

impl StreamEvent {
    /// What a call is about.
    pub(super) fn new(stream: &StreamName, window: &KeyWindow, call: HandlerCall) -> Self {
        let position = call.position();
        let own = window.held(position);
        let behind = window
            .head()
            .map(|(_, held)| held)
            .filter(|_| own.is_none());
        let about = own.or(behind);
        let failing = window
            .state()
            .failing
            .as_ref()
            .filter(|failing| failing.position == position);
        Self {
            stream: stream.clone(),
            key: window.key().clone(),
            position,
            step: about.map_or(1, |held| held.step),
            effect: call.into(),
            tenant: about.and_then(|held| held.tenant.clone()),
            payload: own.map(|held| held.payload.clone()),
            following: behind.map(|held| held.payload.clone()),
            attempt: failing
                .map_or(0, |failing| failing.failures)
                .saturating_add(1),
        }
    }

    /// As JSON: `{"stream","key","position","effect","step","attempt","payload",…}`, with the
    /// payload as it came in. A payload that is not JSON is left out.
    pub fn to_json(&self) -> Vec<u8> {
        let raw = |payload: &Option<Payload>| {
            let bytes = payload.as_ref().map(Payload::as_bytes)?;
            serde_json::from_slice::<Box<RawValue>>(bytes).ok()
        };
        let (payload, following) = (raw(&self.payload), raw(&self.following));
        let (to, count) = match self.effect {
            EventEffect::MissRange { to, count } => (Some(to), Some(count)),
            EventEffect::Handled | EventEffect::Miss | EventEffect::Amended => (None, None),
        };
        let written = EventJson {
            stream: self.stream.clone(),
            key: self.key.clone(),
            position: self.position,
            effect: self.effect.to_string(),
            step: self.step,
            to,
            count,
            tenant: self.tenant.as_deref().map(str::to_owned),
            attempt: self.attempt,
            payload: payload.as_deref(),
            following: following.as_deref(),
        };
        serde_json::to_vec(&written).expect("names, numbers and JSON can be written as JSON")
    }

    /// An event that was written down, such as that of a dead letter.
    pub fn from_json(bytes: &[u8]) -> serde_json::Result<Self> {
        use serde::de::Error;
        let written: EventJson<'_> = serde_json::from_slice(bytes)?;
        let payload = |raw: &RawValue| Payload::from_stored(raw.get().as_bytes().to_vec());
        let effect = match (written.effect.as_str(), written.to, written.count) {
            ("handled", ..) => EventEffect::Handled,
            ("miss", ..) => EventEffect::Miss,
            ("amended", ..) => EventEffect::Amended,
            ("miss_range", Some(to), Some(count)) => EventEffect::MissRange { to, count },
            (other, ..) => {
                return Err(Error::custom(format!("`{other}` is no effect of a stream")));
            }
        };
        Ok(Self {
            stream: written.stream,
            key: written.key,
            position: written.position,
            step: written.step,
            effect,
            tenant: written.tenant.map(Into::into),
            payload: written.payload.map(payload),
            following: written.following.map(payload),
            attempt: written.attempt,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let event = StreamEvent {
            stream: StreamName::new("uptime").unwrap(),
            key: StreamKey::new("k \"1\"").unwrap(),
            position: 60_000,
            step: 1_000,
            effect: EventEffect::MissRange {
                to: 90_000,
                count: 31,
            },
            tenant: Some("org".into()),
            payload: None,
            following: Some(Payload::from_stored(
                &b"{\"big\": 9223372036854775808, \"b\":[1 ]}"[..],
            )),
            attempt: 2,
        };
        assert_eq!(StreamEvent::from_json(&event.to_json()).unwrap(), event);
        let handled = StreamEvent {
            effect: EventEffect::Handled,
            payload: event.following.clone(),
            following: None,
            ..event
        };
        assert_eq!(StreamEvent::from_json(&handled.to_json()).unwrap(), handled);
        let text = String::from_utf8(handled.to_json()).unwrap();
        assert!(
            text.starts_with(
                r#"{"stream":"uptime","key":"k \"1\"","position":60000,"effect":"handled""#
            ),
            "{text}"
        );
    }
}
