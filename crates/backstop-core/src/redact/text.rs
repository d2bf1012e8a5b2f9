//! Secrets in free text, recognized by the text before them.

use super::{REDACTED, Redaction, plain};
use std::ops::Range;

/// Words that only name the scheme of a credential.
const SCHEMES: [&str; 6] = ["bearer", "basic", "digest", "token", "negotiate", "apikey"];
/// A bare `Bearer` counts only if a credential of this length follows; ordinary text about bearers
/// goes on in words.
const CREDENTIAL_BYTES_MIN: usize = 8;
/// Up to this length, letters alone may be a word; a longer run is a credential.
const WORD_BYTES_MAX: usize = 20;

impl Redaction {
    /// Replaces the values of secret names, and passwords in addresses.
    pub(super) fn free_text(&self, text: &str) -> String {
        let bytes = text.as_bytes();
        let (mut shown, mut copied, mut at) = (String::with_capacity(text.len()), 0, 0);
        while at < bytes.len() {
            let (secret, passed) = if bytes[at..].starts_with(b"://") {
                (password(text, at + 3), at + 3)
            } else if is_name(bytes[at]) {
                let name = at..at
                    + bytes[at..]
                        .iter()
                        .take_while(|byte| is_name(**byte))
                        .count();
                (self.value_of(text, &name), name.end)
            } else {
                (None, at + 1)
            };
            at = passed;
            if let Some(secret) = secret {
                shown.push_str(&text[copied..secret.start]);
                shown.push_str(REDACTED);
                (at, copied) = (secret.end, secret.end);
            }
        }
        shown.push_str(&text[copied..]);
        shown
    }

    /// The range of the secret value that belongs to the name at `name`, if there is one.
    fn value_of(&self, text: &str, name: &Range<usize>) -> Option<Range<usize>> {
        let (bytes, word) = (text.as_bytes(), &text[name.clone()]);
        if word.eq_ignore_ascii_case("bearer") {
            return bare_credential(text, name.end);
        }
        let (separator, is_quoted) = separator_end(bytes, name.end)?;
        if !self.is_secret(word) {
            return None;
        }
        let value = blanks_end(bytes, separator);
        let range = if let Some(range) = quoted(bytes, value) {
            range
        } else if matches!(bytes.get(value), Some(b'{' | b'[')) {
            value..brackets_end(bytes, value)
        } else if plain(word).contains("authorization") {
            let quote = if is_quoted {
                None
            } else {
                name.start.checked_sub(1).map(|before| bytes[before])
            };
            value..line_end(bytes, value, quote.filter(|byte| is_quote(*byte)))
        } else {
            value..words_end(text, value)
        };
        (!range.is_empty()).then_some(range)
    }
}

/// Whether a byte belongs to a name. Bytes beyond ASCII do, so that names begin and end between
/// characters.
const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || !byte.is_ascii()
}

const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

fn count(bytes: &[u8], from: usize, is_so: impl Fn(u8) -> bool) -> usize {
    bytes[from.min(bytes.len())..]
        .iter()
        .take_while(|byte| is_so(**byte))
        .count()
}

fn blanks_end(bytes: &[u8], from: usize) -> usize {
    from + count(bytes, from, |byte| matches!(byte, b' ' | b'\t'))
}

/// The end of the separator between a name and its value, and whether the name was quoted. `::` is
/// no such separator: it separates the parts of a path.
fn separator_end(bytes: &[u8], name_end: usize) -> Option<(usize, bool)> {
    let quote = name_end + count(bytes, name_end, |byte| byte == b'\\');
    let is_quoted = bytes.get(quote).is_some_and(|byte| is_quote(*byte));
    let at = blanks_end(bytes, if is_quoted { quote + 1 } else { name_end });
    let end = match (bytes.get(at)?, bytes.get(at + 1)) {
        (b'=', Some(b'=' | b'>')) | (b':', Some(b'=')) => at + 2,
        (b':', Some(b':')) => return None,
        (b'=' | b':', _) => at + 1,
        _ => return None,
    };
    Some((end, is_quoted))
}

/// The range between quotes, which may themselves be escaped; to the end of the text if the quotes
/// are not closed.
fn quoted(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let escapes = count(bytes, from, |byte| byte == b'\\');
    let quote = *bytes.get(from + escapes).filter(|byte| is_quote(**byte))?;
    let start = from + escapes + 1;
    let mut before = 0;
    for (offset, byte) in bytes[start..].iter().enumerate() {
        let closes = before <= escapes || (escapes == 0 && before % 2 == 0);
        if *byte == quote && closes {
            return Some(start..start + offset - before.min(escapes));
        }
        before = if *byte == b'\\' { before + 1 } else { 0 };
    }
    Some(start..bytes.len())
}

/// The position after the bracket that closes the one at `from`; the end of the text if none does.
fn brackets_end(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in bytes[from..].iter().enumerate() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return from + offset + 1;
        }
    }
    bytes.len()
}

fn line_end(bytes: &[u8], from: usize, quote: Option<u8>) -> usize {
    from + count(bytes, from, |byte| {
        !matches!(byte, b'\n' | b'\r') && Some(byte) != quote
    })
}

/// The end of the word at `from`, or of the next word if the first one names a scheme.
fn words_end(text: &str, from: usize) -> usize {
    let end = word_end(text, from);
    let is_scheme = SCHEMES
        .iter()
        .any(|scheme| text[from..end].eq_ignore_ascii_case(scheme));
    let next = blanks_end(text.as_bytes(), end);
    if is_scheme && next > end {
        word_end(text, next)
    } else {
        end
    }
}

fn word_end(text: &str, from: usize) -> usize {
    let ends = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                ',' | ';' | '&' | '"' | '\'' | '`' | ')' | ']' | '}' | '>'
            )
    };
    text[from..]
        .find(ends)
        .map_or(text.len(), |length| from + length)
}

/// The text after a bare `Bearer`, if it looks like a credential.
fn bare_credential(text: &str, from: usize) -> Option<Range<usize>> {
    let start = blanks_end(text.as_bytes(), from);
    let end = word_end(text, start);
    let word = &text.as_bytes()[start..end];
    let is_long = word.len() > WORD_BYTES_MAX;
    let is_mixed = word.len() >= CREDENTIAL_BYTES_MIN && word.iter().any(u8::is_ascii_digit);
    (start > from && (is_long || is_mixed)).then_some(start..end)
}

/// The password of the address whose authority begins at `from`.
fn password(text: &str, from: usize) -> Option<Range<usize>> {
    let ends =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '<' | '>');
    let address = text[from..].split(ends).next()?;
    let authority = address.split(['/', '?', '#']).next()?;
    let colon = authority
        .find(':')
        .filter(|_| !authority.starts_with('['))?;
    // A password may contain a slash that should have been escaped. A port, however, consists of
    // digits.
    let port = &authority[colon + 1..];
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let at_sign = match authority.rfind('@') {
        Some(at_sign) => at_sign,
        None if is_port => return None,
        None => address.find('@')?,
    };
    (at_sign > colon + 1).then_some(from + colon + 1..from + at_sign)
}
