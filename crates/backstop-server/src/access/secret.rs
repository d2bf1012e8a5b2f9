//! Random texts that let somebody in. Only their hashes are kept.

use rand::Rng;
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};
use subtle::ConstantTimeEq;

/// Bytes of a secret that are drawn at random.
pub(super) const SECRET_BYTES: usize = 32;
/// Characters of a name that needs no secrecy.
pub(super) const ID_CHARS: usize = 12;

/// A text that lets somebody in. It is not shown for debugging.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl Secret {
    /// A new one that begins with `prefix`, so that it is recognised where it should not be.
    pub(super) fn generate(prefix: &str) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        rand::rng().fill_bytes(&mut bytes);
        Self(format!("{prefix}{}", hex(&bytes)))
    }

    /// To be given to its owner, once.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub(super) fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What is kept of a secret: it shows whether a text is that secret, and nothing else of it.
#[derive(Clone, Debug)]
pub(super) struct SecretHash([u8; 32]);

impl SecretHash {
    /// Of any text that may be a secret.
    pub(super) fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Whether two are the same, in a time that does not say how much of them is.
    pub(super) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    pub(super) fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// As it was kept; `None` if that is no fingerprint.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(pair).collect();
        Some(Self(bytes?.try_into().ok()?))
    }
}

/// A few random letters and digits, for what needs a name and no secrecy.
pub(super) fn short_id() -> String {
    let mut bytes = [0; ID_CHARS / 2];
    rand::rng().fill_bytes(&mut bytes);
    hex(&bytes)
}

/// A number no other change has.
pub(super) fn random_version() -> i64 {
    rand::rng().next_u64().cast_signed()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_are_known_by_their_fingerprints() {
        let (one, other) = (Secret::generate("x_"), Secret::generate("x_"));
        assert_eq!(one.reveal().len(), 2 + 2 * SECRET_BYTES);
        assert!(one.hash().matches(&SecretHash::of(one.reveal())));
        assert!(!one.hash().matches(&other.hash()));
        assert!(!format!("{one:?}").contains(one.reveal()));
    }

    #[test]
    fn a_fingerprint_comes_back_from_its_text_and_nothing_else_does() {
        let kept = SecretHash::of("secret").to_hex();
        assert!(
            SecretHash::from_hex(&kept)
                .unwrap()
                .matches(&SecretHash::of("secret"))
        );
        assert!(!kept.contains("secret"));
        for text in ["", "00", "zz", "é", &kept[1..], &format!("{kept}00")] {
            assert!(SecretHash::from_hex(text).is_none(), "{text}");
        }
    }
}
