//! `backstop breaker`: look at breakers and gates, open and reset them.

use super::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{count, relative};
use backstop::breakers::{BY_HAND, BreakerInfo, BreakerName};
use backstop::{Backstop, QueueName, Time};
use backstop_core::breaker::BreakerPhase;
use backstop_server::wire::breaker::{
    BreakerDoneShape, BreakerShape, BreakersShape, breaker_or_gate,
};
use clap::{Args, Subcommand};
use std::collections::BTreeSet;

/// Queues that are told where none is meant.
const QUEUES_SHOWN: usize = 20;

/// Look at breakers and gates, open and reset them.
#[derive(Subcommand, Debug)]
pub(crate) enum BreakerSubcommand {
    /// All breakers of queues, and gates of kinds that had deaths
    #[command(after_help = "\
Examples:
  backstop breaker list
  backstop breaker list --json | jq '.breakers[] | select(.state != \"closed\")'

A breaker stands before a queue whose service fails: `[queues.NAME] breaker = { failure_threshold = 5 }`. A gate stands before
a kind whose jobs die too often, or whose dead letters are full; every kind has one. What they keep back stays in its
queue and is not charged an attempt.")]
    List,
    /// Close a breaker, or open a gate again, on all workers
    #[command(after_help = "\
Examples:
  backstop breaker reset detection_queue
  backstop breaker reset detection_queue/Detect")]
    Reset(BreakerNameArgs),
    /// Open a breaker, or shut a gate, on all workers, until it is reset
    #[command(after_help = "\
Examples:
  backstop breaker open detection_queue --why 'maintenance until noon'
  backstop breaker open detection_queue/Detect")]
    Open(BreakerOpenArgs),
}

/// Which.
#[derive(Args, Debug)]
pub(crate) struct BreakerNameArgs {
    /// QUEUE for a queue's breaker, QUEUE/KIND for the gate of a kind
    name: BreakerName,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Which, and why.
#[derive(Args, Debug)]
pub(crate) struct BreakerOpenArgs {
    /// QUEUE for a queue's breaker, QUEUE/KIND for the gate of a kind
    name: BreakerName,
    /// Why; shown to everybody who asks [default: the reason, or `opened by hand`]
    #[arg(long)]
    why: Option<String>,
    #[command(flatten)]
    reason: ReasonArgs,
}

impl BreakerSubcommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self, Self::List)
    }
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &BreakerSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        BreakerSubcommand::List => list(context).await,
        BreakerSubcommand::Reset(args) => reset(args, context).await,
        BreakerSubcommand::Open(args) => open(args, context).await,
    }
}

async fn list(context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let guards = backstop.breakers().list().await?;
    if context.output.is_json() {
        context.output.json(&BreakersShape {
            breakers: guards.iter().map(BreakerShape::new).collect(),
        })?;
    } else if guards.is_empty() {
        context
            .output
            .note("no breakers yet; a queue has one if its entry in the configuration says so: breaker = {}");
    } else {
        context.output.table(&table(&guards, backstop.now()))?;
    }
    Ok(ExitStatus::Success)
}

/// How it stands, in the word that fits it, and what that means: a gate is shut where a breaker is
/// open, and to be open is good for one of them only.
pub(super) fn state_cell(guard: &BreakerInfo) -> (String, CellTone) {
    let (meaning, tone) = match guard.status.state {
        BreakerPhase::Closed => ("jobs run", CellTone::Good),
        BreakerPhase::HalfOpen => ("a few jobs run", CellTone::Warning),
        BreakerPhase::Open => ("jobs wait", CellTone::Bad),
    };
    (format!("{}: {meaning}", guard.word()), tone)
}

fn table(guards: &[BreakerInfo], now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "NAME",
        "WHAT",
        "STATE",
        "FAILURES",
        "DEATHS",
        "NEXT PROBE",
        "LAST CHANGE",
    ]);
    for guard in guards {
        let status = &guard.status;
        let plain = |text: String| (text, CellTone::Plain);
        let last = status.events.last();
        table.styled_row([
            plain(guard.name.to_string()),
            plain(breaker_or_gate(&guard.name).to_owned()),
            state_cell(guard),
            plain(count(u64::from(status.failure_count))),
            plain(guard.deaths.map(count).unwrap_or_default()),
            plain(
                status
                    .next_probe_at
                    .map(|at| relative(at, now))
                    .unwrap_or_default(),
            ),
            plain(
                last.map(|event| format!("{}, {}", event.why, relative(event.at, now)))
                    .unwrap_or_default(),
            ),
        ]);
    }
    table
}

async fn reset(args: &BreakerNameArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let (backstop, name) = (context.open_for_reading().await?, &args.name);
    if !args.reason.changes(&backstop).reset(name).await? {
        return Err(CliError::new(format!("there is no breaker or gate {name}"))
            .advise("backstop breaker list"));
    }
    print_change(name, "reset", context)
}

async fn open(args: &BreakerOpenArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open().await?;
    refuse_unknown(&args.name, &backstop, context).await?;
    let changes = args.reason.changes(&backstop);
    let why = args.why.as_deref().or(changes.reason()).unwrap_or(BY_HAND);
    changes.open(&args.name, why).await?;
    let word = args.name.word(BreakerPhase::Open);
    print_change(
        &args.name,
        &format!("{word} until it is reset; workers see it within a second"),
        context,
    )
}

/// Refuses the guard of a queue that nobody has heard of: a typing error would keep nothing back.
/// Where there are no queues at all, it may be one that is to come.
async fn refuse_unknown(
    name: &BreakerName,
    backstop: &Backstop,
    context: &CliContext,
) -> Result<(), CliError> {
    let queues = backstop.store().queues(backstop.now()).await?;
    let mut known: BTreeSet<QueueName> = queues.into_iter().map(|queue| queue.name).collect();
    known.extend(context.config.queues.keys().cloned());
    known.extend(
        backstop
            .breakers()
            .list()
            .await?
            .into_iter()
            .map(|guard| guard.name.queue().clone()),
    );
    if known.is_empty() || known.contains(name.queue()) {
        return Ok(());
    }
    let some: Vec<&str> = known
        .iter()
        .take(QUEUES_SHOWN)
        .map(QueueName::as_str)
        .collect();
    let more = if known.len() > some.len() {
        ", …"
    } else {
        ""
    };
    let cause = format!(
        "there is no queue {} in the store or the configuration; there are: {}{more}",
        name.queue(),
        some.join(", ")
    );
    Err(CliError::new(cause).advise("backstop queue list"))
}

fn print_change(
    name: &BreakerName,
    done: &str,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    if context.output.is_json() {
        context.output.json(&BreakerDoneShape {
            done,
            name: name.to_string(),
        })?;
    } else {
        context.output.line(format!("{name}: {done}"))?;
    }
    Ok(ExitStatus::Success)
}
