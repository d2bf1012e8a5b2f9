//! Sweeps: looking for work that was lost before it reached us, and giving it a job.
//!
//! The row was written and the enqueue after it failed; somebody restored a backup; a job was
//! deleted by mistake. A sweep is a query over the user's own tables for rows that are unprocessed
//! and older than a threshold. What becomes of each is decided by [`backstop_core::sweep`]; the
//! unique key that is made of the row makes it one job at most, however many sweep.
//!
//! ```
//! use backstop::sweeps::{FindError, Finder, Finding, FindResult, Sweep};
//! use backstop::{Payload, Time};
//! use backstop::core::unique::UniqueKey;
//!
//! /// Orders that were paid for and never sent.
//! struct Unsent;
//!
//! #[async_trait::async_trait]
//! impl Finder for Unsent {
//!     async fn find(&self, paid_before: Time, max: usize) -> Result<FindResult, FindError> {
//!         let orders: Vec<u64> = vec![17]; // SELECT id FROM orders WHERE sent_at IS NULL AND paid_at <= … LIMIT …
//!         let finding = |id: u64| Finding {
//!             row: id.into(),
//!             key: UniqueKey::new(&format!("order:{id}")).expect("a short key"),
//!             payload: Payload::json(format!("{{\"order\":{id}}}")).expect("JSON"),
//!         };
//!         Ok(orders.into_iter().take(max).map(finding).collect())
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backstop = backstop::Backstop::open("memory:").await?;
//! let sweep = Sweep::new("unsent", "shipping", Unsent)?.kind("SendOrder")?;
//! let report = backstop.sweeper(&sweep).run().await?;
//! assert_eq!(report.enqueued.len(), 1);
//! let again = backstop.sweeper(&sweep).run().await?;
//! assert_eq!((again.alive.len(), again.enqueued.len()), (1, 0));
//! # Ok(())
//! # }
//! ```
//!
//! A worker runs the sweeps it is given by itself, every [`Sweep::every`]; of many workers one
//! does.

mod collect;
mod dead_letters;
mod history;
mod metrics;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod query;
mod reconcile;
mod recoveries;
mod run;
mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
mod turn;

pub use crate::database::{DatabaseSource, InvalidDatabase};
pub use backstop_core::sweep::Finding;
pub use history::PastRun;
pub use query::{InvalidSweepQuery, SweepQuery};
pub use reconcile::{ReconcileReport, UnmatchedJob};
pub use run::{SweepError, SweepReport, Sweeper, UnusableRow};

use async_trait::async_trait;
use backstop_core::limits::{SWEEP_EVERY_MIN, SWEEP_RECOVERIES_MAX, SWEEP_ROWS_MAX};
use backstop_core::name::InvalidName;
use backstop_core::sweep::UnknownColumn;
use backstop_core::unique::UniqueKey;
use backstop_core::{Kind, QueueName, Span, Time};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Looks for lost work. A query is one; anything else that can tell rows and their keys is another.
#[async_trait]
pub trait Finder: Send + Sync + 'static {
    /// Unprocessed work from before `cutoff`, at most `max` of it; the oldest first, if there is an
    /// order.
    async fn find(&self, cutoff: Time, max: usize) -> Result<FindResult, FindError>;

    /// The same for whoever needs a part of it. Of rows that are large a finder then need not hold
    /// more.
    async fn find_wanted(
        &self,
        cutoff: Time,
        max: usize,
        wanted: &FindScope,
    ) -> Result<FindResult, FindError> {
        let mut found = self.find(cutoff, max).await?;
        found.is_cut |= found.findings.len() + found.unusable.len() >= max;
        found.findings.truncate(max);
        found.findings.retain(|finding| wanted.has(&finding.key));
        Ok(found)
    }

    /// Whether a job with this key, of the sweep's queue and kind, was made for a row of this
    /// finder's: asked when jobs are compared with rows.
    fn is_own(&self, _key: &UniqueKey) -> bool {
        true
    }
}

/// The rows that one run of a sweep's query found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FindResult {
    pub findings: Vec<Finding>,
    /// Rows that no job can be made of.
    pub unusable: Vec<UnusableRow>,
    /// Whether there may be more than these.
    pub is_cut: bool,
}

