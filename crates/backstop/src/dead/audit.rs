//! Who changed dead letters, when, and how many.
//!
//! An entry is written before anything is changed and completed afterwards: one without a count was cut off in the middle.
//! The newest 10,000 are kept; older ones go in small steps, as new ones come.

use super::DeadLetters;
use crate::journal::Journal;
use crate::shared::update;
use backstop_core::Time;
use backstop_core::port::{Answer, StoreError};
use serde::{Deserialize, Serialize};

/// Entries that are kept.
pub const ENTRIES_MAX: usize = 10_000;

const PREFIX: &str = "audit/";

/// One change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When it began.
    pub at: Time,
    /// Who asked for it.
    pub who: String,
    /// What was done: `requeue`, `move to QUEUE`, `delete`, `clear`, `import`, `redrive ID`.
    pub what: String,
    /// To which letters, as they were selected.
    pub selection: serde_json::Value,
    /// To how many; `None` if it was cut off before that was known.
    pub count: Option<u64>,
    /// Why it ended early, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An entry that waits for its end.
pub(super) struct Noted {
    name: String,
    entry: AuditEntry,
}

impl DeadLetters {
    /// The changes, the newest first; one that cannot be read is left out, and logged.
    pub async fn audit(&self, limit: usize) -> Answer<Vec<AuditEntry>> {
        self.journal().newest(limit).await
    }

    /// Writes down what is about to be done. Where that fails, nothing is to be done.
    pub(super) async fn note(&self, what: &str, selection: serde_json::Value) -> Answer<Noted> {
        let at = self.backstop.now();
        let (who, what) = (self.who.to_string(), what.to_owned());
        let entry = AuditEntry { at, who, what, selection, count: None, error: None };
        let name = self.journal().add(at, &entry).await?;
        Ok(Noted { name, entry })
    }

    /// Writes down what became of it. It has happened by now: where this fails, the entry stays without a count.
    pub(super) async fn note_end(&self, noted: Noted, count: u64, error: Option<&StoreError>) {
        let ended =
            AuditEntry { count: Some(count), error: error.map(ToString::to_string), ..noted.entry.clone() };
        if let Err(error) =
            update(&self.backstop, &noted.name, noted.entry, |entry| *entry = ended.clone()).await
        {
            tracing::warn!(%error, entry = noted.name, count, "the end of a change could not be noted");
        }
    }

    pub(super) fn journal(&self) -> Journal<'_> {
        Journal::new(&self.backstop, PREFIX, ENTRIES_MAX)
    }
}
