//! Who changed dead letters, when, and how many.
//!
//! An entry is written before anything is changed and completed afterwards: one without a count was cut off in the middle.
//! The newest 10,000 are kept; older ones go in small steps, as new ones come.

use super::DeadLetters;
use crate::shared::{Shared, read, update};
use backstop_core::Time;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Answer, Cell, CellQuery, StoreError, Swap};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Entries that are kept.
pub const ENTRIES_MAX: usize = 10_000;
/// Entries that go at most when one comes.
const TRIM_STEP: usize = 100;
/// One addition in so many looks whether there are too many: it has to read them all.
const TRIM_EVERY: u64 = 16;

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

impl Shared for AuditEntry {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// An entry that waits for its end.
pub(super) struct Noted {
    name: String,
    entry: AuditEntry,
}

impl DeadLetters {
    /// The changes, the newest first; one that cannot be read is left out, and logged.
    pub async fn audit(&self, limit: usize) -> Answer<Vec<AuditEntry>> {
        let mut newest = VecDeque::new();
        let mut after = None;
        loop {
            let cells = self.audit_cells(after).await?;
            let Some(last) = cells.last() else { break };
            after = Some(last.name.clone());
            newest.extend(cells.iter().filter_map(read::<AuditEntry>));
            let surplus = newest.len().saturating_sub(limit);
            newest.drain(..surplus);
        }
        Ok(newest.into_iter().rev().collect())
    }

    /// Writes down what is about to be done. Where that fails, nothing is to be done.
    pub(super) async fn note(&self, what: &str, selection: serde_json::Value) -> Answer<Noted> {
        let at = self.backstop.now();
        let random = self.backstop.random().bits();
        let name = format!("{PREFIX}{:020}-{random:016x}", at.as_micros().max(0));
        let (who, what) = (self.who.to_string(), what.to_owned());
        let entry = AuditEntry { at, who, what, selection, count: None, error: None };
        update(&self.backstop, &name, entry.clone(), |_| ()).await?;
        if random.is_multiple_of(TRIM_EVERY) {
            // Too many entries are no reason not to do what was asked for; the next addition looks again.
            if let Err(error) = self.trim_audit(ENTRIES_MAX).await {
                tracing::warn!(%error, "old audit entries could not be removed");
            }
        }
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

    async fn audit_cells(&self, after: Option<String>) -> Answer<Vec<Cell>> {
        let query = CellQuery { prefix: PREFIX.to_owned(), after, limit: CELLS_MAX };
        self.backstop.store().list_cells(query).await
    }

    /// Removes the oldest entries over `keep`, a few at a time.
    pub(super) async fn trim_audit(&self, keep: usize) -> Answer<usize> {
        let (mut oldest, mut total, mut after) = (Vec::new(), 0, None);
        loop {
            let cells = self.audit_cells(after).await?;
            let Some(last) = cells.last() else { break };
            after = Some(last.name.clone());
            total += cells.len();
            let wanted = TRIM_STEP - oldest.len();
            oldest.extend(cells.into_iter().take(wanted));
        }
        oldest.truncate(total.saturating_sub(keep));
        if oldest.is_empty() {
            return Ok(0);
        }
        let version = self.backstop.random().bits().cast_signed();
        let removal =
            |cell: &Cell| Swap { name: cell.name.clone(), seen: Some(cell.version), version, value: None };
        self.backstop.store().swap(oldest.iter().map(removal).collect()).await?;
        Ok(oldest.len())
    }
}
