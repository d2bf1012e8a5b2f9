//! What the demo shows while it plays, and what it leaves to try.

use super::workload::QUEUES;
use crate::context::CliContext;
use crate::error::CliError;
use crate::output::progress;
use crate::output::table::{CellTone, TextTable};
use crate::output::words::count;
use backstop::{Backstop, JobId, JobState, StoreAddress, WorkerProgress};
use backstop_core::amend::Filter;
use backstop_core::port::{ListJobsRequest, QueueStatus};
use indicatif::ProgressBar;
use serde_json::json;
use std::time::Duration;

/// How often the bars move.
pub(super) const LOOK: Duration = Duration::from_millis(80);

const BAR: &str = "  {prefix:<9} {bar:30.cyan/dim} {pos:>5}/{len}  {msg}";

pub(super) struct DemoBars(Vec<(&'static str, ProgressBar)>);

impl DemoBars {
    pub(super) fn new(jobs: u64, context: &CliContext) -> Self {
        let is_shown = context.output.shows_progress();
        let bar = |queue: &'static super::workload::DemoQueue| {
            let bar = progress::bar(is_shown, queue.jobs(jobs), BAR);
            bar.set_prefix(queue.name);
            (queue.name, bar)
        };
        Self(QUEUES.iter().map(bar).collect())
    }

    pub(super) fn show(&self, queues: &[QueueStatus]) {
        for (name, bar) in &self.0 {
            let Some(queue) = queues.iter().find(|queue| queue.name.as_str() == *name) else {
                continue;
            };
            let of = |state| queue.counts.of(state);
            bar.set_position(of(JobState::Done) + of(JobState::Dead) + of(JobState::Cancelled));
            let parts = [
                JobState::Running,
                JobState::Scheduled,
                JobState::Retrying,
                JobState::Dead,
            ];
            let parts = parts.into_iter().filter(|state| of(*state) > 0);
            let parts: Vec<String> = parts
                .map(|state| format!("{} {state}", count(of(state))))
                .collect();
            bar.set_message(parts.join(" · "));
        }
    }

    pub(super) fn finish(&self) {
        for (_, bar) in &self.0 {
            bar.finish_and_clear();
        }
    }
}

pub(super) fn open(address: &StoreAddress, context: &CliContext) {
    let paint = context.output.paint_notes();
    let title = paint.bold("backstop demo");
    for line in [
        String::new(),
        format!("{title}  {}", paint.dim(address)),
        String::new(),
    ] {
        context.output.note(line);
    }
}

/// What is in, and how fast.
pub(super) fn pushed(jobs: u64, elapsed: Duration, context: &CliContext) {
    let paint = context.output.paint_notes();
    let time = format!("{} ms", elapsed.as_millis());
    context.output.note(format!(
        "{} jobs pushed to {} queues in {}, every one acknowledged",
        paint.bold(count(jobs)),
        QUEUES.len(),
        paint.bold(time)
    ));
}

/// What came of it, and what to try next.
pub(super) async fn summary(
    backstop: &Backstop,
    address: &StoreAddress,
    progress: WorkerProgress,
    elapsed: Duration,
    context: &CliContext,
) -> Result<(), CliError> {
    let queues = super::short::queues(backstop).await?;
    let lost: u64 = queues.iter().map(lost).sum();
    if context.output.is_json() {
        let done: u64 = queues
            .iter()
            .map(|queue| queue.counts.of(JobState::Done))
            .sum();
        let left: u64 = queues.iter().map(|queue| queue.counts.live()).sum();
        return context.output.json(&json!({
            "store": address.to_string(), "runs": progress.started, "done": done, "retried": progress.retried,
            "dead": progress.dead, "left": left, "lost": lost, "elapsed_ms": elapsed.as_millis() as u64,
        }));
    }
    let paint = context.output.paint();
    context.output.table(&table(&queues))?;
    context.output.blank()?;
    context.output.line(format!(
        "{} jobs done in {:.1}s; {} runs failed and were tried again, {} jobs are dead, {} lost.",
        paint.good(count(progress.done)),
        elapsed.as_secs_f64(),
        count(progress.retried),
        if progress.dead > 0 {
            paint.bad(count(progress.dead))
        } else {
            "no".to_owned()
        },
        if lost > 0 {
            paint.bad(count(lost))
        } else {
            paint.good("none")
        },
    ))?;
    next_steps(backstop, address, context).await
}

/// Jobs that came in and are nowhere: neither present nor done and removed after their time.
pub(super) fn lost(queue: &QueueStatus) -> u64 {
    let present: u64 = JobState::ALL
        .into_iter()
        .map(|state| queue.counts.of(state))
        .sum();
    let removed = queue
        .totals
        .done
        .saturating_sub(queue.counts.of(JobState::Done));
    queue.totals.enqueued.saturating_sub(present + removed)
}

fn table(queues: &[QueueStatus]) -> TextTable {
    let mut table = TextTable::new(&["QUEUE", "PUSHED", "DONE", "DEAD", "LEFT"]);
    for queue in queues {
        let dead = queue.counts.of(JobState::Dead);
        table.styled_row([
            (queue.name.to_string(), CellTone::Plain),
            (count(queue.totals.enqueued), CellTone::Plain),
            (count(queue.counts.of(JobState::Done)), CellTone::Good),
            (
                count(dead),
                if dead > 0 {
                    CellTone::Bad
                } else {
                    CellTone::Plain
                },
            ),
            (count(queue.counts.live()), CellTone::Plain),
        ]);
    }
    table
}

async fn next_steps(
    backstop: &Backstop,
    address: &StoreAddress,
    context: &CliContext,
) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "backstop".to_owned());
    let mut steps = vec![("queue list".to_owned(), "the queues")];
    if let Some(id) = a_dead_job(backstop).await? {
        steps.extend([
            ("job list --state dead".to_owned(), "which jobs died"),
            (format!("job why {id}"), "why one of them did"),
            (format!("job show {id}"), "its payload and errors"),
            (
                "dead requeue --all".to_owned(),
                "give the dead another chance",
            ),
            (
                "work webhooks images --exec cat --until-empty".to_owned(),
                "with a command of yours",
            ),
        ]);
    }
    steps.push(("doctor".to_owned(), "what can be relied on"));
    let width = steps
        .iter()
        .map(|(arguments, _)| arguments.len())
        .max()
        .unwrap_or_default();
    output.blank()?;
    output.line(paint.bold("Try on this store:"))?;
    output.line(format!(
        "  {}",
        paint.command(format!("export BACKSTOP_STORE={address}"))
    ))?;
    for (arguments, what) in steps {
        let command = paint.command(format!("{program} {arguments:<width$}"));
        output.line(format!("  {command}  {}", paint.dim(format!("# {what}"))))?;
    }
    Ok(())
}

async fn a_dead_job(backstop: &Backstop) -> Result<Option<JobId>, CliError> {
    let filter = Filter {
        state: Some(JobState::Dead),
        ..Filter::default()
    };
    let query = ListJobsRequest {
        filter,
        cursor: None,
        limit: 1,
        ..ListJobsRequest::default()
    };
    let page = backstop.store().jobs(query, backstop.now()).await?;
    Ok(page.jobs.first().map(|job| job.id))
}
