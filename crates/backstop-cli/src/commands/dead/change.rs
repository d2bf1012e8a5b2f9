//! `backstop dead requeue`, `move`, `delete` and `clear`.

use super::{SelectionArgs, letters};
use crate::commands::because::Because;
use crate::commands::confirm;
use crate::commands::job::list::warn_of;
use crate::context::Context;
use crate::output::words::counted;
use crate::trouble::{Trouble, Verdict};
use backstop::QueueName;
use backstop::dead::{Changed, DeadSelection};
use backstop_server::wire::dead::ChangedShape;
use clap::Args;

/// Refusals told one by one to people; programs get all of them.
const REFUSED_TOLD_MAX: usize = 20;

/// Which letters, and where to.
#[derive(Args, Debug)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// The queue they are to run in
    #[arg(long, value_name = "QUEUE")]
    to: QueueName,
}

/// Which letters, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Which queue, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct ClearArgs {
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
    because: Because,
}

/// Makes letters ready again.
pub(super) async fn requeue(args: &SelectionArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let selection = args.selection("requeue", backstop.now())?;
    let changed = letters(&backstop, context)
        .because(args.because.reason())
        .requeue(&selection)
        .await?;
    tell(&changed, "requeued", context)
}

/// Makes letters ready elsewhere.
pub(super) async fn move_to(args: &MoveArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let selection = args.selection.selection("move", backstop.now())?;
    let dead = letters(&backstop, context).because(args.selection.because.reason());
    let changed = dead.move_to(&selection, &args.to).await?;
    tell(&changed, &format!("moved to {}", args.to), context)
}

/// Removes letters.
pub(super) async fn delete(args: &DeleteArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let selection = args.selection.selection("delete", backstop.now())?;
    let meant = match &selection {
        DeadSelection::Ids(ids) | DeadSelection::Within { ids, .. } => {
            counted(ids.len() as u64, "dead letter")
        }
        DeadSelection::Oldest { queue, count } => {
            format!("the oldest {count} dead letters of {queue}")
        }
        DeadSelection::Matching(_) => "all dead letters that fit".to_owned(),
        DeadSelection::All => "all dead letters".to_owned(),
    };
    if !args.yes && !confirm::removal(&meant, "the same command with --yes")? {
        context.output.note("nothing was removed");
        return Ok(Verdict::FallsShort);
    }
    let changed = letters(&backstop, context)
        .because(args.selection.because.reason())
        .delete(&selection)
        .await?;
    tell(&changed, "deleted", context)
}

/// Removes all letters of a queue, or of all.
pub(super) async fn clear(args: &ClearArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let dead = letters(&backstop, context).because(args.because.reason());
    if !args.yes {
        let stats = dead.stats().await?;
        let of_queue = |queue| stats.queues.get(queue).copied().unwrap_or_default();
        let number = args.queue.as_ref().map_or(stats.total, of_queue);
        let place = args
            .queue
            .as_ref()
            .map_or_else(|| "--all".to_owned(), ToString::to_string);
        let command = format!("backstop dead clear {place} --yes");
        if !confirm::removal(&counted(number, "dead letter"), &command)? {
            context.output.note("nothing was removed");
            return Ok(Verdict::FallsShort);
        }
    }
    let changed = match &args.queue {
        Some(queue) => dead.clear(queue).await?,
        None => dead.clear_all().await?,
    };
    tell(&changed, "removed", context)
}

/// Says what was done; falls short if it was not done to all.
fn tell(changed: &Changed, done: &str, context: &Context) -> Result<Verdict, Trouble> {
    let output = context.output;
    if output.is_json() {
        output.json(&ChangedShape::new(changed))?;
    } else {
        output.line(format!("{} {done}", counted(changed.count, "dead letter")))?;
        for (id, refusal) in changed.refused.iter().take(REFUSED_TOLD_MAX) {
            output.warn(format!("{id}: {refusal}"));
        }
        let more = changed
            .refused_count()
            .saturating_sub(REFUSED_TOLD_MAX as u64);
        if more > 0 {
            output.warn(format!("… and {more} more refused"));
        }
        warn_of(&changed.damaged, output);
    }
    let is_whole = changed.refused.is_empty() && changed.damaged.is_empty();
    Ok(if is_whole {
        Verdict::Fine
    } else {
        Verdict::FallsShort
    })
}
