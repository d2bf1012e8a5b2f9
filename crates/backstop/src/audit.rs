//! Who changed what, when, how many, and why if they said so.
//!
//! An entry is written before anything is changed and completed afterwards: one without a count was
//! cut off in the middle. At least 10,000 are kept, and up to 40,000 of the last 30 days. Beyond
//! that the caller with the most entries loses its oldest, in small steps as new ones come: whoever
//! writes many pushes out nobody else's. A page of them costs what is on it.
//!
//! A change that finds everything as it is to be (a pause of a paused queue), or nothing to be
//! changed (a retry of no job), takes its entry back.
//!
//! A reason is redacted before it is written, and again when it is read: by then more may be known
//! to be secret.

mod reason;
mod trim;

use crate::client::Backstop;
use crate::journal::CellJournal;
use crate::shared_cells::{remove, update};
use backstop_core::Time;
use backstop_core::limits::{AUDIT_RECENT_MAX, CELLS_MAX};
use backstop_core::port::{StoreError, StoreResult};
pub use reason::{AuditReason, InvalidAuditReason};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// Entries that are kept at most.
pub const ENTRIES_MAX: usize = AUDIT_RECENT_MAX;
/// Entries that a page looks at.
pub const LOOKS_MAX: usize = CELLS_MAX;

const PREFIX: &str = "audit/";
/// Selections of one change that its entry tells.
const PARTS_SHOWN: usize = 10;

/// What an entry tells of selections: one as it is, of several the first ones, and how many there
/// are.
pub(crate) fn each_in_short<T>(parts: &[T], in_short: impl Fn(&T) -> Value) -> Value {
    if let [part] = parts {
        return in_short(part);
    }
    let shown: Vec<Value> = parts.iter().take(PARTS_SHOWN).map(in_short).collect();
    json!({ "each": shown, "of": parts.len() })
}

/// One change that an operator or a program made, and its outcome.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Time,
    pub who: String,
    /// What was done: `requeue`, `move to QUEUE`, `delete`, `clear`, `import` and `redrive ID` of
    /// dead letters; of anything else what it was done to comes first, as in `queue pause`.
    pub what: String,
    /// To which, as they were selected.
    pub selection: serde_json::Value,
    /// To how many; `None` if it was cut off before that was known.
    pub count: Option<u64>,
    /// Why it was asked for, if anybody said so. Secrets in it are hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it ended early, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Some of the changes, the newest first.
#[derive(Clone, PartialEq, Debug)]
pub struct AuditPage {
    pub entries: Vec<AuditEntry>,
    /// Where to go on: behind the last one that was looked at; `None` at the end of the log.
    pub next: Option<String>,
    /// Whether it ended because enough was looked at, not because enough was found.
    pub is_cut: bool,
}

/// The log of changes, in whose name they are made, and why. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditLog {
    backstop: Backstop,
    who: Arc<str>,
    reason: Option<Arc<str>>,
}

/// An entry that waits for its end.
#[derive(Debug)]
pub struct OpenAuditEntry {
    name: String,
    entry: AuditEntry,
}

impl Backstop {
    /// The log of who changed what, to be read, and to be written in the name of `who`.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use backstop::core::port::StoreError;
    ///
    /// let backstop = backstop::Backstop::open("memory:").await?;
    /// let audit = backstop.audit("ada@example.org");
    /// let change = async { Ok::<_, StoreError>((1, "done")) };
    /// assert_eq!(audit.record("token revoke", serde_json::json!({ "id": "t1" }), change).await?, "done");
    /// assert_eq!(audit.entries(10).await?[0].what, "token revoke");
    /// # Ok(())
    /// # }
    /// ```
    pub fn audit(&self, who: &str) -> AuditLog {
        AuditLog {
            backstop: self.clone(),
            who: who.into(),
            reason: None,
        }
    }
}

impl AuditLog {
    /// In whose name it is written.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// In the name of somebody else.
    #[must_use]
    pub fn by(self, who: &str) -> Self {
        Self {
            who: who.into(),
            ..self
        }
    }

