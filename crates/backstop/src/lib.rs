//! The backlog engine that never drops work.
//!
//! Open a store, push jobs, run handlers, in your own process:
//!
//! ```no_run
//! use backstop::{Backstop, Run, RunError, Task};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Welcome {
//!     email: String,
//! }
//!
//! impl Task for Welcome {
//!     const KIND: &'static str = "welcome";
//!     const QUEUE: &'static str = "emails";
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backstop = Backstop::open("sqlite:backstop.db").await?;
//! backstop.push(&Welcome { email: "ada@example.org".into() }).await?;
//!
//! let worker = backstop
//!     .worker()
//!     .handle(|task: Welcome, run: Run| async move {
//!         println!("attempt {} for {}", run.attempt(), task.email);
//!         Ok::<(), RunError>(())
//!     })
//!     .start()?;
//! worker.until_ctrl_c().await;
//! # Ok(())
//! # }
//! ```
//!
//! What is promised: an acknowledged push is never lost; a job starts at least once; its outcome is
//! accepted at most once. Handlers should therefore be safe to repeat; [`Run::id`] and
//! [`Run::lease`] are there to make them so.

mod address;
pub mod audit;
pub mod breakers;
mod client;
mod clock;
pub mod config;
mod database;
pub mod dead;
mod deadline;
mod draft;
mod engine;
pub mod examine;
mod exec;
mod handler;
#[cfg(feature = "http")]
mod http;
pub mod http_workers;
pub mod idempotence;
mod journal;
mod open;
pub mod operate;
pub mod overlaps;
#[cfg(feature = "postgres")]
pub mod postgres;
mod random;
pub mod rate_limits;
#[cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(
        dead_code,
        unused_imports,
        reason = "what only some databases have is said for all of them; with all, nothing is unused"
    )
)]
pub mod run_times;
pub mod schedules;
pub mod search;
mod shared_cells;
mod spill;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod store_location;
mod store_runtime;
pub mod streams;
pub mod sweeps;
#[cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    allow(
        dead_code,
        unused_imports,
        reason = "what only some databases have is said for all of them; with all, nothing is unused"
    )
)]
pub mod tables;
pub mod testing;
pub mod trace;
pub mod why;
mod with_retry;
mod worker;
mod worker_kinds;
pub mod workers;

pub use address::{StoreAddress, StoreKind, redacted};
pub use backstop_core as core;
pub use backstop_core::{
    JobId, JobState, Kind, NewJob, Payload, Priority, QueueName, RetryPolicy, Schedule,
    ScheduleName, Span, StreamKey, StreamName, Time, TraceContext,
};
pub use client::{Backstop, PushResult};
pub use clock::{Clock, ManualClock};
pub use draft::{DraftError, JobDraft};
pub use engine::execute::FAILED_RUNS;
pub use engine::signals::LastSignal;
pub use exec::{Exec, ExecOutput, InvalidExec};
pub use handler::{Handler, Run, RunError, Task};
#[cfg(feature = "http")]
pub use http::{Http, HttpHandler, InvalidHttp, InvalidNetwork, IpNetwork, LinkLocalPolicy};
pub use open::{Durability, InvalidDurability, OpenError, StoreOptions};
pub use random::RandomSource;
/// The `rusqlite` this is built with: a program can have only one, so use this one for your
/// own tables.
#[cfg(feature = "sqlite")]
pub use rusqlite;
pub use spill::{Spill, SpillError, SpillSettings, SpillStatus, TakeInReport};
pub use with_retry::{GivenUpData, GivenUpOperation, RetryResult, WithRetry};
pub use worker::{
    QueueSettings, RunningWorker, ServicePlacement, WorkerBuilder, WorkerProgress,
    WorkerSetupError, WorkerTiming,
};
