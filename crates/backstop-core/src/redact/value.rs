//! Secrets known by value: passwords that this process knows, wherever they occur.

use super::{REDACTED, Redaction, unescaped};
use std::borrow::Cow;

/// Shorter values are parts of ordinary words: hiding them would hide the text around them, and
/// reveal the values.
const VALUE_BYTES_MIN: usize = 6;

impl Redaction {
    /// Hides these values as well, whatever stands before them. Values of less than 6 bytes are
    /// ignored.
    #[must_use]
    pub fn with_values(mut self, values: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let values = values.into_iter().map(|value| value.as_ref().to_owned());
        self.values
            .extend(values.filter(|value| value.len() >= VALUE_BYTES_MIN));
        self.values
            .sort_unstable_by(|one, other| (other.len(), one).cmp(&(one.len(), other)));
        self.values.dedup();
        self
    }

    /// Hides the passwords of these addresses as well, both percent-encoded and decoded.
    #[must_use]
    pub fn with_addresses(self, addresses: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let values: Vec<String> = addresses
            .into_iter()
            .filter_map(|address| password_of(address.as_ref()))
            .flatten()
            .collect();
        self.with_values(values)
    }

    pub(super) fn without_values(&self, text: String) -> String {
        let found = |text: String, value: &String| {
            if text.contains(value.as_str()) {
                text.replace(value.as_str(), REDACTED)
            } else {
                text
            }
        };
        self.values.iter().fold(text, found)
    }

    /// Redacts a JSON string; `None` if it contains no secret value. The string is unescaped first,
    /// because it may be escaped in more than one way.
    pub(super) fn string_without_values(&self, string: &str) -> Option<String> {
        if self.values.is_empty() {
            return None;
        }
        let read =
            serde_json::from_str(string).unwrap_or_else(|_| unescaped(string.trim_matches('"')));
        let shown = self.without_values(read.clone());
        (shown != read).then(|| serde_json::Value::from(shown).to_string())
    }
}

/// The password of an address, encoded and decoded. A password that also occurs elsewhere in the
/// address, as in `postgres://postgres:postgres@host`, is an ordinary word and no secret.
fn password_of(address: &str) -> Option<[String; 2]> {
    let (scheme, rest) = address.split_once("://")?;
    let (login, place) = rest.rsplit_once('@')?;
    let (user, password) = login.split_once(':')?;
    let is_word = [scheme, user, place]
        .iter()
        .any(|part| part.contains(password));
    (!is_word).then(|| [password.to_owned(), percent_decoded(password).into_owned()])
}

/// Decodes the percent-encoding of an address.
fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        let escaped = if *first == b'%' { byte_of(after) } else { None };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn byte_of(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..2)?).ok()?;
    u8::from_str_radix(digits, 16).ok()
}
