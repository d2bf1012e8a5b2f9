//! `backstop dead list`: a page of dead letters.

use super::letters;
use super::select::DeadFilterArgs;
use crate::commands::job::list::warn_of_damaged;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{cut, kind, relative};
use backstop::Time;
use backstop::core::limits::PAGE_MAX;
use backstop::dead::DeadLetter;
use backstop_core::terminal::shell_word;
use backstop_server::wire::dead::DeadListShape;
use clap::Args;

/// Characters of an error shown in a table.
const ERROR_CHARS: usize = 60;

/// Which letters, and how many.
#[derive(Args, Debug)]
pub(crate) struct DeadListArgs {
    #[command(flatten)]
    filter: DeadFilterArgs,
    /// At most so many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Go on where an earlier list ended: its `next`
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

pub(super) async fn run(args: &DeadListArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let (output, now) = (context.output, backstop.now());
    let filter = args.filter.filter(now);
    let limit = args.limit.clamp(1, PAGE_MAX);
    let page = letters(&backstop, context)
        .list(&filter, args.cursor.clone(), limit)
        .await?;
    if output.is_json() {
        output.json(&DeadListShape::new(&page))?;
        return Ok(ExitStatus::Success);
    }
    if !page.letters.is_empty() {
        output.table(&table(&page.letters, now))?;
    } else if page.damaged.is_empty() && page.next.is_none() {
        output.note("no dead letters");
    }
    warn_of_damaged(&page.damaged, output);
    if let Some(next) = page.next {
        output.note(format!(
            "there may be more; try: --cursor {}",
            shell_word(&next)
        ));
    }
    Ok(ExitStatus::Success)
}

fn table(letters: &[DeadLetter], now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "ID", "QUEUE", "KIND", "REASON", "ATTEMPTS", "REQUEUES", "DIED", "TYPE", "ERROR",
    ]);
    for letter in letters {
        let plain = |text: String| (text, CellTone::Plain);
        table.styled_row([
            plain(letter.id.to_string()),
            plain(letter.queue.to_string()),
            plain(kind(&letter.kind)),
            plain(letter.reason.clone().unwrap_or_default()),
            plain(letter.attempt_count.to_string()),
            (
                letter.requeues.to_string(),
                if letter.requeues > 0 {
                    CellTone::Warning
                } else {
                    CellTone::Plain
                },
            ),
            plain(
                letter
                    .last_failed_at
                    .map_or_else(String::new, |at| relative(at, now)),
            ),
            plain(letter.error_type.clone().unwrap_or_default()),
            plain(cut(&letter.error, ERROR_CHARS)),
        ]);
    }
    table
}
