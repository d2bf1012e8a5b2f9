//! The port: what a store must do. Batches only, no optional methods, no capability flags.
//!
//! Every method takes `now` on the deployment's one time line, is atomic, and is safe to repeat
//! after an unknown outcome. A "no" is a value per item; an error means that the store itself
//! failed.

pub mod backlog;
pub mod cells;
pub mod cursor;
pub mod error;
pub mod operator;
pub mod schema;
pub mod store;
pub mod streams;

pub use backlog::{
    BeatRequest, BeatResult, Claim, ClaimResult, EnqueueOutcome, JobStore, PromoteResult,
    SeizeRequest, SeizeResult, SeizedRun, SettleOutcome,
};
pub use cells::{Cell, CellStore, CellSwap, ListCellsRequest, SwapOutcome};
pub use error::{StoreError, StoreResult};
pub use operator::{
    AmendJobsRequest, AmendResult, AmendSelection, DamagedJob, DeadLetterGroup, ExpiredLeases,
    ListGroupsRequest, ListJobsRequest, ListJobsResult, ListOrder, NewDeadLetter, OperatorStore,
    PruneRequest, PruneResult, QueueState, QueueStatus, QueueTotals, Retention, StateCounts,
    UniqueKeyHolder, WorkerStatus,
};
pub use schema::{SchemaMark, UpgradeSteps};
pub use store::{
    ExaminationReport, FindingSeverity, HintSubscription, MigrationResult, Store, StoreFinding,
};
pub use streams::{
    AdvanceOutcome, KeyAdvance, KeyFilter, KeyLease, KeyLeaseAction, KeyLeaseHolder, KeySelection,
    KeyStatus, ListKeysRequest, OfferOutcome, StreamStatus, StreamStore, TakeRequest, TakeResult,
};
