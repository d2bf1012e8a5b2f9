//! The port: what every store must do. Methods take batches; there are no optional methods and no
//! capability flags.
//!
//! Every method is atomic and takes `now` on the one time line of the deployment. If its outcome is
//! unknown, the caller may repeat it with the same arguments. A refused item is a value in the
//! answer; an error means that the store itself failed.

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
