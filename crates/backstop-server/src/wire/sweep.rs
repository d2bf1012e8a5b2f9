//! Sweeps: what a run found and did, and what past runs did.

use backstop::sweeps::{PastRun, Sweep, SweepReport};
use backstop::{QueueName, Span};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The lists of a run, in this order; `enqueued` only where something was done.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = SweepReport)]
pub struct SweepReportShape<'a> {
    /// Rows that were found.
    #[schema(value_type = Vec<Value>)]
    found: &'a [Value],
    /// Those whose job waits or runs.
    #[schema(value_type = Vec<Value>)]
    alive: &'a [Value],
    /// Those that have no job.
    #[schema(value_type = Vec<Value>)]
    would_enqueue: &'a [Value],
    /// Those whose job is dead.
    #[schema(value_type = Vec<Value>)]
    dead: &'a [Value],
    /// Those that were given one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Value>>)]
    enqueued: Option<&'a [Value]>,
}

impl<'a> SweepReportShape<'a> {
    /// The shape of a run that changed something, or only looked.
    pub fn new(report: &'a SweepReport, is_dry: bool) -> Self {
        Self {
            found: &report.found,
            alive: &report.alive,
            would_enqueue: &report.would_enqueue,
            dead: &report.dead,
            enqueued: (!is_dry).then_some(&report.enqueued),
        }
    }
}

/// All sweeps of the configuration, by name.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Sweeps)]
pub struct SweepsShape<'a> {
    /// By name.
    pub sweeps: BTreeMap<&'a str, SweepShape<'a>>,
}

/// A sweep, and its last runs.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Sweep)]
pub struct SweepShape<'a> {
    /// How often it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, nullable = false)]
    every: Option<Span>,
    /// How old a row is before it counts as lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, nullable = false)]
    older_than: Option<Span>,
    /// Where its jobs go.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, nullable = false)]
    queue: Option<&'a QueueName>,
    /// The last runs, the latest first.
    #[schema(value_type = Vec<SweepPastRunShape>)]
    runs: &'a [PastRun],
}

/// A run of a sweep that has ended.
#[derive(ToSchema)]
#[schema(as = SweepPastRun)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct SweepPastRunShape {
    /// When it began.
    #[schema(format = DateTime)]
    at: String,
    /// How long it took, such as `1s500ms`.
    took: String,
    /// Who ran it.
    runner: String,
    /// Rows that were found.
    found: u64,
    /// Of these, those whose job is on its way.
    alive: u64,
    /// Of these, those whose job is dead.
    dead: u64,
    /// Of these, those that got a job.
    enqueued: u64,
    /// Of these, those that were given up.
    buried: u64,
    /// Of these, those whose job has ended and keeps its key.
    spent: u64,
    /// Of these, those that a full queue, or full dead letters, did not take.
    refused: u64,
    /// Rows that no job could be made of.
    unusable: u64,
    /// Whether there were more rows than a run can look at.
    unseen: bool,
    /// Rows past the threshold without a job, by the comparison after it.
    #[schema(required = false, nullable = false)]
    rows_without_jobs: Option<u64>,
    /// Jobs past the threshold without a row, likewise.
    #[schema(required = false, nullable = false)]
    jobs_without_rows: Option<u64>,
    /// Why it failed, if it did.
    #[schema(required = false, nullable = false)]
    error: Option<String>,
}

impl<'a> SweepShape<'a> {
    pub const fn runs(runs: &'a [PastRun]) -> Self {
        Self {
            every: None,
            older_than: None,
            queue: None,
            runs,
        }
    }

    /// What is known about it, and its runs.
    pub fn new(sweep: &'a Sweep, runs: &'a [PastRun]) -> Self {
        Self {
            every: Some(sweep.period()),
            older_than: Some(sweep.threshold()),
            queue: Some(sweep.queue()),
            ..Self::runs(runs)
        }
    }
}
