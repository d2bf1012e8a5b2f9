//! Values of a row: as a database gives them, as a key that can be noted down, and as JSON.

use super::link::SqlParam;
use backstop_core::limits::TABLE_KEY_BYTES_MAX;
use serde::de::IgnoredAny;
use serde_json::{Number, Value};
use std::fmt::Write;

/// A value as a database gives it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum SqlValue {
    Null,
    Whole(i128),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Text in letters that there are not.
    Broken(Vec<u8>),
    /// A decimal number in digits.
    Digits(String),
    Json(String),
}

/// What a row is known by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum RowKey {
    Whole(i128),
    Text(String),
    Bytes(Vec<u8>),
}

impl RowKey {
    /// The key that a cell is; `None` for what can be none.
    pub(super) fn of(cell: &SqlValue) -> Option<Self> {
        match cell {
            SqlValue::Whole(number) => Some(Self::Whole(*number)),
            SqlValue::Digits(digits) => Some(
                digits
                    .parse()
                    .map_or_else(|_| Self::Text(digits.clone()), Self::Whole),
            ),
            SqlValue::Text(text) => Some(Self::Text(text.clone())),
            SqlValue::Bytes(bytes) => Some(Self::Bytes(bytes.clone())),
            SqlValue::Null | SqlValue::Real(_) | SqlValue::Json(_) | SqlValue::Broken(_) => None,
        }
    }

    /// As text that another process can read.
    pub(super) fn token(&self) -> String {
        match self {
            Self::Whole(number) => format!("#{number}"),
            Self::Text(text) => format!("={text}"),
            Self::Bytes(bytes) => format!("x{}", hex(bytes)),
        }
    }

    /// What such a text says.
    pub(super) fn from_token(token: &str) -> Option<Self> {
        let (mark, rest) = token.split_at_checked(1)?;
        match mark {
            "#" => rest.parse().ok().map(Self::Whole),
            "=" => Some(Self::Text(rest.to_owned())),
            "x" => unhex(rest).map(Self::Bytes),
            _ => None,
        }
    }

    pub(super) fn param(&self) -> SqlParam {
        match self {
            Self::Whole(number) => SqlParam::Whole(*number),
            Self::Text(text) => SqlParam::Text(text.clone()),
            Self::Bytes(bytes) => SqlParam::Bytes(bytes.clone()),
        }
    }

    /// Whether it is short enough to be noted down.
    pub(super) fn is_short(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Text(text) => text.len() <= TABLE_KEY_BYTES_MAX,
            Self::Bytes(bytes) => bytes.len() <= TABLE_KEY_BYTES_MAX,
        }
    }

    /// As people and programs are told of it.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Whole(number) => {
                let small = i64::try_from(*number).map(Value::from);
                small
                    .or_else(|_| u64::try_from(*number).map(Value::from))
                    .unwrap_or_else(|_| number.to_string().into())
            }
            Self::Text(text) => text.as_str().into(),
            Self::Bytes(bytes) => hex(bytes).into(),
        }
    }
}

/// A row as a JSON object, in the order of its columns.
pub(super) fn object<'a>(cells: impl IntoIterator<Item = (&'a str, &'a SqlValue)>) -> String {
    let mut json = String::from("{");
    for (name, cell) in cells {
        if json.len() > 1 {
            json.push(',');
        }
        let _ = write!(json, "{}:", Value::from(name));
        put(&mut json, cell);
    }
    json.push('}');
    json
}

fn put(json: &mut String, cell: &SqlValue) {
    let _ = match cell {
        SqlValue::Null => write!(json, "null"),
        SqlValue::Whole(number) => write!(json, "{number}"),
        SqlValue::Real(number) => match Number::from_f64(*number) {
            Some(finite) => write!(json, "{finite}"),
            None => write!(json, "{}", Value::from(number.to_string())),
        },
        SqlValue::Digits(digits) if is_number(digits) => write!(json, "{digits}"),
        SqlValue::Bytes(bytes) | SqlValue::Broken(bytes) => write!(json, "\"{}\"", base64(bytes)),
        SqlValue::Json(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => {
            write!(json, "{text}")
        }
        SqlValue::Text(text) | SqlValue::Digits(text) | SqlValue::Json(text) => {
            write!(json, "{}", Value::from(text.as_str()))
        }
    };
}

/// Whether JSON takes these digits for a number as they are.
fn is_number(digits: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(digits).is_ok()
        && digits.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok())
        .collect()
}

/// Base64 as RFC 4648 has it, with its padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |at: usize| three.get(at).copied().map_or(0, u32::from);
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_as_it_was_noted_down() {
        for key in [
            RowKey::Whole(-5),
            RowKey::Whole(u64::MAX.into()),
            RowKey::Text("5".to_owned()),
            RowKey::Text(String::new()),
            RowKey::Text("a\"=#x\u{1f642}".to_owned()),
            RowKey::Bytes(vec![0, 255]),
        ] {
            assert_eq!(RowKey::from_token(&key.token()), Some(key));
        }
        for bad in ["", "5", "#x", "xz", "x1", "é"] {
            assert_eq!(RowKey::from_token(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_row_keeps_its_digits_its_bytes_and_its_order() {
        let cells = [
            (
                "b",
                SqlValue::Digits("123456789012345678901234567890.10".to_owned()),
            ),
            ("a\"", SqlValue::Text("it's\n".to_owned())),
            ("i", SqlValue::Whole(u64::MAX.into())),
            ("r", SqlValue::Real(0.1)),
            ("inf", SqlValue::Real(f64::INFINITY)),
            ("n", SqlValue::Null),
            ("x", SqlValue::Bytes(b"\xff\x00ab".to_vec())),
            ("j", SqlValue::Json("{\"k\":[1e400]}".to_owned())),
            ("bad", SqlValue::Json("{".to_owned())),
            ("nan", SqlValue::Digits("NaN".to_owned())),
        ];
        let json = object(cells.iter().map(|(name, cell)| (*name, cell)));
        assert_eq!(
            json,
            "{\"b\":123456789012345678901234567890.10,\"a\\\"\":\"it's\\n\",\"i\":18446744073709551615,\"r\":0.1,\"inf\":\"inf\",\"n\":null,\
             \"x\":\"/wBhYg==\",\"j\":{\"k\":[1e400]},\"bad\":\"{\",\"nan\":\"NaN\"}"
        );
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
