//! `backstop queue`: look at queues, pause, resume or clear them.

use crate::commands::confirm;
use crate::commands::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{count, counted, relative};
use backstop::breakers::BreakerInfo;
use backstop::operate::WAITING;
use backstop::{JobState, QueueName, Time};
use backstop_core::port::{QueueState, QueueStatus};
use backstop_server::wire::queue::{AllQueuesShape, PausedShape, QueueShape, QueuesShape};
use clap::{Args, Subcommand};
use serde_json::json;

/// Look at queues, pause, resume or clear them.
#[derive(Subcommand, Debug)]
pub(crate) enum QueueSubcommand {
    /// All queues with their counts
    #[command(after_help = "\
Examples:
  backstop queue list
  backstop queue list --json | jq '.queues[] | select(.dead > 0)'")]
    List,
    /// Keep a queue's jobs from being given out, on all workers; pushes go on
    #[command(after_help = "\
Examples:
  backstop queue pause emails
  backstop queue pause emails --reason 'the mail server moves'
  backstop queue pause --all --reason 'the data centre moves'

Running jobs end as usual. `backstop queue resume` opens the queue again, and `resume --all` those that `pause --all` has paused; a
queue that comes into being meanwhile is open.")]
    Pause(QueuePauseArgs),
    /// Give a paused queue's jobs out again
    #[command(after_help = "\
Examples:
  backstop queue resume emails
  backstop queue resume --all                          those that `pause --all` has paused")]
    Resume(QueuePauseArgs),
    /// Remove the waiting jobs of a queue: scheduled, ready and retrying
    #[command(after_help = "\
Examples:
  backstop queue clear emails
  backstop queue clear emails --yes --json

Running, done, dead and cancelled jobs stay. What is removed cannot be brought back.")]
    Clear(QueueClearArgs),
}

/// Which queue, or all.
#[derive(Args, Debug)]
pub(crate) struct QueuePauseArgs {
    /// The queue
    #[arg(required_unless_present = "all")]
    queue: Option<QueueName>,
    /// Every queue there is
    #[arg(long, conflicts_with = "queue")]
    all: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Which queue, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct QueueClearArgs {
    /// The queue
    queue: QueueName,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

impl QueueSubcommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self, Self::List)
    }
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &QueueSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        QueueSubcommand::List => list(context).await,
        QueueSubcommand::Pause(args) => set_paused(args, QueueState::Paused, context).await,
        QueueSubcommand::Resume(args) => set_paused(args, QueueState::Active, context).await,
        QueueSubcommand::Clear(args) => clear(args, context).await,
    }
}

async fn list(context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let now = backstop.now();
    let queues = backstop.store().queues(now).await?;
    if context.output.is_json() {
        let shapes = queues.iter().map(QueueShape::new).collect();
        context.output.json(&QueuesShape { queues: shapes })?;
    } else if queues.is_empty() {
        context
            .output
            .note("no queues yet; try: backstop push emails '{\"to\":\"ada@example.org\"}'");
    } else {
        context
            .output
            .table(&table(&queues, &backstop.breakers().list().await?, now))?;
    }
    Ok(ExitStatus::Success)
}

fn table(queues: &[QueueStatus], guards: &[BreakerInfo], now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "QUEUE",
        "RUNS",
        "SCHEDULED",
        "READY",
        "RUNNING",
        "RETRYING",
        "DONE",
        "DEAD",
        "CANCELLED",
        "NEXT READY",
        "ROOM",
    ]);
    for queue in queues {
        let counts = JobState::ALL.into_iter().map(|state| {
            let number = queue.counts.of(state);
            let tone = if state == JobState::Dead && number > 0 {
                CellTone::Bad
            } else {
                CellTone::Plain
            };
            (count(number), tone)
        });
        let next = queue
            .next_ready
            .map_or_else(String::new, |at| relative(at, now));
        let name = (queue.name.to_string(), CellTone::Plain);
        table.styled_row(
            [name, runs_cell(queue, guards)]
                .into_iter()
                .chain(counts)
                .chain([(next, CellTone::Plain), room_cell(queue)]),
        );
    }
    table
}

