//! A store as a whole: its shape, its clock, its hints and its promise.

use super::backlog::JobStore;
use super::cells::CellStore;
use super::error::StoreResult;
use super::operator::OperatorStore;
use super::streams::StreamStore;
use crate::time::Time;
use async_trait::async_trait;

#[async_trait]
pub trait Store: JobStore + OperatorStore + CellStore + StreamStore {
    /// Brings the store's shape up to what this version needs. Can be killed at any step and run
    /// again.
    async fn migrate(&self) -> StoreResult<MigrationResult>;

    /// Whether there is nothing of it yet, so that [`Store::migrate`] would make it. Writes
    /// nothing. One that exists as soon as it is open says no.
    async fn is_new(&self) -> StoreResult<bool>;

    /// The time by the store's clock: one time line for everybody who uses the store.
    async fn time(&self) -> StoreResult<Time>;

    /// Hints that there may be something to claim or to promote.
    fn watch(&self) -> Box<dyn HintSubscription>;

    /// Reads the live settings and says what can be relied on.
    async fn examine(&self) -> StoreResult<ExaminationReport>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MigrationResult {
    /// The version found; 0 for a new store.
    pub from: u32,
    /// The version it has now.
    pub to: u32,
}

/// A subscription to hints. What happened since it was made, or since its last hint, is never
/// missed within one process; from other processes hints may be late, lost or never come. Polling
/// is the truth.
#[async_trait]
pub trait HintSubscription: Send {
    /// Waits for the next hint. Safe to drop while waiting.
    async fn next(&mut self);
}

/// What can be relied on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminationReport {
    /// What kind of store, and which version.
    pub store: String,
    /// The promise that its live settings allow, in words.
    pub promise: String,
    pub findings: Vec<StoreFinding>,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreFinding {
    pub severity: FindingSeverity,
    /// What it is, and what it is set to.
    pub what: String,
    /// What to do about it, if anything.
    pub advice: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FindingSeverity {
    Good,
    /// Works, but somebody should know.
    Warning,
    /// Falls short of the promise.
    Bad,
}
