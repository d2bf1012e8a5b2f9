//! A worker dies in the middle of a job: how long until another runs it?

use super::child::Child;
use super::part::Part;
use super::{PATIENCE, QUEUE};
use crate::context::Context;
use crate::output::words::about;
use crate::trouble::{Trouble, Verdict};
use backstop::{Address, Backstop, JobId, Span, State};
use serde::Serialize;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct ReportShape {
    kill: &'static str,
    store: String,
    job: JobId,
    lease_ms: i64,
    took_ms: i64,
    bound_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_ms: Option<i64>,
    within: bool,
}

/// Holds the drill.
pub(super) async fn hold(
    backstop: &Backstop,
    address: &Address,
    lease: Span,
    asked: Option<Span>,
    context: &Context,
) -> Result<Verdict, Trouble> {
    let mut victim = Child::start(Part::Victim, address, lease, context)?;
    victim.hear("ready", PATIENCE).await?;
    let job = backstop.draft(QUEUE).push().await?.id;
    victim.hear("began", PATIENCE).await?;
    let mut rescuer = Child::start(Part::Rescuer, address, lease, context)?;
    let bound_ms: i64 = rescuer
        .hear("ready", PATIENCE)
        .await?
        .parse()
        .map_err(Trouble::new)?;
    let bound = Span::millis(bound_ms);
    context.output.note(format!(
        "a worker runs {job}; it is killed now, and has {} to be replaced",
        about(bound)
    ));
    victim.kill().await?;
    let killed = Instant::now();
    rescuer
        .hear("began", Duration::from(bound) + PATIENCE)
        .await?;
    let took = Span::from(killed.elapsed());
    until_done(backstop, job).await?;
    let report = ReportShape {
        kill: "worker",
        store: address.to_string(),
        job,
        lease_ms: lease.as_millis(),
        took_ms: took.as_millis(),
        bound_ms,
        asked_ms: asked.map(Span::as_millis),
        within: is_within(took, bound, asked),
    };
    tell(&report, context)
}

/// Whether it was soon enough: by what is promised, and by what was asked for.
fn is_within(took: Span, bound: Span, asked: Option<Span>) -> bool {
    took <= bound && asked.is_none_or(|asked| took <= asked)
}

/// The rescuer ends the job: a drill that leaves one running has failed.
async fn until_done(backstop: &Backstop, job: JobId) -> Result<(), Trouble> {
    let deadline = Instant::now() + PATIENCE;
    while backstop
        .job(job)
        .await?
        .is_some_and(|job| job.state != State::Done)
    {
        if Instant::now() > deadline {
            return Err(Trouble::new(format!(
                "{job} ran again and did not come to its end"
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn tell(report: &ReportShape, context: &Context) -> Result<Verdict, Trouble> {
    if context.output.is_json() {
        context.output.json(report)?;
    } else {
        let paint = context.output.paint();
        let (took, bound) = (seconds(report.took_ms), seconds(report.bound_ms));
        let asked = report.asked_ms.map_or_else(String::new, |ms| {
            format!(", asked for within {}", Span::millis(ms))
        });
        let text =
            format!("ran again {took} after its worker was killed; promised within {bound}{asked}");
        context.output.line(if report.within {
            paint.good(text)
        } else {
            paint.bad(text)
        })?;
    }
    Ok(if report.within {
        Verdict::Fine
    } else {
        Verdict::FallsShort
    })
}

fn seconds(ms: i64) -> String {
    format!("{:.1}s", Span::millis(ms).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rerun_is_held_to_what_is_promised_and_to_what_was_asked_for() {
        let check = |took, asked: Option<i64>, expected| {
            let held = is_within(Span::millis(took), Span::secs(4), asked.map(Span::millis));
            assert_eq!(held, expected, "{took} ms, asked for {asked:?}");
        };
        check(4_000, None, true);
        check(4_001, None, false);
        check(4_001, Some(9_000), false);
        check(2_000, Some(2_000), true);
        check(2_001, Some(2_000), false);
    }
}
