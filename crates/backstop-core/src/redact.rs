//! Redaction of secrets: the values of fields with secret names, and values known to be secret.
//!
//! In JSON, field names are known exactly. In free text (messages, stack traces, response bodies),
//! a name followed by `=` or `:` counts as a field, and the password in an address as its value.
//! Where the end of a value is uncertain, the redaction hides more rather than less. Every text is
//! read once, from start to end.

mod text;
mod value;

use crate::failure::{ErrorReport, FailureRecord, truncate_text};
use crate::limits::{ERROR_CHARS_MAX, RESPONSE_CHARS_MAX, STACK_CHARS_MAX};
use serde::de::IgnoredAny;
use std::fmt;

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// The default names of secret fields.
pub const SECRET_NAMES: [&str; 5] = ["password", "token", "authorization", "secret", "api_key"];

/// The rules of a redaction: secret field names, and values that are secret wherever they occur.
#[derive(Clone, PartialEq, Eq)]
pub struct Redaction {
    names: Vec<String>,
    /// The longest value comes first: if one value contains another, no part of it may remain.
    values: Vec<String>,
}

/// Omits the values, because a configuration is printed for debugging as well.
impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Default for Redaction {
    fn default() -> Self {
        Self::of(SECRET_NAMES)
    }
}

impl Redaction {
    /// Hides the values of fields with these names; an empty list hides none.
    pub fn of(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = names.into_iter().map(|name| plain(name.as_ref()));
        Self {
            names: names.filter(|name| !name.is_empty()).collect(),
            values: Vec::new(),
        }
    }

    /// Whether a field of this name is secret: its name contains one of the secret names, in any
    /// case and with any separators. `db_password`, `X-Api-Key` and `apiKey` are secret.
    pub fn is_secret(&self, field: &str) -> bool {
        let field = plain(field);
        self.names.iter().any(|name| field.contains(name.as_str()))
    }

    /// Replaces the values of secret fields in a payload, at any depth, and keeps every other byte.
    /// A payload that is not JSON is treated as free text.
    pub fn payload(&self, bytes: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(bytes) {
            Ok(text) if is_json(text) => self.json(text).into_bytes(),
            _ => self.text(&String::from_utf8_lossy(bytes)).into_bytes(),
        }
    }

    /// Replaces in free text everything that looks like a secret.
    pub fn text(&self, text: &str) -> String {
        if text.trim_start().starts_with(['{', '[']) && is_json(text) {
            // `json` reads escaped names; texts inside of the JSON are free text again.
            return self.without_values(self.free_text(&self.json(text)));
        }
        self.without_values(self.free_text(text))
    }

    /// Redacts an error, and truncates it to the limits.
    #[must_use]
    pub fn error(&self, error: &ErrorReport) -> ErrorReport {
        let shown = |text: &String, chars_max| truncate_text(self.text(text), chars_max);
        ErrorReport {
            message: shown(&error.message, ERROR_CHARS_MAX),
            error_type: error
                .error_type
                .as_ref()
                .map(|text| shown(text, ERROR_CHARS_MAX)),
            stack_trace: error
                .stack_trace
                .as_ref()
                .map(|text| shown(text, STACK_CHARS_MAX)),
            http_status: error.http_status,
            response_body: error
                .response_body
                .as_ref()
                .map(|text| shown(text, RESPONSE_CHARS_MAX)),
        }
    }

    /// Redacts a failure, so that it may be shown.
    #[must_use]
    pub fn failure(&self, failure: FailureRecord) -> FailureRecord {
        FailureRecord {
            error: self.error(&failure.error),
            ..failure
        }
    }

    /// Redacts JSON. In JSON, only a field's name is a string followed by a colon.
    fn json(&self, text: &str) -> String {
        let bytes = text.as_bytes();
        let (mut shown, mut copied, mut at) = (String::with_capacity(text.len()), 0, 0);
        while at < bytes.len() {
            if bytes[at] != b'"' {
                at += 1;
                continue;
            }
            let name = at..string_end(bytes, at);
            let colon = space_end(bytes, name.end);
            at = name.end;
            if let Some(string) = self.string_without_values(&text[name.clone()]) {
                shown.push_str(&text[copied..name.start]);
                shown.push_str(&string);
                copied = name.end;
            }
            if bytes.get(colon) == Some(&b':') && self.is_secret(&unescaped(&text[name])) {
                let value = space_end(bytes, colon + 1);
                shown.push_str(&text[copied..value]);
                shown.push('"');
                shown.push_str(REDACTED);
                shown.push('"');
                at = value_end(bytes, value);
                copied = at;
            }
        }
        shown.push_str(&text[copied..]);
        shown
    }
}

/// The name in lower case, without separators.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn space_end(bytes: &[u8], from: usize) -> usize {
    let space = bytes[from..]
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace());
    from + space.count()
}

/// The end of the string that starts at `from`.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The end of the value that starts at `from`.
fn value_end(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' if depth > 0 => (at, depth) = (at + 1, depth - 1),
            _ if depth > 0 => at += 1,
            _ => {
                at += bytes[at..]
                    .iter()
                    .take_while(|byte| is_scalar(**byte))
                    .count()
                    .max(1);
            }
        }
        if depth == 0 {
            break;
        }
    }
    at
}

const fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// Unescapes a JSON string well enough for a name; an invalid escape becomes a replacement
/// character.
fn unescaped(text: &str) -> String {
    let (mut read, mut rest) = (String::new(), text.chars());
    while let Some(next) = rest.next() {
        match (next, if next == '\\' { rest.next() } else { None }) {
            ('\\', Some('u')) => {
                let digits: String = rest.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok();
                read.push(
                    code.and_then(char::from_u32)
                        .unwrap_or(char::REPLACEMENT_CHARACTER),
                );
            }
            ('\\', Some(escaped)) => read.push(escaped),
            _ => read.push(next),
        }
    }
    read
}

#[cfg(test)]
mod tests;
