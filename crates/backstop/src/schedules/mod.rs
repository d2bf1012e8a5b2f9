//! Schedules: work that is due at instants, with a ledger of what became of each.
//!
//! ```
//! # use backstop::schedules::{Cron, Schedule, Zone};
//! # use backstop::{testing, QueueName, Run, ScheduleName, Span};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let test = testing::start();
//! let digest = Schedule {
//!     timezone: Zone::new("Europe/London")?,
//!     ..Schedule::new(ScheduleName::new("daily_digest")?, Cron::new("30 8 * * *")?, QueueName::new("digests")?)
//! };
//! // In a program this is `.start()`: from then on it fires by itself, once for each instant, however many workers run.
//! let worker = || test.backstop.worker().schedule(digest.clone()).handle_raw("digests", |_: Run| async { Ok(()) });
//! worker().drain().await?;
//! test.clock.advance(Span::hours(9));
//! assert_eq!(worker().drain().await?.done, 1);
//! let runs = test.backstop.schedules().runs(&digest.name, 10).await?;
//! assert_eq!(runs[0].instant.to_string(), "2026-01-01T08:30:00Z");
//! # Ok(())
//! # }
//! ```
//!
//! Rules, and what the words mean, are in [`backstop_core::schedule`].
//!
//! | cell | what is in it |
//! |---|---|
//! | `schedules/NAME` | since when it counts, when it was paused, its newest run |
//! | `ledger/NAME/DAY` | what became of the instants of a day (UTC); kept for 32 days, and the newest 66 for longer |

pub(crate) mod check;
mod ledger;
pub(crate) mod metrics;
mod operate;

pub use backstop_core::schedule::{
    Cron, InstantOutcome, InvalidCron, InvalidZone, LatestRun, LedgerEntry, MissedPolicy,
    MissedSettings, Schedule, ScheduleState, SkipReason, UtcDay, Zone,
};
pub use check::ScheduleCheckReport;
pub use operate::{MissedRun, ScheduleStatus, Schedules, TriggerError, TriggerResult};
