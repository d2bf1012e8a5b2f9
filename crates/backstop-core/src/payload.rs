//! Payloads of jobs: bytes that are returned unchanged. They are checked once to be JSON and never
//! parsed again.

use crate::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};
use bytes::Bytes;
use serde::de::IgnoredAny;
use std::fmt;

/// The bytes of a job's payload.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Payload(Bytes);

/// Bytes that cannot be a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPayload {
    /// The bytes are not JSON, or not UTF-8.
    #[error("the payload is not JSON: {0}")]
    NotJson(String),
    #[error("the payload is nested {0} deep; {PAYLOAD_DEPTH_MAX} is the most")]
    TooDeep(usize),
    #[error(
        "the payload has {0} bytes; {PAYLOAD_BYTES_MAX} is the most. Store large data elsewhere and push its address"
    )]
    TooLarge(usize),
}

impl Payload {
    /// Makes a payload of these bytes, if they are JSON within the limits.
    pub fn json(bytes: impl Into<Bytes>) -> Result<Self, InvalidPayload> {
        let bytes = bytes.into();
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(InvalidPayload::TooLarge(bytes.len()));
        }
        // Check the depth first: the parser below does not recurse, but a reader of the payload
        // may.
        let depth = depth(&bytes);
        if depth > PAYLOAD_DEPTH_MAX {
            return Err(InvalidPayload::TooDeep(depth));
        }
        std::str::from_utf8(&bytes).map_err(|error| InvalidPayload::NotJson(error.to_string()))?;
        serde_json::from_slice::<IgnoredAny>(&bytes)
            .map_err(|error| InvalidPayload::NotJson(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// Makes a payload of bytes that a JSON parser has already read, if they are within the limits.
    /// The bytes are not parsed again.
    pub fn from_valid_json(bytes: impl Into<Bytes>) -> Result<Self, InvalidPayload> {
        let bytes = bytes.into();
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(InvalidPayload::TooLarge(bytes.len()));
        }
        match depth(&bytes) {
            depth if depth > PAYLOAD_DEPTH_MAX => Err(InvalidPayload::TooDeep(depth)),
            _ => Ok(Self(bytes)),
        }
    }

    /// The payload that a store returned. It was checked when the job was enqueued, so it is
    /// accepted as it is.
    pub fn from_stored(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    /// Prints only the size: payloads may carry secrets, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// The deepest nesting of brackets outside of strings.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_any_shape_is_kept_to_the_byte() {
        for text in [
            "null",
            r#"{"a":"\u0000"}"#,
            r#""\ud800""#,
            "9223372036854775808",
            "1e400",
            r#"{"a":1,"a":2}"#,
            " [1 , 2]\n",
            r#"{"deep in a string": "[[[[{{{{"}"#,
        ] {
            let payload = Payload::json(text).expect(text);
            assert_eq!(payload.as_bytes(), text.as_bytes());
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bytes in [
            &b""[..],
            b"{",
            b"nope",
            b"{\"a\":1}x",
            b"\"\xff\"",
            b"{\"a\":\"\0\"}",
            b"[1,]",
        ] {
            assert!(
                matches!(
                    Payload::json(bytes.to_vec()),
                    Err(InvalidPayload::NotJson(_))
                ),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn depth_and_size_end_at_their_limits() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        let checks: [fn(String) -> Result<Payload, InvalidPayload>; 2] = [
            |text| Payload::json(text),
            |text| Payload::from_valid_json(text),
        ];
        for check in checks {
            assert!(check(nested(128)).is_ok());
            assert_eq!(check(nested(129)), Err(InvalidPayload::TooDeep(129)));
        }
        let text = |n: usize| format!("\"{}\"", "x".repeat(n - 2));
        assert!(Payload::json(text(PAYLOAD_BYTES_MAX)).is_ok());
        assert_eq!(
            Payload::json(text(PAYLOAD_BYTES_MAX + 1)),
            Err(InvalidPayload::TooLarge(PAYLOAD_BYTES_MAX + 1))
        );
    }
}
