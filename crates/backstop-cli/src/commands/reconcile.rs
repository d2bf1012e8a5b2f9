//! `backstop reconcile`: rows and jobs compared, in both directions.

use super::sweep::chosen;
use crate::context::Context;
use crate::output::words::{about, count};
use crate::trouble::{Trouble, Verdict};
use backstop::sweeps::{Reconciliation, Sweep, SweepError};
use serde_json::{Map, Value, json};

/// Compares, for every sweep.
pub(crate) async fn run(context: &Context) -> Result<Verdict, Trouble> {
    let sweeps = chosen(None, context)?;
    let backstop = context.look().await?;
    let (mut shapes, mut verdict) = (Map::new(), Verdict::Fine);
    for sweep in &sweeps {
        let outcome = backstop.sweeper(sweep).reconcile().await;
        if outcome.as_ref().map_or(true, Reconciliation::falls_short) {
            verdict = Verdict::FallsShort;
        }
        if !context.output.is_json() {
            tell(sweep, &outcome, context)?;
        }
        shapes.insert(sweep.name().to_owned(), shape(&outcome));
    }
    if context.output.is_json() {
        context
            .output
            .json(&json!({ "matches": verdict == Verdict::Fine, "sweeps": shapes }))?;
    }
    Ok(verdict)
}

fn shape(outcome: &Result<Reconciliation, SweepError>) -> Value {
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

fn tell(
    sweep: &Sweep,
    outcome: &Result<Reconciliation, SweepError>,
    context: &Context,
) -> Result<(), Trouble> {
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
