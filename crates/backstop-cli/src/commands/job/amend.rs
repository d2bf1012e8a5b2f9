//! Does something to many jobs, however many there are.

use super::{SelectionArgs, called};
use crate::commands::confirm;
use crate::context::Context;
use crate::output::words::counted;
use crate::trouble::{Trouble, Verdict};
use backstop::JobId;
use backstop::search::Search;
use backstop_core::amend::{Action, Filter, Selection};
use backstop_server::wire::job::AmendedShape;
use clap::Args;

/// Refusals told one by one to people; programs get all of them.
const REFUSED_TOLD_MAX: usize = 20;

/// Which jobs, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Does what was asked for; exits 1 if any job refused it.
pub(crate) async fn run(
    args: &SelectionArgs,
    action: Action,
    context: &Context,
) -> Result<Verdict, Trouble> {
    amend(args, &selected(args, &action)?, &action, context).await
}

/// Removes jobs; those that nobody named one by one only if that was meant.
pub(super) async fn delete(args: &DeleteArgs, context: &Context) -> Result<Verdict, Trouble> {
    let selected = selected(&args.selection, &Action::Delete)?;
    let meant = match &selected {
        Selected::By(Selection::Ids(_) | Selection::Within(..)) => None,
        Selected::By(Selection::Matching(_)) | Selected::Found(_) => Some("all jobs that fit"),
        Selected::By(Selection::All) => Some("all jobs of all queues"),
    };
    if let Some(meant) = meant
        && !args.yes
        && !confirm::removal(meant, "the same command with --yes")?
    {
        context.output.note("nothing was removed");
        return Ok(Verdict::FallsShort);
    }
    amend(&args.selection, &selected, &Action::Delete, context).await
}

async fn amend(
    args: &SelectionArgs,
    selected: &Selected,
    action: &Action,
    context: &Context,
) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let changes = args.because.changes(&backstop);
    let amended = AmendedShape::from(match selected {
        Selected::By(selection) => changes.amend(selection, action).await?,
        Selected::Found(search) => {
            changes
                .amend_found(search, &context.config.redaction, action)
                .await?
        }
    });
    if context.output.is_json() {
        context.output.json(&amended)?;
    } else {
        context.output.line(format!(
            "{} {}",
            counted(amended.count, "job"),
            done_word(action)
        ))?;
        for refused in amended.refused.iter().take(REFUSED_TOLD_MAX) {
            let typed = args
                .ids
                .iter()
                .find(|typed| JobId::from_text(typed) == refused.id);
            let job = typed.map_or_else(|| refused.id.to_string(), |typed| called(typed));
            context.output.warn(format!("{job}: {}", refused.why));
        }
        if amended.refused.len() > REFUSED_TOLD_MAX {
            context.output.warn(format!(
                "… and {} more refused",
                amended.refused.len() - REFUSED_TOLD_MAX
            ));
        }
    }
    Ok(if amended.refused.is_empty() {
        Verdict::Fine
    } else {
        Verdict::FallsShort
    })
}

/// Which jobs are meant.
enum Selected {
    /// Those that the store finds by itself.
    By(Selection),
    /// Those whose payloads have to be looked at.
    Found(Search),
}

fn selected(args: &SelectionArgs, action: &Action) -> Result<Selected, Trouble> {
    let search = args.filter.search();
    let is_beyond_store = search.is_beyond_store();
    if is_beyond_store && args.ids.is_empty() && !args.all {
        return Ok(Selected::Found(search));
    }
    let filter = search.filter;
    let word = word(action);
    let by_queue = Filter {
        queue: filter.queue.clone(),
        ..Filter::default()
    };
    match (args.ids.is_empty(), filter.is_empty() && !is_beyond_store, args.all) {
        (false, _, false) if filter == by_queue && !is_beyond_store => {
            let ids = args.ids.iter().map(|id| JobId::from_text(id)).collect();
            Ok(Selected::By(match filter.queue {
                Some(queue) => Selection::Within(queue, ids),
                None => Selection::Ids(ids),
            }))
        }
        (true, false, false) => Ok(Selected::By(Selection::Matching(filter))),
        (true, true, true) => Ok(Selected::By(Selection::All)),
        (true, true, false) => Err(Trouble::misuse(format!("which jobs to {word}?")).advise(format!(
            "backstop job {word} ID…, or --queue, --kind, --state, --text, --worker, or --all for every job"
        ))),
        _ => Err(Trouble::misuse(
            "ids, filters and --all are three ways to say which jobs; use one of them, or ids with --queue",
        )
        .advise(format!("backstop job {word} --help"))),
    }
}

const fn word(action: &Action) -> &'static str {
    match action {
        Action::Retry => "retry",
        Action::Cancel => "cancel",
        Action::Delete => "delete",
        Action::Move(_) => "move",
    }
}

const fn done_word(action: &Action) -> &'static str {
    match action {
        Action::Retry => "made ready",
        Action::Cancel => "cancelled",
        Action::Delete => "deleted",
        Action::Move(_) => "moved",
    }
}
