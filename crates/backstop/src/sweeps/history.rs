//! What became of past runs: the last fifty, in one cell.

use super::{ReconcileReport, Sweep, SweepError, SweepReport};
use crate::client::Backstop;
use crate::shared_cells::{read, update};
use backstop_core::failure::truncate_text;
use backstop_core::limits::{EVENT_REASON_CHARS_MAX, SWEEP_RUNS_MAX};
use backstop_core::port::StoreResult;
use backstop_core::{Span, Time};
use serde::{Deserialize, Serialize};

/// A run that has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PastRun {
    pub at: Time,
    pub took: Span,
    pub runner: String,
    pub found: usize,
    /// Of these, those whose job is on its way.
    pub alive: usize,
    /// Of these, those whose job is dead.
    pub dead: usize,
    /// Of these, those that got a job.
    pub enqueued: usize,
    /// Of these, those that were given up.
    pub buried: usize,
    /// Of these, those whose job has ended and keeps its key.
    #[serde(default)]
    pub spent: usize,
    /// Of these, those that a full queue, or full dead letters, did not take.
    #[serde(default)]
    pub refused: usize,
    /// Rows that no job could be made of.
    pub unusable: usize,
    /// Whether there were more rows than a run can look at.
    #[serde(default)]
    pub unseen: bool,
    /// Rows past the threshold without a job, by the comparison after it; `None` if there was
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_without_jobs: Option<usize>,
    /// Jobs past the threshold without a row, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_without_rows: Option<usize>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PastRun {
    pub(super) fn of(
        outcome: &Result<SweepReport, SweepError>,
        at: Time,
        took: Span,
        runner: &str,
    ) -> Self {
        let none = SweepReport::default();
        let report = outcome.as_ref().unwrap_or(&none);
        Self {
            at,
            took,
            runner: runner.to_owned(),
            found: report.found.len(),
            alive: report.alive.len(),
            dead: report.dead.len(),
            enqueued: report.enqueued.len(),
            buried: report.buried.len(),
            spent: report.spent.len(),
            refused: report.refused.len(),
            unusable: report.unusable.len(),
            unseen: report.unseen,
            rows_without_jobs: None,
            jobs_without_rows: None,
            error: outcome
                .as_ref()
                .err()
                .map(|error| truncate_text(error.to_string(), EVENT_REASON_CHARS_MAX)),
        }
    }
}

/// The runs, the latest last.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct SweepRunHistory(Vec<PastRun>);

fn cell(sweep: &Sweep) -> String {
    sweep.cell("history")
}

/// The last runs, the latest first.
pub(super) async fn runs(backstop: &Backstop, sweep: &Sweep) -> StoreResult<Vec<PastRun>> {
    let cell = backstop
        .store()
        .cells(vec![cell(sweep)])
        .await?
        .pop()
        .flatten();
    let runs = cell
        .as_ref()
        .and_then(read::<SweepRunHistory>)
        .unwrap_or_default();
    Ok(runs.0.into_iter().rev().collect())
}

/// Writes down what was found by comparing rows and jobs after a run.
pub(super) async fn note_reconciled(
    backstop: &Backstop,
    sweep: &Sweep,
    run: &PastRun,
    found: &ReconcileReport,
) {
    let add = |runs: &mut SweepRunHistory| {
        let is_it = |known: &&mut PastRun| known.at == run.at && known.runner == run.runner;
        if let Some(known) = runs.0.iter_mut().rev().find(is_it) {
            known.rows_without_jobs = Some(found.rows_without_jobs.len());
            known.jobs_without_rows = Some(found.overdue().count());
        }
    };
    if let Err(error) = update(backstop, &cell(sweep), SweepRunHistory::default(), add).await {
        tracing::warn!(%error, sweep = sweep.name(), "a comparison could not be noted");
    }
}

/// Writes down a run. It has happened: where this fails, it is only not remembered.
pub(super) async fn note(backstop: &Backstop, sweep: &Sweep, run: &PastRun) {
    let add = |runs: &mut SweepRunHistory| {
        runs.0.push(run.clone());
        let surplus = runs.0.len().saturating_sub(SWEEP_RUNS_MAX);
        runs.0.drain(..surplus);
    };
    if let Err(error) = update(backstop, &cell(sweep), SweepRunHistory::default(), add).await {
        tracing::warn!(%error, sweep = sweep.name(), "a run could not be noted");
    }
}
