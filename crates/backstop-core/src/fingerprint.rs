//! Fingerprints group errors: deaths with the same fingerprint have the same cause, as far as their
//! messages show.
//!
//! Numbers, ids, addresses and quoted texts differ from job to job and say nothing about the cause.
//! A fingerprint hashes the rest of the message, with the class of the error and the status of an
//! HTTP response.

use crate::failure::{ErrorReport, FailureHistory};
use crate::verdict::EndReason;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// The number of characters of a message that are hashed.
const MESSAGE_CHARS_MAX: usize = 300;

/// The name of a group of deaths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of an error.
    pub fn of(error: &ErrorReport) -> Self {
        let mut digest = Sha256::new();
        digest.update(error.error_type.as_deref().unwrap_or_default());
        digest.update([0]);
        digest.update(error.http_status.unwrap_or_default().to_be_bytes());
        digest.update(normalize_message(&error.message));
        let digest = digest.finalize();
        Self(
            digest[..8]
                .iter()
                .fold(0, |bits, byte| (bits << 8) | u64::from(*byte)),
        )
    }

    /// The fingerprint of a death. A death by overflow has nothing to do with the job's earlier
    /// failures.
    pub fn of_death(reason: Option<EndReason>, history: &FailureHistory) -> Self {
        match (reason, history.failures().pop()) {
            (Some(EndReason::Overflow), _) => Self::of_overflow(),
            (_, Some(failure)) => Self::of(&failure.error),
            (_, None) => Self::of_word(""),
        }
    }

    /// The common fingerprint of deaths by [`crate::bounds::Overflow::DeadLetterOldest`].
    pub fn of_overflow() -> Self {
        Self::of_word(EndReason::Overflow.as_str())
    }

    fn of_word(word: &str) -> Self {
        Self::of(&ErrorReport::message(word))
    }

    pub const fn from_i64(bits: i64) -> Self {
        Self(bits.cast_unsigned())
    }

    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }
}

/// Removes what differs from job to job: each quoted text and each word with a digit becomes a
/// placeholder.
fn normalize_message(message: &str) -> String {
    let mut gist = String::new();
    let mut rest = message.chars().take(MESSAGE_CHARS_MAX).peekable();
    while let Some(next) = rest.next() {
        if next == '"' || next == '\'' || next == '`' {
            // An apostrophe without a counterpart is not a quote.
            let ahead: String = rest.clone().take_while(|inner| *inner != next).collect();
            if rest.clone().any(|inner| inner == next) {
                rest.nth(ahead.chars().count());
                gist.push('"');
                continue;
            }
        }
        if next.is_alphanumeric() {
            let mut word = String::from(next);
            while let Some(inner) =
                rest.next_if(|inner| inner.is_alphanumeric() || matches!(inner, '-' | '_'))
            {
                word.push(inner);
            }
            gist.push_str(if word.chars().any(char::is_numeric) {
                "#"
            } else {
                &word
            });
            continue;
        }
        gist.push(next);
    }
    gist
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Text that is not a valid fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fingerprint; one has 16 hexadecimal digits, as `dead groups` shows them")]
pub struct InvalidFingerprint(String);

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        let is_hexadecimal =
            text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let bits = is_hexadecimal
            .then(|| u64::from_str_radix(text, 16).ok())
            .flatten();
        bits.map(Self)
            .ok_or_else(|| InvalidFingerprint(text.to_owned()))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &str, other: &str, expected: bool) {
        assert_eq!(
            Fingerprint::of_word(one) == Fingerprint::of_word(other),
            expected,
            "{one} / {other}"
        );
    }

    #[test]
    fn what_differs_from_job_to_job_does_not_count() {
        same("order 17 not found", "order 4711 not found", true);
        same(
            "user 01890a5d-ac96-774b-bcce-b302099a8057 gone",
            "user 01890a5d-ac96-774b-bcce-b302099a8058 gone",
            true,
        );
        same(
            "connect to 10.0.0.1:5432 refused",
            "connect to 10.0.0.7:5432 refused",
            true,
        );
        same("no column \"a\"", "no column \"bcd\"", true);
        same("can't open it", "can't find it", false);
        same("order not found", "user not found", false);
    }

    #[test]
    fn the_class_and_the_status_count() {
        let error = ErrorReport::message("boom");
        let typed = ErrorReport {
            error_type: Some("Timeout".to_owned()),
            ..error.clone()
        };
        let refused = ErrorReport {
            http_status: Some(503),
            ..error.clone()
        };
        let all = [
            Fingerprint::of(&error),
            Fingerprint::of(&typed),
            Fingerprint::of(&refused),
        ];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    }

    #[test]
    fn it_reads_back() {
        let fingerprint = Fingerprint::of_word("boom");
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        assert_eq!(Fingerprint::from_i64(fingerprint.as_i64()), fingerprint);
        for wrong in ["", "12", "zzzzzzzzzzzzzzzz", "+123456789abcdef"] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