impl FromIterator<Finding> for FindResult {
    fn from_iter<I: IntoIterator<Item = Finding>>(findings: I) -> Self {
        Self {
            findings: findings.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// What a search is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FindScope {
    All,
    /// All of them, and their payloads need not be there.
    Keys,
    /// Those with one of these keys.
    These(BTreeSet<UniqueKey>),
}

impl FindScope {
    /// Whether the finding with this key is.
    pub fn has(&self, key: &UniqueKey) -> bool {
        !matches!(self, Self::These(keys) if !keys.contains(key))
    }
}

/// A search that failed. No message shows a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The query is wrong, or the database does not answer.
    #[error("{0}")]
    Failed(String),
    /// A template names a column that the query does not give.
    #[error(transparent)]
    Column(#[from] UnknownColumn),
    /// It took too long, and was stopped.
    #[error("the query was stopped after {0}; give it an index, or raise `timeout`")]
    TooSlow(Span),
}

/// A sweep: where to look, what to enqueue, and how often. Cheap to clone.
#[derive(Clone)]
pub struct Sweep {
    name: Arc<str>,
    finder: Arc<dyn Finder>,
    queue: QueueName,
    kind: Kind,
    older_than: Span,
    every: Span,
    max_per_run: usize,
    max_recoveries: u32,
}

/// A sweep that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSweep {
    /// Its own name is wrong.
    #[error("`{0}` is not a sweep's name; use 1 to 128 of A-Z a-z 0-9 . _ -")]
    Name(String),
    /// Its queue or kind is wrong.
    #[error(transparent)]
    Job(#[from] InvalidName),
    /// A number is out of its range.
    #[error("`{what}` must be from {least} to {most}")]
    Range {
        what: &'static str,
        /// The least it may be.
        least: String,
        /// The most it may be.
        most: String,
    },
}

impl Sweep {
    /// A sweep with the usual settings: rows older than an hour, every half hour, at most 1,000 a
    /// run, each recovered at most three times.
    pub fn new(name: &str, queue: &str, finder: impl Finder) -> Result<Self, InvalidSweep> {
        // The same letters as a queue's, so that the name can stand in a cell's and in a label.
        QueueName::new(name).map_err(|_| InvalidSweep::Name(name.chars().take(128).collect()))?;
        Ok(Self {
            name: name.into(),
            finder: Arc::new(finder),
            queue: QueueName::new(queue)?,
            kind: Kind::default(),
            older_than: Span::hours(1),
            every: Span::minutes(30),
            max_per_run: 1_000,
            max_recoveries: 3,
        })
    }

    /// Its jobs are of this kind.
    pub fn kind(mut self, kind: &str) -> Result<Self, InvalidSweep> {
        self.kind = Kind::new(kind)?;
        Ok(self)
    }

    /// Rows are looked for when they are older than this.
    #[must_use]
    pub fn older_than(mut self, older_than: Span) -> Self {
        self.older_than = older_than;
        self
    }

    pub fn every(mut self, every: Span) -> Result<Self, InvalidSweep> {
        if every < SWEEP_EVERY_MIN {
            return Err(range("every", SWEEP_EVERY_MIN, Span::days(365)));
        }
        self.every = every;
        Ok(self)
    }

    /// One run finds at most so many rows; the others wait for the next.
    pub fn max_per_run(mut self, max: usize) -> Result<Self, InvalidSweep> {
        if !(1..=SWEEP_ROWS_MAX).contains(&max) {
            return Err(range("max_per_run", 1, SWEEP_ROWS_MAX));
        }
        self.max_per_run = max;
        Ok(self)
    }

    /// A row that is found again after so many recoveries becomes a dead letter: its jobs end, and
    /// it stays unprocessed.
    pub fn max_recoveries(mut self, max: u32) -> Result<Self, InvalidSweep> {
        if !(1..=SWEEP_RECOVERIES_MAX).contains(&max) {
            return Err(range("max_recoveries", 1, SWEEP_RECOVERIES_MAX));
        }
        self.max_recoveries = max;
        Ok(self)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queue its jobs go to.
    pub const fn queue(&self) -> &QueueName {
        &self.queue
    }

    pub const fn period(&self) -> Span {
        self.every
    }

    /// How old a row must be.
    pub const fn threshold(&self) -> Span {
        self.older_than
    }

    /// The name of a cell of its own.
    fn cell(&self, part: &str) -> String {
        format!("sweeps/{}/{part}", self.name)
    }
}

fn range(what: &'static str, least: impl fmt::Display, most: impl fmt::Display) -> InvalidSweep {
    InvalidSweep::Range {
        what,
        least: least.to_string(),
        most: most.to_string(),
    }
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Sweep");
        shown
            .field("name", &self.name)
            .field("queue", &self.queue)
            .field("kind", &self.kind);
        shown
            .field("older_than", &self.older_than)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
