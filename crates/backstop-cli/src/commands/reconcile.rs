//! `backstop reconcile`: rows and jobs compared, in both directions.

use super::sweep::select_sweeps;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::{about, count};
use backstop::sweeps::{ReconcileReport, Sweep, SweepError};
use serde_json::{Map, Value, json};

pub(crate) async fn run(context: &CliContext) -> Result<ExitStatus, CliError> {
    let sweeps = select_sweeps(None, context)?;
    let backstop = context.open_for_reading().await?;
    let (mut shapes, mut status) = (Map::new(), ExitStatus::Success);
    for sweep in &sweeps {
        let outcome = backstop.sweeper(sweep).reconcile().await;
        if outcome.as_ref().map_or(true, ReconcileReport::falls_short) {
            status = ExitStatus::Failure;
        }
        if !context.output.is_json() {
            print_reconciliation(sweep, &outcome, context)?;
        }
        shapes.insert(sweep.name().to_owned(), shape(&outcome));
    }
    if context.output.is_json() {
        context
            .output
            .json(&json!({ "matches": status == ExitStatus::Success, "sweeps": shapes }))?;
    }
    Ok(status)
}

fn shape(outcome: &Result<ReconcileReport, SweepError>) -> Value {
    match outcome {
        Err(error) => json!({ "matches": false, "error": error.to_string() }),
        Ok(found) => {
            let jobs = found.jobs_without_rows.iter().map(|job| {
                json!({ "id": job.id, "unique_key": job.key.as_str(), "age_seconds": job.age.as_micros() / 1_000_000 })
            });
            json!({
                "matches": !found.falls_short(),
                "rows_without_jobs": found.rows_without_jobs,
                "dead": found.dead,
                "jobs_without_rows": jobs.collect::<Vec<_>>(),
            })
        }
    }
}

fn print_reconciliation(
    sweep: &Sweep,
    outcome: &Result<ReconcileReport, SweepError>,
    context: &CliContext,
) -> Result<(), CliError> {
    let found = match outcome {
        Ok(found) => found,
        Err(error) => {
            context
                .output
                .warn(format!("sweep {}: {error}", sweep.name()));
            return Ok(());
        }
    };
    let number = |number: usize| count(number as u64);
    context.output.line(format!(
        "{}: {} rows without a live job ({} of them dead), {} live jobs without a row",
        sweep.name(),
        number(found.rows_without_jobs.len()),
        number(found.dead.len()),
        number(found.jobs_without_rows.len()),
    ))?;
    for row in &found.rows_without_jobs {
        let dead = if found.dead.contains(row) {
            ", whose job is dead"
        } else {
            ""
        };
        context.output.line(format!("  row {row}{dead}"))?;
    }
    for job in &found.jobs_without_rows {
        context.output.line(format!(
            "  job {} ({}), {} old",
            job.id,
            job.key,
            about(job.age)
        ))?;
    }
    if found.rows_without_jobs.len() > found.dead.len() {
        context
            .output
            .note(format!("try: backstop sweep {}", sweep.name()));
    }
    Ok(())
}