    /// For this reason, if there is one: every change from here on says so.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use backstop::audit::AuditReason;
    ///
    /// let backstop = backstop::Backstop::open("memory:").await?;
    /// let reason: AuditReason = "the service is down until noon".parse()?;
    /// backstop.changes("ada@example.org").because(reason).pause(&"emails".parse()?).await?;
    /// let entries = backstop.audit("").entries(1).await?;
    /// assert_eq!(entries[0].reason.as_deref(), Some("the service is down until noon"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn because(self, reason: impl Into<Option<AuditReason>>) -> Self {
        let shown = reason
            .into()
            .map(|reason| self.backstop.redaction().text(reason.as_str()).into());
        Self {
            reason: shown,
            ..self
        }
    }

    /// For a reason that was given before, and written down somewhere else since.
    #[must_use]
    pub fn because_of(self, kept: Option<&str>) -> Self {
        Self {
            reason: kept.map(Into::into),
            ..self
        }
    }

    /// The reason for which it is written, with secrets hidden.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The changes, the newest first; one that cannot be read is left out, and logged.
    pub async fn entries(&self, limit: usize) -> StoreResult<Vec<AuditEntry>> {
        let entries = self.journal().newest(limit.min(ENTRIES_MAX)).await?;
        Ok(entries
            .into_iter()
            .map(|entry| self.redacted(entry))
            .collect())
    }

    /// A page of the changes that fit, behind the place where the page before it ended, or from the
    /// newest on. Looks at no more than [`LOOKS_MAX`] entries, whether they fit or not.
    pub async fn page(
        &self,
        after: Option<String>,
        limit: usize,
        fits: impl Fn(&AuditEntry) -> bool,
    ) -> StoreResult<AuditPage> {
        // A place that somebody made up is only a place: names that do not begin like ours are
        // before all of them.
        let part = self.journal().page::<AuditEntry>(after, LOOKS_MAX).await?;
        let mut fitting = part.entries.into_iter().filter(|(_, entry)| fits(entry));
        let found: Vec<(String, AuditEntry)> = fitting.by_ref().take(limit).collect();
        let has_more = fitting.next().is_some();
        let next = if has_more {
            found.last().map(|(name, _)| name.clone())
        } else {
            part.next
        };
        let entries = found
            .into_iter()
            .map(|(_, entry)| self.redacted(entry))
            .collect();
        Ok(AuditPage {
            entries,
            is_cut: !has_more && next.is_some(),
            next,
        })
    }

    /// The same for a change that may find everything as it is to be: it answers `None` then, and
    /// leaves no entry.
    pub async fn record_change<T, E>(
        &self,
        what: &str,
        selection: serde_json::Value,
        change: impl Future<Output = Result<(Option<u64>, T), E>>,
    ) -> Result<T, E>
    where
        E: From<StoreError> + fmt::Display,
    {
        let open_entry = self.open_entry(what, selection).await?;
        match change.await {
            Ok((Some(count), answer)) => {
                self.record_end(open_entry, count, None).await;
                Ok(answer)
            }
            Ok((None, answer)) => {
                self.remove_entry(&open_entry.name).await;
                Ok(answer)
            }
            Err(error) => {
                self.record_end(open_entry, 0, Some(error.to_string()))
                    .await;
                Err(error)
            }
        }
    }

    /// Makes a change between the two halves of its entry. `change` answers to how many it was
    /// done, and what is handed on.
    pub async fn record<T, E>(
        &self,
        what: &str,
        selection: serde_json::Value,
        change: impl Future<Output = Result<(u64, T), E>>,
    ) -> Result<T, E>
    where
        E: From<StoreError> + fmt::Display,
    {
        let counted = async { change.await.map(|(count, answer)| (Some(count), answer)) };
        self.record_change(what, selection, counted).await
    }

    /// Removes the entry of a change that changed nothing. Where that fails, the entry stays
    /// without a count.
    async fn remove_entry(&self, name: &str) {
        let taken = async {
            let cells = self.backstop.store().cells(vec![name.to_owned()]).await?;
            remove(
                &self.backstop,
                &cells.into_iter().flatten().collect::<Vec<_>>(),
            )
            .await
        };
        if let Err(error) = taken.await {
            tracing::warn!(%error, entry = name, "the entry of a change that changed nothing could not be removed");
        }
    }

    /// Writes down what is about to be done. Where that fails, nothing is to be done.
    pub async fn open_entry(
        &self,
        what: &str,
        selection: serde_json::Value,
    ) -> StoreResult<OpenAuditEntry> {
        let at = self.backstop.current_time().await;
        let (who, what) = (self.who.to_string(), what.to_owned());
        let reason = self.reason().map(str::to_owned);
        let entry = AuditEntry {
            at,
            who,
            what,
            selection,
            count: None,
            reason,
            error: None,
        };
        let (name, random) = self.journal().put(at, &entry).await?;
        if random.is_multiple_of(trim::TRIM_EVERY) {
            // Too many entries are no reason not to add one; a later one looks again.
            if let Err(error) = trim::trim(&self.backstop, at).await {
                tracing::warn!(%error, "old entries of the audit could not be removed");
            }
        }
        Ok(OpenAuditEntry { name, entry })
    }

    /// Writes down what became of it, or takes the entry back where nothing was changed.
    pub async fn close_entry<E: fmt::Display>(
        &self,
        open_entry: OpenAuditEntry,
        count: u64,
        done: &Result<(), E>,
    ) {
        match done {
            Ok(()) if count == 0 => self.remove_entry(&open_entry.name).await,
            Ok(()) => self.record_end(open_entry, count, None).await,
            Err(error) => {
                self.record_end(open_entry, count, Some(error.to_string()))
                    .await;
            }
        }
    }

    /// Writes down what became of it. It has happened by now: where this fails, the entry stays
    /// without a count.
    pub async fn record_end(&self, open_entry: OpenAuditEntry, count: u64, error: Option<String>) {
        let ended = AuditEntry {
            count: Some(count),
            error,
            ..open_entry.entry.clone()
        };
        if let Err(error) = update(
            &self.backstop,
            &open_entry.name,
            open_entry.entry,
            |entry| {
                *entry = ended.clone();
            },
        )
        .await
        {
            tracing::warn!(%error, entry = open_entry.name, count, "the end of a change could not be noted");
        }
    }

    fn redacted(&self, entry: AuditEntry) -> AuditEntry {
        let redaction = self.backstop.redaction();
        AuditEntry {
            reason: entry.reason.map(|reason| redaction.text(&reason)),
            ..entry
        }
    }

    pub(crate) fn journal(&self) -> CellJournal<'_> {
        CellJournal::new(&self.backstop, PREFIX, ENTRIES_MAX)
    }
}

#[cfg(test)]
mod tests;
