//! `backstop job list`: a page of jobs, or all pages one after another in bounded memory.

use super::FilterArgs;
use crate::context::Context;
use crate::output::table::{Table, Tone};
use crate::output::words::{about, cut, kind, relative};
use crate::output::{Output, json_text};
use crate::trouble::{Trouble, Verdict};
use backstop::{Backstop, State, Time};
use backstop_core::Job;
use backstop_core::limits::PAGE_MAX;
use backstop_core::port::{Damaged, Page};
use backstop_core::redact::Redaction;
use backstop_core::terminal::shell_word;
use backstop_server::wire::job::{DamagedShape, JobShape, JobsShape};
use clap::Args;

/// Characters of an error shown in a table.
const ERROR_CHARS: usize = 60;

/// Which jobs, and how many.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
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

/// Lists jobs.
pub(crate) async fn run(args: &ListArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    if args.all {
        list_all(args, &backstop, context).await
    } else {
        list_page(args, &backstop, context).await
    }
}

async fn list_page(
    args: &ListArgs,
    backstop: &Backstop,
    context: &Context,
) -> Result<Verdict, Trouble> {
    let limit = args.limit.clamp(1, PAGE_MAX);
    let page = full_page(args, backstop, context, args.cursor.clone(), limit).await?;
    warn_of(&page.damaged, context.output);
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
        return Ok(Verdict::Fine);
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
    Ok(Verdict::Fine)
}

/// Pages may be short; reads on until `limit` jobs are there or the list ends.
async fn full_page(
    args: &ListArgs,
    backstop: &Backstop,
    context: &Context,
    mut cursor: Option<String>,
    limit: usize,
) -> Result<Page, Trouble> {
    let (search, redaction, mut full) = (
        args.filter.search(),
        &context.config.redaction,
        Page::default(),
    );
    loop {
        let page = backstop
            .search(&search, redaction, cursor, limit - full.jobs.len())
            .await?;
        full.jobs.extend(page.jobs);
        full.damaged.extend(page.damaged);
        cursor = page.next;
        if full.jobs.len() >= limit || cursor.is_none() {
            return Ok(Page {
                next: cursor,
                ..full
            });
        }
    }
}

async fn list_all(
    args: &ListArgs,
    backstop: &Backstop,
    context: &Context,
) -> Result<Verdict, Trouble> {
    let output = context.output;
    let mut cursor = args.cursor.clone();
    let mut is_first = true;
    if output.is_json() {
        output.verbatim("{\"jobs\":[")?;
    }
    loop {
        let page = full_page(args, backstop, context, cursor, PAGE_MAX).await?;
        warn_of(&page.damaged, output);
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
    Ok(Verdict::Fine)
}

/// Names those that cannot be read: they hide nothing, and are not hidden.
pub(crate) fn warn_of(damaged: &[Damaged], output: Output) {
    for damaged in damaged {
        let shape = DamagedShape::new(damaged);
        output.warn(format!("{} cannot be read: {}", shape.name(), damaged.why));
    }
}

fn table(jobs: &[Job], redaction: &Redaction, now: Time) -> Table {
    let mut table = Table::new(&[
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
        let error = if job.state == State::Done {
            String::new()
        } else {
            job.history.last_error()
        };
        let error = redaction.text(&error);
        table.toned([
            (job.id.to_string(), Tone::Plain),
            (job.queue.to_string(), Tone::Plain),
            (kind(&job.kind), Tone::Plain),
            (job.state.to_string(), tone(job.state)),
            (job.attempt.to_string(), Tone::Plain),
            (
                relative(job.finished_at.unwrap_or(job.run_at), now),
                Tone::Plain,
            ),
            (cut(&error, ERROR_CHARS), Tone::Plain),
            (
                job.running_for(now).map(about).unwrap_or_default(),
                Tone::Plain,
            ),
        ]);
    }
    table
}

/// What a state means to whoever reads the list.
pub(super) const fn tone(state: State) -> Tone {
    match state {
        State::Done => Tone::Good,
        State::Retrying => Tone::Warning,
        State::Dead => Tone::Bad,
        State::Scheduled | State::Ready | State::Running | State::Cancelled => Tone::Plain,
    }
}
