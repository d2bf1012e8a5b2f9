//! Who changed what.

use backstop::Time;
use backstop::audit::{AuditEntry, AuditPage};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A page of the audit.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Audit)]
pub struct AuditShape<'a> {
    /// The changes, the newest first.
    pub entries: Vec<AuditEntryShape<'a>>,
    /// Where the next page starts; the list ends where there is none. A page may be short, even
    /// empty, and go on.
    pub next: Option<&'a str>,
}

impl<'a> AuditShape<'a> {
    /// The shape of a page.
    pub fn new(page: &'a AuditPage) -> Self {
        Self {
            entries: page.entries.iter().map(AuditEntryShape::new).collect(),
            next: page.next.as_deref(),
        }
    }
}

/// One change.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = AuditEntry)]
pub struct AuditEntryShape<'a> {
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    /// To how many it was done; null if it was cut off before that was known.
    count: Option<u64>,
    /// Why it ended early, if it did.
    error: Option<&'a str>,
    /// Why it was asked for, if anybody said so; secrets in it are hidden.
    reason: Option<&'a str>,
    /// To which, as they were selected.
    selection: &'a Value,
    /// What was done: `requeue`, `queue pause`.
    what: &'a str,
    /// Who asked for it.
    who: &'a str,
}

impl<'a> AuditEntryShape<'a> {
    /// The shape of an entry.
    pub fn new(entry: &'a AuditEntry) -> Self {
        Self {
            at: entry.at,
            count: entry.count,
            error: entry.error.as_deref(),
            reason: entry.reason.as_deref(),
            selection: &entry.selection,
            what: &entry.what,
            who: &entry.who,
        }
    }
}
