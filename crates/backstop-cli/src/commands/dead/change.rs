//! `backstop dead requeue`, `move`, `delete` and `clear`.

use super::{DeadSelectionArgs, letters};
use crate::commands::confirm;
use crate::commands::job::list::warn_of_damaged;
use crate::commands::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::counted;
use backstop::QueueName;
use backstop::dead::{DeadChangeResult, DeadSelection};
use backstop_server::wire::dead::DeadChangedShape;
use clap::Args;

/// Refusals told one by one to people; programs get all of them.
const REFUSED_SHOWN_MAX: usize = 20;

/// Which letters, and where to.
#[derive(Args, Debug)]
pub(crate) struct DeadMoveArgs {
    #[command(flatten)]
    selection: DeadSelectionArgs,
    /// The queue they are to run in
    #[arg(long, value_name = "QUEUE")]
    to: QueueName,
}

/// Which letters, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct DeadDeleteArgs {
    #[command(flatten)]
    selection: DeadSelectionArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Which queue, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct DeadClearArgs {
    /// The queue
    #[arg(required_unless_present = "all")]
    queue: Option<QueueName>,
    /// All queues
    #[arg(long, conflicts_with = "queue")]
    all: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(super) async fn requeue(
    args: &DeadSelectionArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let selection = args.selection("requeue", backstop.now())?;
    let changed = letters(&backstop, context)
        .because(args.reason.reason())
        .requeue(&selection)
        .await?;
    print_change(&changed, "requeued", context)
}

pub(super) async fn move_to(
    args: &DeadMoveArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let selection = args.selection.selection("move", backstop.now())?;
    let dead = letters(&backstop, context).because(args.selection.reason.reason());
    let changed = dead.move_to(&selection, &args.to).await?;
    print_change(&changed, &format!("moved to {}", args.to), context)
}

pub(super) async fn delete(
    args: &DeadDeleteArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let selection = args.selection.selection("delete", backstop.now())?;
    let target = match &selection {
        DeadSelection::Ids(ids) | DeadSelection::Within { ids, .. } => {
            counted(ids.len() as u64, "dead letter")
        }
        DeadSelection::Oldest { queue, count } => {
            format!("the oldest {count} dead letters of {queue}")
        }
        DeadSelection::Matching(_) => "all dead letters that fit".to_owned(),
        DeadSelection::All => "all dead letters".to_owned(),
    };
    if !args.yes && !confirm::confirm_removal(&target, "the same command with --yes")? {
        context.output.note("nothing was removed");
        return Ok(ExitStatus::Failure);
    }
    let changed = letters(&backstop, context)
        .because(args.selection.reason.reason())
        .delete(&selection)
        .await?;
    print_change(&changed, "deleted", context)
}

/// Removes all letters of a queue, or of all.
pub(super) async fn clear(
    args: &DeadClearArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let dead = letters(&backstop, context).because(args.reason.reason());
    if !args.yes {
        let stats = dead.stats().await?;
        let of_queue = |queue| stats.queues.get(queue).copied().unwrap_or_default();
        let number = args.queue.as_ref().map_or(stats.total, of_queue);
        let place = args
            .queue
            .as_ref()
            .map_or_else(|| "--all".to_owned(), ToString::to_string);
        let command = format!("backstop dead clear {place} --yes");
        if !confirm::confirm_removal(&counted(number, "dead letter"), &command)? {
            context.output.note("nothing was removed");
            return Ok(ExitStatus::Failure);
        }
    }
    let changed = match &args.queue {
        Some(queue) => dead.clear(queue).await?,
        None => dead.clear_all().await?,
    };
    print_change(&changed, "removed", context)
}

/// Says what was done; falls short if it was not done to all.
fn print_change(
    changed: &DeadChangeResult,
    done: &str,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let output = context.output;
    if output.is_json() {
        output.json(&DeadChangedShape::new(changed))?;
    } else {
        output.line(format!("{} {done}", counted(changed.count, "dead letter")))?;
        for (id, refusal) in changed.refused.iter().take(REFUSED_SHOWN_MAX) {
            output.warn(format!("{id}: {refusal}"));
        }
        let more = changed
            .refused_count()
            .saturating_sub(REFUSED_SHOWN_MAX as u64);
        if more > 0 {
            output.warn(format!("… and {more} more refused"));
        }
        warn_of_damaged(&changed.damaged, output);
    }
    let is_whole = changed.refused.is_empty() && changed.damaged.is_empty();
    Ok(if is_whole {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}
