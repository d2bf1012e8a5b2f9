//! A store as a whole: its schema, its clock, its hints and its durability promise.

use super::backlog::JobStore;
use super::cells::CellStore;
use super::error::StoreResult;
use super::operator::OperatorStore;
use super::streams::StreamStore;
use crate::time::Time;
use async_trait::async_trait;

#[async_trait]
pub trait Store: JobStore + OperatorStore + CellStore + StreamStore {
    /// Upgrades the schema to the version that this program needs. It can be killed at any step and
    /// run again.
    async fn migrate(&self) -> StoreResult<MigrationResult>;

    /// Whether the store has no schema yet, so that [`Store::migrate`] would create it. Writes
    /// nothing. A store that creates its schema when it is opened answers no.
    async fn is_new(&self) -> StoreResult<bool>;

    /// The store's clock. Everybody who uses the store uses this one time line.
    async fn time(&self) -> StoreResult<Time>;

    /// Subscribes to hints that jobs may be ready to claim or due to be promoted.
    fn watch(&self) -> Box<dyn HintSubscription>;

    /// Reads the live settings of the server and reports what durability they allow.
    async fn examine(&self) -> StoreResult<ExaminationReport>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MigrationResult {
    /// The version before the migration; 0 for a new store.
    pub from: u32,
    /// The version after the migration.
    pub to: u32,
}

/// A subscription to hints. Within one process, no change after the subscription or after its last
/// hint is missed. Hints from other processes may be late or lost, so a worker also polls.
#[async_trait]
pub trait HintSubscription: Send {
    /// Waits for the next hint. Safe to drop while waiting.
    async fn next(&mut self);
}

/// What durability a store's live settings allow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExaminationReport {
    /// The kind of store and the version of its server.
    pub store: String,
    /// The durability promise that the live settings allow, in words.
    pub promise: String,
    pub findings: Vec<StoreFinding>,
}

/// One setting that [`Store::examine`] checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreFinding {
    pub severity: FindingSeverity,
    /// The setting and its value.
    pub what: String,
    /// What the user should change, if anything.
    pub advice: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FindingSeverity {
    Good,
    /// The store works, but the user should know about this.
    Warning,
    /// The setting breaks the durability promise.
    Bad,
}