/// Whether its jobs are given out, in one word: `yes`, or what keeps them back.
pub(super) fn runs_cell(queue: &QueueStatus, guards: &[BreakerInfo]) -> (String, CellTone) {
    if queue.state == QueueState::Paused {
        return ("paused".to_owned(), CellTone::Warning);
    }
    // Breakers come first, and one stands before all of the queue.
    if let Some(guard) = guards
        .iter()
        .find(|guard| guard.is_shut() && *guard.name.queue() == queue.name)
    {
        let word = if guard.name.kind().is_some() {
            "gate"
        } else {
            "breaker"
        };
        return (word.to_owned(), CellTone::Bad);
    }
    ("yes".to_owned(), CellTone::Plain)
}

/// How full it is, where it has a bound that is nearly reached.
pub(super) fn room_cell(queue: &QueueStatus) -> (String, CellTone) {
    let live = queue.counts.live();
    if queue.bounds.max_size.is_some_and(|max| live >= max) {
        ("full".to_owned(), CellTone::Bad)
    } else if queue.bounds.is_under_pressure(live) {
        ("nearly full".to_owned(), CellTone::Warning)
    } else {
        (String::new(), CellTone::Plain)
    }
}

async fn set_paused(
    args: &QueuePauseArgs,
    gate: QueueState,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let Some(queue) = &args.queue else {
        return set_all_paused(args, gate, context).await;
    };
    let backstop = context.open().await?;
    let (changes, is_paused) = (args.reason.changes(&backstop), gate == QueueState::Paused);
    if is_paused {
        let queues = backstop.store().queues(backstop.now()).await?;
        if queues.iter().all(|there| there.name != *queue) {
            context.output.note(format!(
                "note: there is no queue {queue} yet; it is paused when it comes"
            ));
        }
        changes.pause(queue).await?;
    } else {
        changes.resume(queue).await?;
    }
    if context.output.is_json() {
        context.output.json(&PausedShape {
            name: queue,
            paused: is_paused,
        })?;
    } else if is_paused {
        context.output.line(format!(
            "{queue} is paused; it takes jobs in and keeps them"
        ))?;
    } else {
        context.output.line(format!("{queue} runs"))?;
    }
    Ok(ExitStatus::Success)
}

async fn set_all_paused(
    args: &QueuePauseArgs,
    gate: QueueState,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let changes = args.reason.changes(&backstop);
    let (queues, done) = match gate {
        QueueState::Paused => (
            changes.pause_all().await?,
            "paused; they take jobs in and keep them",
        ),
        QueueState::Active => (changes.resume_all().await?, "resumed"),
    };
    if context.output.is_json() {
        context.output.json(&AllQueuesShape::new(queues))?;
        return Ok(ExitStatus::Success);
    }
    for queue in &queues {
        context.output.line(queue)?;
    }
    context
        .output
        .note(format!("{} {done}", counted(queues.len() as u64, "queue")));
    Ok(ExitStatus::Success)
}

async fn clear(args: &QueueClearArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    if !args.yes {
        let queues = backstop.store().queues(backstop.now()).await?;
        let counts = queues
            .iter()
            .find(|queue| queue.name == args.queue)
            .map(|queue| queue.counts);
        let waiting = counts.map_or(0, |counts| {
            WAITING.into_iter().map(|state| counts.of(state)).sum()
        });
        if !confirm_clear(&args.queue, waiting)? {
            context.output.note("nothing was removed");
            return Ok(ExitStatus::Failure);
        }
    }
    let removed = args.reason.changes(&backstop).clear(&args.queue).await?;
    if context.output.is_json() {
        context.output.json(&json!({ "count": removed }))?;
    } else {
        context.output.line(format!(
            "{} removed from {}",
            counted(removed, "job"),
            args.queue
        ))?;
    }
    Ok(ExitStatus::Success)
}

fn confirm_clear(queue: &QueueName, waiting: u64) -> Result<bool, CliError> {
    let question = format!(
        "Remove {} from {queue}? They cannot be brought back.",
        counted(waiting, "waiting job")
    );
    let jobs = counted(waiting, "job");
    let refusal = format!("clearing {queue} removes {jobs}, and nobody can be asked here");
    confirm::confirm(
        &question,
        refusal,
        &format!("backstop queue clear {queue} --yes"),
    )
}
