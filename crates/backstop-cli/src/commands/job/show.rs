//! `backstop job show`: everything about one job.

use super::{JobIdArgs, not_found};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::{about, instant, kind, relative, span};
use backstop::{JobState, Time};
use backstop_core::Job;
use backstop_core::failure::FailureRecord;
use backstop_server::wire::job::JobShape;

pub(crate) async fn run(args: &JobIdArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let job = args
        .job(&backstop)
        .await?
        .ok_or_else(|| not_found(&args.id))?;
    let max_attempts = context.config.max_attempts(&job);
    if context.output.is_json() {
        context.output.json(&JobShape::new(
            &job,
            max_attempts,
            &context.config.redaction,
        ))?;
    } else {
        print_job(&job, max_attempts, backstop.now(), context)?;
    }
    Ok(ExitStatus::Success)
}

fn print_job(
    job: &Job,
    max_attempts: Option<u32>,
    now: Time,
    context: &CliContext,
) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    let state = match job.state {
        JobState::Done => paint.good(job.state),
        JobState::Dead => paint.bad(job.state),
        JobState::Retrying => paint.warning(job.state),
        _ => job.state.to_string(),
    };
    output.line(format!("{} {state}", paint.bold(job.id)))?;
    for (name, value) in fields(job, max_attempts, now) {
        output.line(format!("  {}  {}", paint.dim(format!("{name:<11}")), value))?;
    }
    let redaction = &context.config.redaction;
    let failures = job
        .history
        .failures()
        .into_iter()
        .map(|failure| redaction.failure(failure));
    let failures: Vec<FailureRecord> = failures.collect();
    if !failures.is_empty() {
        output.line(paint.bold("errors"))?;
    }
    for failure in &failures {
        output.line(error_line(failure, now))?;
        for line in trace_lines(failure) {
            output.line(paint.dim(format!("      {line}")))?;
        }
    }
    Ok(())
}

/// The stack trace, unless it says no more than the message.
fn trace_lines(failure: &FailureRecord) -> impl Iterator<Item = &str> {
    let trace = failure
        .error
        .stack_trace
        .as_deref()
        .filter(|trace| trace.trim() != failure.error.message);
    trace.unwrap_or_default().lines()
}

fn fields(job: &Job, max_attempts: Option<u32>, now: Time) -> Vec<(&'static str, String)> {
    let when = |at: Time| format!("{} ({})", instant(at), relative(at, now));
    // The limit that holds now need not be the one that a dead job used up.
    let attempts = match max_attempts {
        _ if job.state == JobState::Dead => job.attempt.to_string(),
        Some(max) => format!("{} of {max}", job.attempt),
        None => format!("{} of unlimited", job.attempt),
    };
    let mut fields = vec![
        ("queue", job.queue.to_string()),
        ("kind", kind(&job.kind)),
        ("priority", job.priority.to_string()),
        ("attempt", attempts),
        ("inserted at", when(job.inserted_at)),
        ("run at", when(job.run_at)),
    ];
    fields.extend(job.finished_at.map(|at| ("finished at", when(at))));
    fields.extend(job.reason.map(|reason| ("reason", reason.to_string())));
    fields.extend(
        job.held_by
            .as_ref()
            .map(|claimant| ("worker", claimant.worker.to_string())),
    );
    fields.extend(job.started_at().map(|at| ("started at", when(at))));
    fields.extend(
        job.running_for(now)
            .map(|running| ("running for", about(running))),
    );
    fields.extend(
        job.unique_key
            .as_ref()
            .map(|key| ("unique key", key.to_string())),
    );
    fields.extend((job.lost_leases > 0).then(|| ("lost leases", job.lost_leases.to_string())));
    fields.extend((job.requeues > 0).then(|| ("requeues", job.requeues.to_string())));
    fields.push((
        "payload",
        String::from_utf8_lossy(job.payload.as_bytes()).into_owned(),
    ));
    fields
}

fn error_line(failure: &FailureRecord, now: Time) -> String {
    let kind = failure
        .error
        .error_type
        .as_ref()
        .map_or_else(String::new, |kind| format!(" [{kind}]"));
    let retry = failure.retry_in.map_or_else(String::new, |wait| {
        format!("; tried again after {}", span(wait))
    });
    let when = relative(failure.at, now);
    format!(
        "  attempt {}, {when}{kind}: {}{retry}",
        failure.attempt, failure.error.message
    )
}
