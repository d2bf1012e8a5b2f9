//! `backstop dead stats`, `backstop dead groups` and `backstop dead audit`.

use super::letters;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{count, cut, kind, relative};
use backstop::QueueName;
use backstop_server::wire::dead::DeadGroupsShape;
use clap::Args;
use serde_json::json;

/// Characters of an error shown in a table.
const ERROR_CHARS: usize = 80;

/// Which groups, and how many.
#[derive(Args, Debug)]
pub(crate) struct DeadGroupsArgs {
    /// Of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// At most so many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

/// How many entries.
#[derive(Args, Debug)]
pub(crate) struct DeadAuditArgs {
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

pub(super) async fn stats(context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let stats = letters(&backstop, context).stats().await?;
    if context.output.is_json() {
        context.output.json(&stats)?;
        return Ok(ExitStatus::Success);
    }
    let mut table = TextTable::new(&["QUEUE", "DEAD"]);
    let tone = |number| {
        if number > 0 {
            CellTone::Bad
        } else {
            CellTone::Plain
        }
    };
    for (queue, number) in &stats.queues {
        table.styled_row([
            (queue.to_string(), CellTone::Plain),
            (count(*number), tone(*number)),
        ]);
    }
    table.styled_row([
        ("total".to_owned(), CellTone::Plain),
        (count(stats.total), tone(stats.total)),
    ]);
    context.output.table(&table)?;
    Ok(ExitStatus::Success)
}

pub(super) async fn groups(
    args: &DeadGroupsArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let groups = letters(&backstop, context)
        .groups(args.queue.clone(), args.limit)
        .await?;
    if context.output.is_json() {
        context.output.json(&DeadGroupsShape::new(&groups))?;
        return Ok(ExitStatus::Success);
    }
    if groups.is_empty() {
        context.output.note("no dead letters");
        return Ok(ExitStatus::Success);
    }
    let now = backstop.now();
    let mut table = TextTable::new(&[
        "FINGERPRINT",
        "QUEUE",
        "COUNT",
        "FIRST",
        "LAST",
        "KIND",
        "TYPE",
        "SAMPLE",
    ]);
    for group in groups {
        table.row([
            group.fingerprint.to_string(),
            group.queue.to_string(),
            count(group.count),
            relative(group.first_at, now),
            relative(group.last_at, now),
            group.sample.kind.as_ref().map(kind).unwrap_or_default(),
            group.sample.error_type.unwrap_or_default(),
            cut(&group.sample.error, ERROR_CHARS),
        ]);
    }
    context.output.table(&table)?;
    Ok(ExitStatus::Success)
}

pub(super) async fn audit(
    args: &DeadAuditArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let entries = letters(&backstop, context).audit(args.limit).await?;
    if context.output.is_json() {
        context.output.json(&json!({ "audit": entries }))?;
        return Ok(ExitStatus::Success);
    }
    if entries.is_empty() {
        context.output.note("nobody has changed anything yet");
        return Ok(ExitStatus::Success);
    }
    let now = backstop.now();
    let mut table = TextTable::new(&[
        "WHEN",
        "WHO",
        "WHAT",
        "COUNT",
        "SELECTION",
        "REASON",
        "ERROR",
    ]);
    for entry in entries {
        table.row([
            relative(entry.at, now),
            entry.who,
            entry.what,
            entry.count.map_or_else(|| "cut off".to_owned(), count),
            cut(&entry.selection.to_string(), ERROR_CHARS),
            entry.reason.unwrap_or_default(),
            cut(&entry.error.unwrap_or_default(), ERROR_CHARS),
        ]);
    }
    context.output.table(&table)?;
    Ok(ExitStatus::Success)
}
