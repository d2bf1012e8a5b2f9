//! From a store's address to a store.

use backstop_core::port::{Store, StoreError};
use backstop_memory::MemoryStore;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A crash of the process, of the operating system, and a power cut.
    #[default]
    Full,
    /// A crash of the process; a power cut may lose the last moments.
    Relaxed,
}

/// Text that is no durability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a durability; use full or relaxed")]
pub struct NotADurability(String);

impl FromStr for Durability {
    type Err = NotADurability;

    fn from_str(text: &str) -> Result<Self, NotADurability> {
        match text {
            "full" => Ok(Self::Full),
            "relaxed" => Ok(Self::Relaxed),
            _ => Err(NotADurability(text.to_owned())),
        }
    }
}

/// A store that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not an address of a store.
    #[error("`{0}` is not a store; write sqlite:FILE (such as sqlite:backstop.db) or memory:")]
    UnknownStore(String),
    /// The SQLite file cannot be opened.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] backstop_sqlite::OpenError),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Opens the store behind `url`, without migrating it.
#[cfg_attr(not(feature = "sqlite"), expect(unused_variables, reason = "memory has only one durability"))]
pub(crate) fn open_store(url: &str, durability: Durability) -> Result<Arc<dyn Store>, OpenError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(MemoryStore::new())),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) if !path.trim_start_matches('/').is_empty() => {
            let durability = match durability {
                Durability::Full => backstop_sqlite::Durability::Full,
                Durability::Relaxed => backstop_sqlite::Durability::Relaxed,
            };
            let options = backstop_sqlite::SqliteOptions { durability, ..Default::default() };
            Ok(Arc::new(backstop_sqlite::SqliteStore::open(
                sqlite_file(url).unwrap_or(path.as_ref()),
                options,
            )?))
        }
        _ => Err(OpenError::UnknownStore(redacted(url))),
    }
}

/// The file behind a `sqlite:` address. `sqlite:a.db` and `sqlite://a.db` are the same file; `sqlite:///a.db` is an
/// absolute path.
pub fn sqlite_file(url: &str) -> Option<&Path> {
    let path = url.strip_prefix("sqlite:")?;
    Some(Path::new(path.strip_prefix("//").unwrap_or(path)))
}

/// An address without the password it may carry.
fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://[redacted]@{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_store_is_refused_without_its_password() {
        for url in ["", "backstop.db", "sqlite:", "sqlite://", "memory:x", "mongodb://u:secret@h/db"] {
            let error = open_store(url, Durability::Full).err().expect(url).to_string();
            assert!(error.contains("write sqlite:FILE") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_path_may_be_relative_or_absolute() {
        let file = |url| sqlite_file(url).and_then(Path::to_str);
        assert_eq!(file("sqlite:a.db"), Some("a.db"));
        assert_eq!(file("sqlite://a.db"), Some("a.db"));
        assert_eq!(file("sqlite:///var/a.db"), Some("/var/a.db"));
        assert_eq!(file("sqlite:/var/a.db"), Some("/var/a.db"));
        assert_eq!(file("memory:"), None);
    }
}
