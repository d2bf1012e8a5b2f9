//! What must outlive a process: how detectors stand, incidents, changes to the directory, and the
//! lines that go on.
//!
//! Keeps values and decides nothing. An event is known by subscription, position and effect; what
//! it does is done in one transaction together with its line, so a repeat finds the line and
//! changes nothing.

mod sqlite;
#[cfg(test)]
mod tests;

use crate::directory::{Change, DetectorId};
use crate::event::{Effect, Event};
use crate::standing::{Notice, Standing};
use crate::wire::SubscriptionId;
pub use sqlite::{Durability, SqliteMemory};

/// A memory that several processes share.
pub trait Memory: Send {
    /// Begins a transaction, alone: nobody else changes anything until it ends.
    fn begin(&mut self) -> Result<Box<dyn Transaction + '_>, MemoryError>;

    /// The changes to the directory after one that was seen before (0: all), each with its number.
    fn changes(&mut self, after: i64) -> Result<Vec<(i64, Change)>, MemoryError>;

    /// A page of lines after one that was seen before (0: from the first).
    fn lines(&mut self, after: i64) -> Result<Vec<KeptLine>, MemoryError>;

    /// All incidents, oldest first.
    fn incidents(&mut self) -> Result<Vec<Incident>, MemoryError>;
}

/// One transaction. Dropped before its end, it has changed nothing.
pub trait Transaction {
    /// Whether the event's line is there.
    fn is_noted(&mut self, event: &Event) -> Result<bool, MemoryError>;

    /// Keeps the event's line.
    fn note(&mut self, event: &Event, line: &str, at_ms: i64) -> Result<(), MemoryError>;

    /// How a detector stands; nothing before its first result.
    fn standing(&mut self, detector: DetectorId) -> Result<Option<Standing>, MemoryError>;

    /// Sets how a detector stands.
    fn set_standing(&mut self, detector: DetectorId, standing: Standing)
    -> Result<(), MemoryError>;

    /// Opens or closes an incident.
    fn tell(&mut self, detector: DetectorId, notice: Notice) -> Result<(), MemoryError>;

    /// Tells all processes of a change to the directory.
    fn change(&mut self, change: &Change) -> Result<(), MemoryError>;

    /// The position that immediate backfill has reached, and the step it came with.
    fn last_update(&mut self, key: SubscriptionId) -> Result<Option<LastUpdate>, MemoryError>;

    /// Sets it.
    fn set_last_update(&mut self, key: SubscriptionId, to: LastUpdate) -> Result<(), MemoryError>;

    /// Forgets it: the next result is a first one.
    fn forget_last_update(&mut self, key: SubscriptionId) -> Result<(), MemoryError>;

    /// Makes all of it so.
    fn commit(self: Box<Self>) -> Result<(), MemoryError>;
}

/// How far immediate backfill has come with a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastUpdate {
    /// The last result's position.
    pub position: i64,
    /// The step it came with.
    pub step: i64,
}

/// A line that was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptLine {
    /// Its number: lines are numbered in the order in which they were kept.
    pub seq: i64,
    /// The subscription.
    pub key: SubscriptionId,
    /// Its position.
    pub position: i64,
    /// What happened there.
    pub effect: Effect,
    /// When it was kept.
    pub at_ms: i64,
    /// The line.
    pub line: String,
}

/// A time in which something was down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incident {
    /// Who says so.
    pub detector: DetectorId,
    /// The failure that opened it.
    pub opened_ms: i64,
    /// The success that closed it, if one did.
    pub closed_ms: Option<i64>,
}

/// Why the memory did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// SQLite says no; mostly that means a full disk, or another process that holds on to the file.
    #[error("the memory did not answer: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// What was kept cannot be read.
    #[error("the memory holds something that it cannot have written: {0}")]
    Corrupt(String),
    /// The file is of another program, or of another version of this one.
    #[error(
        "the memory is of version {0}, this program reads version {1}; give it a file of its own"
    )]
    Version(i64, i64),
}
