//! Names that users choose: for queues, kinds of jobs, streams, stream keys and schedules.

use crate::limits::{KIND_BYTES_MAX, QUEUE_NAME_MAX, STREAM_KEY_BYTES_MAX, STREAM_NAME_MAX};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a queue: letters, digits, `.`, `_` and `-`, so that it can stand in any key, path or
/// label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(Arc<str>);

/// The kind of a job, which selects its handler: any text without a NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(Arc<str>);

/// The name of a stream. It has the form of a queue name, for the same reason.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName(Arc<str>);

/// The key of a stream's records; records of one key are handled in order. Any text without a NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(Arc<str>);

/// The name of a schedule. It has the form of a queue name, for the same reason.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleName(Arc<str>);

/// A name that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("`{0}` is not a queue name; use 1 to {QUEUE_NAME_MAX} of A-Z a-z 0-9 . _ -")]
    Queue(String),
    #[error("a kind has 1 to {KIND_BYTES_MAX} bytes and no NUL among them; this one has {0}")]
    Kind(usize),
    #[error("`{0}` is not a stream's name; use 1 to {STREAM_NAME_MAX} of A-Z a-z 0-9 . _ -")]
    Stream(String),
    #[error(
        "a stream's key has 1 to {STREAM_KEY_BYTES_MAX} bytes and no NUL among them; this one has {0}"
    )]
    Key(usize),
    #[error("`{0}` is not a schedule's name; use 1 to {QUEUE_NAME_MAX} of A-Z a-z 0-9 . _ -")]
    Schedule(String),
}

/// Whether a text can stand in any key, path or label.
fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=QUEUE_NAME_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

/// Whether a text has 1 to `max` bytes and no NUL. PostgreSQL allows no NUL in text, and every name
/// must be valid in every store.
fn is_text(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && !text.contains('\0')
}

impl QueueName {
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if !is_plain(text) {
            return Err(InvalidName::Queue(
                text.chars().take(QUEUE_NAME_MAX).collect(),
            ));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Kind {
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if !is_text(text, KIND_BYTES_MAX) {
            return Err(InvalidName::Kind(text.len()));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl StreamName {
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        // The queue of the stream's dead letters adds a prefix to this name.
        if !is_plain(text) || text.len() > STREAM_NAME_MAX {
            return Err(InvalidName::Stream(
                text.chars().take(QUEUE_NAME_MAX).collect(),
            ));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl StreamKey {
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if !is_text(text, STREAM_KEY_BYTES_MAX) {
            return Err(InvalidName::Key(text.len()));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ScheduleName {
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if !is_plain(text) {
            return Err(InvalidName::Schedule(
                text.chars().take(QUEUE_NAME_MAX).collect(),
            ));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Kind {
    /// The kind for a queue that has only one handler.
    fn default() -> Self {
        Self("default".into())
    }
}

macro_rules! text_forms {
    ($name:ident) => {
        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }
        impl TryFrom<&str> for $name {
            type Error = InvalidName;
            fn try_from(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_forms!(QueueName);
text_forms!(Kind);
text_forms!(StreamName);
text_forms!(StreamKey);
text_forms!(ScheduleName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_name_can_stand_anywhere() {
        for good in ["emails", "a", "detection_queue", "v1.2-x", &"q".repeat(128)] {
            assert!(QueueName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            " ",
            "a b",
            "x\"; DROP TABLE--",
            "../..",
            "%00",
            "é",
            "🙂",
            "a\0",
            &"q".repeat(129),
        ] {
            assert!(QueueName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_kind_is_any_text_of_bounded_length() {
        assert!(Kind::new("Send e-mail 🙂").is_ok());
        assert_eq!(Kind::new(""), Err(InvalidName::Kind(0)));
        assert_eq!(Kind::new("a\0"), Err(InvalidName::Kind(2)));
        assert_eq!(Kind::new(&"k".repeat(257)), Err(InvalidName::Kind(257)));
    }
}
