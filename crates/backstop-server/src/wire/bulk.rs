//! Bulk actions.

use super::job::RefusedShape;
use crate::bulk::{Counted, Deed, Report, Standing, Which};
use backstop::Time;
use backstop::core::redact::Redaction;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The bulk actions that are known: those under way, and the last fifty that have ended.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = BulkRuns)]
pub struct RunsShape<'a> {
    /// The newest first.
    pub runs: Vec<RunShape<'a>>,
}

/// How many jobs a bulk action would be about.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = BulkPreview)]
pub struct PreviewShape {
    /// So many; if that is not exact, at least so many.
    count: u64,
    /// Whether these are all: what is counted job by job is counted up to 10,000, and for a moment.
    exact: bool,
}

/// A bulk action as it stands.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = BulkRun)]
pub struct RunShape<'a> {
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
    refusals: Vec<RefusedShape>,
    /// Why it ended early, if it did.
    error: Option<&'a str>,
    /// Who started it, or let it go on last.
    who: &'a str,
    /// Why, if anybody said so.
    reason: Option<&'a str>,
    /// Whether it was asked to stop.
    stop_asked: bool,
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

impl PreviewShape {
    /// The shape of a count.
    pub const fn new(counted: Counted) -> Self {
        match counted {
            Counted::Exactly(count) => Self { count, exact: true },
            Counted::AtLeast(count) | Counted::AtMost(count) => Self {
                count,
                exact: false,
            },
        }
    }
}

impl<'a> RunShape<'a> {
    /// The shape of a run, seen at `now`.
    pub fn new(report: &'a Report, redaction: &Redaction, now: Time) -> Self {
        let refusal = |(id, why): &(backstop::JobId, String)| RefusedShape {
            id: *id,
            why: why.clone(),
        };
        Self {
            id: &report.id,
            action: match report.target.deed {
                Deed::Retry => "retry",
                Deed::Cancel => "cancel",
                Deed::Delete => "delete",
                Deed::Move => "move",
            },
            of: if matches!(report.target.which, Which::Letters(_)) {
                "dead"
            } else {
                "jobs"
            },
            to: report.target.to.as_ref().map(backstop::QueueName::as_str),
            selection: report.target.selection(redaction),
            state: match report.standing(now) {
                Standing::Running => "running",
                Standing::Silent => "silent",
                Standing::Done => "done",
                Standing::Stopped => "stopped",
                Standing::Failed => "failed",
            },
            count: report.count,
            expected: report.expected,
            refused: report.refused,
            refusals: report.refusals.iter().map(refusal).collect(),
            error: report.error.as_deref(),
            who: &report.who,
            reason: report.reason.as_deref(),
            stop_asked: report.is_stop_asked,
            started_at: report.started_at,
            seen_at: report.seen_at,
            ended_at: report.ended_at,
        }
    }
}
