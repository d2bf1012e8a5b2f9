//! A payload as JSON: the bytes as they are, without being read into values.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt::Write as _;

/// A payload within a JSON text.
#[derive(Debug)]
pub enum PayloadShape<'a> {
    /// As it is, byte for byte.
    Json(&'a RawValue),
    /// As text, and its bytes beside it: what is not JSON. backstop takes none in, but a damaged
    /// store may hold some.
    Text {
        /// The text, as a JSON string.
        text: Box<RawValue>,
        hex: String,
    },
}

impl<'a> PayloadShape<'a> {
    /// The shape of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        match serde_json::from_slice::<&RawValue>(bytes) {
            Ok(raw) => Self::Json(raw),
            Err(_) => Self::Text {
                text: quoted(&String::from_utf8_lossy(bytes)),
                hex: hex(bytes),
            },
        }
    }

    /// The bytes in hexadecimal, where the shape shows something else.
    pub fn hex(&self) -> Option<&str> {
        match self {
            Self::Json(_) => None,
            Self::Text { hex, .. } => Some(hex),
        }
    }
}

impl Serialize for PayloadShape<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(raw) => raw.serialize(serializer),
            Self::Text { text, .. } => text.serialize(serializer),
        }
    }
}

fn quoted(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).expect("text is JSON")
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes everything");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> (String, Option<String>) {
        let shape = PayloadShape::new(bytes);
        (
            serde_json::to_string(&shape).unwrap(),
            shape.hex().map(str::to_owned),
        )
    }

    #[test]
    fn a_payload_comes_out_as_it_went_in() {
        let text = r#"{"a": 1.0, "a":1e2 }"#;
        assert_eq!(shown(text.as_bytes()), (text.to_owned(), None));
    }

    #[test]
    fn what_is_not_json_is_text_with_its_bytes_beside_it() {
        assert_eq!(
            shown(b"\xff{"),
            ("\"\u{fffd}{\"".to_owned(), Some("ff7b".to_owned()))
        );
    }
}
