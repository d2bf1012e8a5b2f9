//! `backstop dead show`: everything about one dead letter.

use super::letters;
use crate::commands::job::{JobIdArgs, describe_id};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::{instant, kind, relative, span};
use backstop::dead::{DeadLetter, DeadLetterLookup};
use backstop::{JobId, Span, Time};

pub(super) async fn run(args: &JobIdArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let (typed, id) = (describe_id(args.id()), JobId::from_text(args.id()));
    let backstop = context.open_for_reading().await?;
    let job = args.job(&backstop).await?;
    match letters(&backstop, context).look_up(job.as_ref()) {
        DeadLetterLookup::Letter(letter) if context.output.is_json() => {
            context.output.json(&letter)?;
        }
        DeadLetterLookup::Letter(letter) => print_letter(&letter, backstop.now(), context)?,
        DeadLetterLookup::OtherState(state) => {
            return Err(CliError::new(format!("job {typed} is {state}, not dead"))
                .advise(format!("backstop job show {id}")));
        }
        DeadLetterLookup::NotFound => {
            return Err(CliError::new(format!(
                "there is no dead letter {typed}; it may have been deleted, or pruned"
            ))
            .advise("backstop dead list"));
        }
    }
    Ok(ExitStatus::Success)
}

fn print_letter(letter: &DeadLetter, now: Time, context: &CliContext) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    output.line(format!(
        "{} {}",
        paint.bold(letter.id),
        paint.bad(letter.original_job.state)
    ))?;
    for (name, value) in fields(letter, now) {
        output.line(format!("  {}  {}", paint.dim(format!("{name:<13}")), value))?;
    }
    for (title, text) in [
        ("stack trace", &letter.stack_trace),
        ("response body", &letter.response_body),
    ] {
        let Some(text) = text else { continue };
        output.line(paint.bold(title))?;
        for line in text.lines() {
            output.line(paint.dim(format!("  {line}")))?;
        }
    }
    if !letter.original_job.errors.is_empty() {
        output.line(paint.bold("errors"))?;
    }
    for failure in &letter.original_job.errors {
        let kind = failure
            .error
            .error_type
            .as_ref()
            .map_or_else(String::new, |kind| format!(" [{kind}]"));
        let retry = failure.retry_in.map_or_else(String::new, |wait| {
            format!("; tried again after {}", span(wait))
        });
        let when = relative(failure.at, now);
        let line = format!(
            "  attempt {}, {when}{kind}: {}{retry}",
            failure.attempt, failure.error.message
        );
        output.line(line)?;
    }
    Ok(())
}

fn fields(letter: &DeadLetter, now: Time) -> Vec<(&'static str, String)> {
    let when = |at: Time| format!("{} ({})", instant(at), relative(at, now));
    let job = &letter.original_job;
    let mut fields = vec![
        ("queue", letter.queue.to_string()),
        ("kind", kind(&letter.kind)),
    ];
    fields.extend(letter.reason.clone().map(|reason| ("reason", reason)));
    fields.push(("error", letter.error.clone()));
    fields.extend(letter.error_type.clone().map(|class| ("error type", class)));
    fields.extend(
        letter
            .http_status
            .map(|status| ("http status", status.to_string())),
    );
    fields.push(("attempts", letter.attempt_count.to_string()));
    fields.push(("requeues", letter.requeues.to_string()));
    fields.extend((job.lost_leases > 0).then(|| ("lost leases", job.lost_leases.to_string())));
    fields.extend(letter.first_failed_at.map(|at| ("first failed", when(at))));
    fields.extend(letter.last_failed_at.map(|at| ("last failed", when(at))));
    let delay = |secs: &f64| span(Span::micros((secs * 1_000_000.0).round() as i64));
    let delays = |delays: &Vec<f64>| delays.iter().map(delay).collect::<Vec<_>>().join(", ");
    fields.extend(
        letter
            .retry_delays
            .as_ref()
            .map(|waits| ("retry delays", delays(waits))),
    );
    fields.extend(
        letter
            .fingerprint
            .map(|print| ("fingerprint", print.to_string())),
    );
    fields.extend(job.unique_key.clone().map(|key| ("unique key", key)));
    let context = letter
        .context
        .as_ref()
        .and_then(|context| serde_json::to_string(context).ok());
    fields.extend(context.map(|context| ("context", context)));
    fields.push(("payload", job.payload.get().to_owned()));
    fields
}
