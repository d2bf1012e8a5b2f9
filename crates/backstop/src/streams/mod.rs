//! Ordered streams: records that arrive out of order, twice, late or never are handled per key in
//! the order of their positions, and what is missing is declared missing once, and only after it
//! was waited for.
//!
//! ```
//! use backstop::streams::{StreamEvent, Record, StreamSettings};
//! use backstop::{RunError, Payload};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let backstop = backstop::Backstop::open("memory:").await?;
//! let uptime = backstop.stream("uptime")?;
//! let running = uptime.serve(StreamSettings::default(), |event: StreamEvent| async move {
//!     println!("{} {} at {}", event.key, event.effect, event.position);
//!     Ok::<(), RunError>(())
//! })?;
//! let result = |position| {
//!     let payload = Payload::json("{\"status\":\"success\"}")?;
//!     Ok::<_, Box<dyn std::error::Error>>(Record { key: "site-7".try_into()?, position, step: 60, tenant: None, payload })
//! };
//! // 180 comes before 120: it is held until 120 is there.
//! running.handle(vec![result(60)?, result(180)?]).await?;
//! running.handle(vec![result(120)?]).await?;
//! running.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! When [`RunningStream::handle`] answers, each record has been handled, is held durably, or is
//! known not to be wanted. A source that acknowledges its records only then loses none. What was in
//! flight when a process is killed may be handled again; nothing else is, and nothing is handled
//! out of order: a key is under a lease while it is worked on.
//!
//! The rules themselves are in [`backstop_core::stream`].

mod batch;
mod batch_writer;
mod clock;
mod dead_letters;
mod due_keys;
mod event;
mod fields;
mod grid;
mod handler;
mod key_leases;
mod key_worker;
pub mod metrics;
mod operate;
mod record_reader;
mod running;
mod settings;
mod store_outage;

pub use backstop_core::port::{KeyFilter, KeyStatus, ListKeysRequest, OfferOutcome, StreamStatus};
pub use backstop_core::stream::{
    DeadRecordPolicy, DrainMode, KeyState, KeyWindow, LatePolicy, Record, ResumeFrom, Rollout,
    StoredKey, StreamCounter, StreamCounts, StreamRules,
};
pub use dead_letters::{dead_letter_queue, dead_letter_stream};
pub use event::{EventEffect, StreamEvent};
pub use fields::{RecordFields, RecordFieldsError, StepField};
pub use grid::KeyGrids;
pub use handler::{JobStreamHandler, StreamHandler};
pub use operate::{ForgottenKey, Stream};
pub use record_reader::RecordReader;
pub use running::{RecordOutcome, RunningStream};
pub use settings::{StreamSettings, StreamSetupError};
