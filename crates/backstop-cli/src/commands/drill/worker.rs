//! A worker dies in the middle of a job: how long until another runs it?

use super::child::DrillProcess;
use super::part::DrillPart;
use super::{PATIENCE, QUEUE};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::about;
use backstop::{Backstop, JobId, JobState, Span, StoreAddress};
use serde::Serialize;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct WorkerDrillShape {
    kill: &'static str,
    store: String,
    job: JobId,
    lease_ms: i64,
    took_ms: i64,
    bound_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "asked_ms")]
    limit_ms: Option<i64>,
    within: bool,
}

pub(super) async fn run_drill(
    backstop: &Backstop,
    address: &StoreAddress,
    lease: Span,
    limit: Option<Span>,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let mut victim = DrillProcess::start(DrillPart::Victim, address, lease, context)?;
    victim.wait_for_word("ready", PATIENCE).await?;
    let job = backstop.draft(QUEUE).push().await?.id;
    victim.wait_for_word("began", PATIENCE).await?;
    let mut rescuer = DrillProcess::start(DrillPart::Rescuer, address, lease, context)?;
    let bound_ms: i64 = rescuer
        .wait_for_word("ready", PATIENCE)
        .await?
        .parse()
        .map_err(CliError::new)?;
    let bound = Span::millis(bound_ms);
    context.output.note(format!(
        "a worker runs {job}; it is killed now, and has {} to be replaced",
        about(bound)
    ));
    victim.kill().await?;
    let killed = Instant::now();
    rescuer
        .wait_for_word("began", Duration::from(bound) + PATIENCE)
        .await?;
    let took = Span::from(killed.elapsed());
    until_done(backstop, job).await?;
    let report = WorkerDrillShape {
        kill: "worker",
        store: address.to_string(),
        job,
        lease_ms: lease.as_millis(),
        took_ms: took.as_millis(),
        bound_ms,
        limit_ms: limit.map(Span::as_millis),
        within: is_within(took, bound, limit),
    };
    print_report(&report, context)
}

/// Whether it was soon enough: by what is promised, and by what was asked for.
fn is_within(took: Span, bound: Span, limit: Option<Span>) -> bool {
    took <= bound && limit.is_none_or(|limit| took <= limit)
}

/// The rescuer ends the job: a drill that leaves one running has failed.
async fn until_done(backstop: &Backstop, job: JobId) -> Result<(), CliError> {
    let deadline = Instant::now() + PATIENCE;
    while backstop
        .job(job)
        .await?
        .is_some_and(|job| job.state != JobState::Done)
    {
        if Instant::now() > deadline {
            return Err(CliError::new(format!(
                "{job} ran again and did not come to its end"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn print_report(report: &WorkerDrillShape, context: &CliContext) -> Result<ExitStatus, CliError> {
    if context.output.is_json() {
        context.output.json(report)?;
    } else {
        let paint = context.output.paint();
        let (took, bound) = (seconds(report.took_ms), seconds(report.bound_ms));
        let limit_text = report.limit_ms.map_or_else(String::new, |ms| {
            format!(", asked for within {}", Span::millis(ms))
        });
        let text = format!(
            "ran again {took} after its worker was killed; promised within {bound}{limit_text}"
        );
        context.output.line(if report.within {
            paint.good(text)
        } else {
            paint.bad(text)
        })?;
    }
    Ok(if report.within {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

fn seconds(ms: i64) -> String {
    format!("{:.1}s", Span::millis(ms).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rerun_meets_the_promise_and_the_requested_limit() {
        let check = |took, limit: Option<i64>, expected| {
            let held = is_within(Span::millis(took), Span::secs(4), limit.map(Span::millis));
            assert_eq!(held, expected, "{took} ms, asked for {limit:?}");
        };
        check(4_000, None, true);
        check(4_001, None, false);
        check(4_001, Some(9_000), false);
        check(2_000, Some(2_000), true);
        check(2_001, Some(2_000), false);
    }
}
