//! Why somebody changes something by hand, in their own words.

use backstop_core::limits::REASON_CHARS_MAX;
use std::fmt;
use std::str::FromStr;

/// Why somebody changes something: one line of text, of at most [`REASON_CHARS_MAX`] characters.
/// Space around it counts for nothing.
///
/// ```
/// use backstop::audit::AuditReason;
///
/// let reason: AuditReason = " ticket 4711 ".parse().unwrap();
/// assert_eq!(reason.as_str(), "ticket 4711");
/// assert!("two\nlines".parse::<AuditReason>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditReason(String);

impl AuditReason {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AuditReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Text that is no reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAuditReason {
    #[error("an empty reason says nothing; write why, or leave it out")]
    Empty,
    #[error(
        "a reason has at most {REASON_CHARS_MAX} characters, this one has {0}; write it shorter, or name a ticket"
    )]
    TooLong(usize),
    /// It goes over several lines, or has characters that do not show.
    #[error("a reason is one line of text, without line breaks or control characters")]
    Control,
}

impl FromStr for AuditReason {
    type Err = InvalidAuditReason;

    fn from_str(text: &str) -> Result<Self, InvalidAuditReason> {
        let text = text.trim();
        if text.is_empty() {
            return Err(InvalidAuditReason::Empty);
        }
        let chars = text.chars().count();
        if chars > REASON_CHARS_MAX {
            return Err(InvalidAuditReason::TooLong(chars));
        }
        if text.chars().any(hides) {
            return Err(InvalidAuditReason::Control);
        }
        Ok(Self(text.to_owned()))
    }
}

/// Whether a character does not show, breaks the line, or turns the direction of what stands around
/// it: a reason is read as it was written.
fn hides(letter: char) -> bool {
    let is_line = matches!(letter, '\u{2028}' | '\u{2029}');
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || is_line || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, InvalidAuditReason>) {
        let read = text.parse::<AuditReason>();
        assert_eq!(
            read.as_ref().map(AuditReason::as_str),
            expected.as_ref().copied(),
            "{text:?}"
        );
    }

    #[test]
    fn a_reason_is_one_short_line() {
        check("  the service is back ", Ok("the service is back"));
        check("größer, schöner 🎉", Ok("größer, schöner 🎉"));
        check("", Err(InvalidAuditReason::Empty));
        check(" \t\n ", Err(InvalidAuditReason::Empty));
        check("two\nlines", Err(InvalidAuditReason::Control));
        check("a\u{1b}[31mred", Err(InvalidAuditReason::Control));
        check("nul\0", Err(InvalidAuditReason::Control));
        check("del\u{7f}ete", Err(InvalidAuditReason::Control));
        check("two\u{2028}lines", Err(InvalidAuditReason::Control));
        check("turned \u{202e}round", Err(InvalidAuditReason::Control));
        check(
            "turned \u{2067}round\u{2069}",
            Err(InvalidAuditReason::Control),
        );
    }

    #[test]
    fn its_bound_is_in_characters_and_counts_what_is_left_of_it() {
        let longest = "ü".repeat(REASON_CHARS_MAX);
        check(&longest, Ok(&longest));
        check(&format!("  {longest}  "), Ok(&longest));
        check(
            &format!("{longest}ü"),
            Err(InvalidAuditReason::TooLong(REASON_CHARS_MAX + 1)),
        );
    }
}
