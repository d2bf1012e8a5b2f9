//! Decides which jobs are the same work when the producer names no key: those with the same
//! payload, or with the same values in chosen fields.

use super::UniqueKey;
use crate::name::Kind;
use crate::payload::Payload;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;

/// What makes two jobs of one queue and kind the same work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UniqueBy {
    /// Compares the payload, byte for byte.
    Payload,
    /// Compares the values at these JSON pointers, as they are written.
    Fields(Vec<String>),
}

/// A rule that cannot be applied to a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UniqueByError {
    /// A field name is not a JSON pointer.
    #[error("`{0}` is no JSON pointer; it begins with /, such as \"/{0}\"")]
    NotAPointer(String),
    /// The payload has no such field.
    #[error(
        "the payload has nothing at {0}, by which the job is to be unique; push it with the field, or with a unique key of its own"
    )]
    Absent(String),
}

impl UniqueBy {
    /// Parses `payload`, or JSON pointers separated by commas.
    pub fn parse(text: &str) -> Result<Self, UniqueByError> {
        if text == "payload" {
            return Ok(Self::Payload);
        }
        let fields: Vec<String> = text
            .split(',')
            .map(|field| field.trim().to_owned())
            .collect();
        match fields.iter().find(|field| !field.starts_with('/')) {
            Some(field) => Err(UniqueByError::NotAPointer(field.clone())),
            None => Ok(Self::Fields(fields)),
        }
    }

    /// The unique key that all jobs of the same work share.
    pub fn key(&self, kind: &Kind, payload: &Payload) -> Result<UniqueKey, UniqueByError> {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            // Each part is preceded by its length, so that no two lists of parts give the same
            // bytes.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        add(kind.as_str().as_bytes());
        match self {
            Self::Payload => add(payload.as_bytes()),
            Self::Fields(pointers) => {
                for pointer in pointers {
                    let value = at(payload.as_bytes(), pointer)
                        .ok_or_else(|| UniqueByError::Absent(pointer.clone()))?;
                    add(pointer.as_bytes());
                    add(value.as_bytes());
                }
            }
        }
        let mut text = match self {
            Self::Payload => "payload:".to_owned(),
            Self::Fields(_) => "fields:".to_owned(),
        };
        for byte in digest.finalize() {
            write!(text, "{byte:02x}").expect("text takes text");
        }
        Ok(UniqueKey::new(&text).expect("a digest is short and has no NUL"))
    }
}

/// The text of the value at a JSON pointer.
fn at<'a>(json: &'a [u8], pointer: &str) -> Option<&'a str> {
    let mut value: &RawValue = serde_json::from_slice(json).ok()?;
    for step in pointer.strip_prefix('/')?.split('/') {
        let step = step.replace("~1", "/").replace("~0", "~");
        value = match value.get().as_bytes().first()? {
            b'{' => serde_json::from_str::<HashMap<String, &RawValue>>(value.get())
                .ok()?
                .remove(&step)?,
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
                items.get(step.parse::<usize>().ok()?).copied()?
            }
            _ => return None,
        };
    }
    Some(value.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(by: &str, kind: &str, payload: &str) -> Result<String, UniqueByError> {
        let payload = Payload::json(payload.to_owned()).expect("JSON");
        Ok(UniqueBy::parse(by)?
            .key(&Kind::new(kind).expect("a kind"), &payload)?
            .to_string())
    }

    #[test]
    fn the_same_payload_of_one_kind_is_the_same_work() {
        let one = key("payload", "a", r#"{"n":1}"#).unwrap();
        assert_eq!(key("payload", "a", r#"{"n":1}"#).unwrap(), one);
        assert_ne!(key("payload", "b", r#"{"n":1}"#).unwrap(), one);
        assert_ne!(key("payload", "a", r#"{"n":1.0}"#).unwrap(), one);
        assert_ne!(
            key("payload", "a", "10000000000000000000001").unwrap(),
            key("payload", "a", "10000000000000000000002").unwrap(),
            "numbers are compared as written"
        );
    }

    #[test]
    fn chosen_fields_are_the_only_ones_that_count() {
        let one = key("/user,/at/0", "a", r#"{"user":7,"at":["x"],"else":1}"#).unwrap();
        assert_eq!(
            key("/user,/at/0", "a", r#"{"at":["x","y"],"user":7}"#).unwrap(),
            one
        );
        assert_ne!(
            key("/user,/at/0", "a", r#"{"at":["z"],"user":7}"#).unwrap(),
            one
        );
        assert_ne!(
            key("/user,/at/0", "a", r#"{"at":["x"],"user":"7"}"#).unwrap(),
            one
        );
        assert_ne!(
            key("/at/0,/user", "a", r#"{"user":7,"at":["x"]}"#).unwrap(),
            one
        );
        assert!(key("/a~1b/m~0n", "a", r#"{"a/b":{"m~n":null}}"#).is_ok());
    }

    #[test]
    fn a_field_that_is_not_there_makes_nothing_unique() {
        for payload in ["{}", "7", r#"{"user":{}}"#, r#"{"user":[]}"#] {
            assert_eq!(
                key("/user/0", "a", payload),
                Err(UniqueByError::Absent("/user/0".to_owned())),
                "{payload}"
            );
        }
        assert_eq!(
            key("user", "a", "{}"),
            Err(UniqueByError::NotAPointer("user".to_owned()))
        );
    }
}
