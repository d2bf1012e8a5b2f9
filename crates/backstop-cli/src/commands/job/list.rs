//! `backstop job list`: a page of jobs, or all pages one after another in bounded memory.

use super::JobFilterArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{about, cut, kind, relative};
use crate::output::{CliOutput, json_text};
use backstop::{Backstop, JobState, Time};
use backstop_core::Job;
use backstop_core::limits::PAGE_MAX;
use backstop_core::port::{DamagedJob, ListJobsResult};
use backstop_core::redact::Redaction;
use backstop_core::terminal::shell_word;
use backstop_server::wire::job::{DamagedJobShape, JobShape, JobsShape};
use clap::Args;

/// Characters of an error shown in a table.
const ERROR_CHARS: usize = 60;

/// Which jobs, and how many.
#[derive(Args, Debug)]
pub(crate) struct JobListArgs {
    #[command(flatten)]
    filter: JobFilterArgs,
    /// At most so many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Go on where an earlier list ended: its `next`
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// All of them, page after page
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

pub(crate) async fn run(args: &JobListArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    if args.all {
        list_all(args, &backstop, context).await
    } else {
        list_page(args, &backstop, context).await
    }
}

async fn list_page(
    args: &JobListArgs,
    backstop: &Backstop,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let limit = args.limit.clamp(1, PAGE_MAX);
    let page = full_page(args, backstop, context, args.cursor.clone(), limit).await?;
    warn_of_damaged(&page.damaged, context.output);
    if context.output.is_json() {
        let jobs: Vec<_> = page
            .jobs
            .iter()
            .map(|job| {
                JobShape::listed(
                    job,
                    context.config.max_attempts(job),
                    &context.config.redaction,
                )
            })
            .collect();
        context.output.json(&JobsShape {
            jobs,
            damaged: Vec::new(),
            next: page.next.as_deref(),
        })?;
        return Ok(ExitStatus::Success);
    }
    if page.jobs.is_empty() {
        context.output.note("no jobs");
    } else {
        context.output.table(&table(
            &page.jobs,
            &context.config.redaction,
            backstop.now(),
        ))?;
    }
    if let Some(next) = page.next {
        context.output.note(format!(
            "there are more; try: --cursor {}, or --all",
            shell_word(&next)
        ));
    }
    Ok(ExitStatus::Success)
}

/// Pages may be short; reads on until `limit` jobs are there or the list ends.
async fn full_page(
    args: &JobListArgs,
    backstop: &Backstop,
    context: &CliContext,
    mut cursor: Option<String>,
    limit: usize,
) -> Result<ListJobsResult, CliError> {
    let (search, redaction, mut full) = (
        args.filter.search(),
        &context.config.redaction,
        ListJobsResult::default(),
    );
    loop {
        let page = backstop
            .search(&search, redaction, cursor, limit - full.jobs.len())
            .await?;
        full.jobs.extend(page.jobs);
        full.damaged.extend(page.damaged);
        cursor = page.next;
        if full.jobs.len() >= limit || cursor.is_none() {
            return Ok(ListJobsResult {
                next: cursor,
                ..full
            });
        }
    }
}

async fn list_all(
    args: &JobListArgs,
    backstop: &Backstop,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let output = context.output;
    let mut cursor = args.cursor.clone();
    let mut is_first = true;
    if output.is_json() {
        output.verbatim("{\"jobs\":[")?;
    }
    loop {
        let page = full_page(args, backstop, context, cursor, PAGE_MAX).await?;
        warn_of_damaged(&page.damaged, output);
        if output.is_json() {
            for job in &page.jobs {
                let shape = JobShape::listed(
                    job,
                    context.config.max_attempts(job),
                    &context.config.redaction,
                );
                let text = json_text(&shape)?;
                output.verbatim(format_args!("{}{text}", if is_first { "" } else { "," }))?;
                is_first = false;
            }
        } else if !page.jobs.is_empty() {
            output.table(&table(
                &page.jobs,
                &context.config.redaction,
                backstop.now(),
            ))?;
        }
        let Some(next) = page.next else { break };
        cursor = Some(next);
    }
    if output.is_json() {
        output.line("],\"next\":null}")?;
    }
    Ok(ExitStatus::Success)
}

/// Names those that cannot be read: they hide nothing, and are not hidden.
pub(crate) fn warn_of_damaged(damaged: &[DamagedJob], output: CliOutput) {
    for damaged in damaged {
        let shape = DamagedJobShape::new(damaged);
        output.warn(format!("{} cannot be read: {}", shape.name(), damaged.why));
    }
}

fn table(jobs: &[Job], redaction: &Redaction, now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "ID",
        "QUEUE",
        "KIND",
        "STATE",
        "ATTEMPT",
        "WHEN",
        "LAST ERROR",
        "RUNNING FOR",
    ]);
    for job in jobs {
        // What went wrong in an earlier run of a job that is done is not its last word.
        let error = if job.state == JobState::Done {
            String::new()
        } else {
            job.history.last_error()
        };
        let error = redaction.text(&error);
        table.styled_row([
            (job.id.to_string(), CellTone::Plain),
            (job.queue.to_string(), CellTone::Plain),
            (kind(&job.kind), CellTone::Plain),
            (job.state.to_string(), tone(job.state)),
            (job.attempt.to_string(), CellTone::Plain),
            (
                relative(job.finished_at.unwrap_or(job.run_at), now),
                CellTone::Plain,
            ),
            (cut(&error, ERROR_CHARS), CellTone::Plain),
            (
                job.running_for(now).map(about).unwrap_or_default(),
                CellTone::Plain,
            ),
        ]);
    }
    table
}

/// What a state means to whoever reads the list.
pub(super) const fn tone(state: JobState) -> CellTone {
    match state {
        JobState::Done => CellTone::Good,
        JobState::Retrying => CellTone::Warning,
        JobState::Dead => CellTone::Bad,
        JobState::Scheduled | JobState::Ready | JobState::Running | JobState::Cancelled => {
            CellTone::Plain
        }
    }
}
