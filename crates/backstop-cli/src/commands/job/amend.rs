//! Does something to many jobs, however many there are.

use super::{JobSelectionArgs, describe_id};
use crate::commands::confirm;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::counted;
use backstop::JobId;
use backstop::search::JobSearch;
use backstop_core::amend::{AmendAction, Filter, Selection};
use backstop_server::wire::job::AmendedJobsShape;
use clap::Args;

/// Refusals told one by one to people; programs get all of them.
const REFUSED_SHOWN_MAX: usize = 20;

/// Which jobs, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct JobDeleteArgs {
    #[command(flatten)]
    selection: JobSelectionArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Does what was asked for; exits 1 if any job refused it.
pub(crate) async fn run(
    args: &JobSelectionArgs,
    action: AmendAction,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    amend(args, &read_selection(args, &action)?, &action, context).await
}

/// Removes jobs; those that nobody named one by one only if that was meant.
pub(super) async fn delete(
    args: &JobDeleteArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let selected = read_selection(&args.selection, &AmendAction::Delete)?;
    let target = match &selected {
        SelectedJobs::InStore(Selection::Ids(_) | Selection::Within(..)) => None,
        SelectedJobs::InStore(Selection::Matching(_)) | SelectedJobs::BySearch(_) => {
            Some("all jobs that fit")
        }
        SelectedJobs::InStore(Selection::All) => Some("all jobs of all queues"),
    };
    if let Some(target) = target
        && !args.yes
        && !confirm::confirm_removal(target, "the same command with --yes")?
    {
        context.output.note("nothing was removed");
        return Ok(ExitStatus::Failure);
    }
    amend(&args.selection, &selected, &AmendAction::Delete, context).await
}

async fn amend(
    args: &JobSelectionArgs,
    selected: &SelectedJobs,
    action: &AmendAction,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let changes = args.reason.changes(&backstop);
    let amended = AmendedJobsShape::from(match selected {
        SelectedJobs::InStore(selection) => changes.amend(selection, action).await?,
        SelectedJobs::BySearch(search) => {
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
        for refused in amended.refused.iter().take(REFUSED_SHOWN_MAX) {
            let typed = args
                .ids
                .iter()
                .find(|typed| JobId::from_text(typed) == refused.id);
            let job = typed.map_or_else(|| refused.id.to_string(), |typed| describe_id(typed));
            context.output.warn(format!("{job}: {}", refused.why));
        }
        if amended.refused.len() > REFUSED_SHOWN_MAX {
            context.output.warn(format!(
                "… and {} more refused",
                amended.refused.len() - REFUSED_SHOWN_MAX
            ));
        }
    }
    Ok(if amended.refused.is_empty() {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

enum SelectedJobs {
    /// Those that the store finds by itself.
    InStore(Selection),
    /// Those whose payloads have to be looked at.
    BySearch(JobSearch),
}

fn read_selection(args: &JobSelectionArgs, action: &AmendAction) -> Result<SelectedJobs, CliError> {
    let search = args.filter.search();
    let is_beyond_store = search.needs_scan();
    if is_beyond_store && args.ids.is_empty() && !args.all {
        return Ok(SelectedJobs::BySearch(search));
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
            Ok(SelectedJobs::InStore(match filter.queue {
                Some(queue) => Selection::Within(queue, ids),
                None => Selection::Ids(ids),
            }))
        }
        (true, false, false) => Ok(SelectedJobs::InStore(Selection::Matching(filter))),
        (true, true, true) => Ok(SelectedJobs::InStore(Selection::All)),
        (true, true, false) => Err(CliError::misuse(format!("which jobs to {word}?")).advise(format!(
            "backstop job {word} ID…, or --queue, --kind, --state, --text, --worker, or --all for every job"
        ))),
        _ => Err(CliError::misuse(
            "ids, filters and --all are three ways to say which jobs; use one of them, or ids with --queue",
        )
        .advise(format!("backstop job {word} --help"))),
    }
}

const fn word(action: &AmendAction) -> &'static str {
    match action {
        AmendAction::Retry => "retry",
        AmendAction::Cancel => "cancel",
        AmendAction::Delete => "delete",
        AmendAction::Move(_) => "move",
    }
}

const fn done_word(action: &AmendAction) -> &'static str {
    match action {
        AmendAction::Retry => "made ready",
        AmendAction::Cancel => "cancelled",
        AmendAction::Delete => "deleted",
        AmendAction::Move(_) => "moved",
    }
}
