//! The port: what a store must do. Batches only, no optional methods, no capability flags.
//!
//! Every method takes `now` on the deployment's one time line, is atomic, and is safe to repeat
//! after an unknown outcome. A "no" is a value per item; an error means that the store itself
//! failed.

pub mod backlog;
pub mod cells;
pub mod error;
pub mod operator;
pub mod place;
pub mod schema;
pub mod store;
pub mod streams;

pub use backlog::{
    Backlog, Beat, Beaten, Claim, Claimed, Enqueued, Promoted, Seize, Seized, Seizure, Settled,
};
pub use cells::{Cell, CellQuery, Cells, Swap, Swapped};
pub use error::{Answer, StoreError};
pub use operator::{
    Amended, Amendment, Burial, Counts, Damaged, ExpiredLeases, Gate, Group, GroupQuery, KeyHolder,
    Operator, Order, Page, PageQuery, Pruned, QueueStatus, Retention, Shelf, Sought, Totals,
    WorkerStatus,
};
pub use schema::{SchemaMark, UpgradeSteps};
pub use store::{Examination, Finding, Grade, Hints, Migrated, Store};
pub use streams::{
    Advance, Advanced, Holder, KeyLease, KeyQuery, KeyStatus, Offered, StreamStatus, Streams, Take,
    Taken, Then, Wanted, WhichKeys,
};
