//! Bulk actions.

use super::job::RefusedJobShape;
use crate::bulk::{BulkAction, BulkReport, BulkSelection, BulkStatus, JobCount};
use backstop::Time;
use backstop::core::redact::Redaction;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The bulk actions that are known: those under way, and the last fifty that have ended.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = BulkRuns)]
pub struct BulkRunsShape<'a> {
    /// The newest first.
    pub runs: Vec<BulkRunShape<'a>>,
}

/// How many jobs a bulk action would be about.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = BulkPreview)]
pub struct BulkPreviewShape {
    /// So many; if that is not exact, at least so many.
    count: u64,
    /// Whether these are all: what is counted job by job is counted up to 10,000, and for a
    /// moment.
    exact: bool,
}

/// A bulk action as it stands.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = BulkRun)]
pub struct BulkRunShape<'a> {
    /// Names it.
    id: &'a str,
    /// What is done: retry, cancel, delete or move.
    action: &'static str,
    /// To what: jobs or dead.
    of: &'static str,
    /// The queue they are moved to.
    to: Option<&'a str>,
    /// To which: `matching` with the filter, or `all`. Secrets in a text are hidden.
    #[schema(value_type = Object)]
    selection: Value,
    /// running, silent (its server gives no sign of life; another one goes on with it), done,
    /// stopped or failed.
    state: &'static str,
    /// To how many jobs it was done.
    count: u64,
    /// How many there were when it was started, where that was known exactly.
    expected: Option<u64>,
    /// How many were left alone.
    refused: u64,
    /// The first of them, and why.
    refusals: Vec<RefusedJobShape>,
    /// Why it ended early, if it did.
    error: Option<&'a str>,
    /// Who started it, or let it go on last.
    who: &'a str,
    /// Why, if anybody said so.
    reason: Option<&'a str>,
    /// Whether it was asked to stop.
    #[serde(rename = "stop_asked")]
    stop_requested: bool,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    started_at: Time,
    /// Its last sign of life.
    #[schema(value_type = String, format = DateTime)]
    seen_at: Time,
    /// When it ended, if it has.
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Time>,
}

impl BulkPreviewShape {
    /// The shape of a count.
    pub const fn new(counted: JobCount) -> Self {
        match counted {
            JobCount::Exactly(count) => Self { count, exact: true },
            JobCount::AtLeast(count) | JobCount::AtMost(count) => Self {
                count,
                exact: false,
            },
        }
    }
}

impl<'a> BulkRunShape<'a> {
    /// The shape of a run, seen at `now`.
    pub fn new(report: &'a BulkReport, redaction: &Redaction, now: Time) -> Self {
        let refusal = |(id, why): &(backstop::JobId, String)| RefusedJobShape {
            id: *id,
            why: why.clone(),
        };
        Self {
            id: &report.id,
            action: match report.target.deed {
                BulkAction::Retry => "retry",
                BulkAction::Cancel => "cancel",
                BulkAction::Delete => "delete",
                BulkAction::Move => "move",
            },
            of: if matches!(report.target.which, BulkSelection::Letters(_)) {
                "dead"
            } else {
                "jobs"
            },
            to: report.target.to.as_ref().map(backstop::QueueName::as_str),
            selection: report.target.audit_selection(redaction),
            state: match report.status(now) {
                BulkStatus::Running => "running",
                BulkStatus::Silent => "silent",
                BulkStatus::Done => "done",
                BulkStatus::Stopped => "stopped",
                BulkStatus::Failed => "failed",
            },
            count: report.count,
            expected: report.expected,
            refused: report.refused,
            refusals: report.refusals.iter().map(refusal).collect(),
            error: report.error.as_deref(),
            who: &report.who,
            reason: report.reason.as_deref(),
            stop_requested: report.is_stop_requested,
            started_at: report.started_at,
            seen_at: report.seen_at,
            ended_at: report.ended_at,
        }
    }
}
