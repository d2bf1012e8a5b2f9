//! How a table stands.

use super::{TableArgs, table_error};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::TextTable as Lines;
use crate::output::words::{count, instant, relative};
use backstop::core::limits::TABLE_LISTED_MAX;
use backstop::tables::{FailingPasses, RowInHand, Table, TableStatus, UnburiedRows};
use backstop::{Span, Time};
use backstop_server::wire::table::TableStatusShape;
use clap::Args;
use serde_json::Value;

/// A row that has been in hand for so long is worth a look.
const LONG_RUNNING: Span = Span::minutes(1);
/// Such rows that are told one by one to people.
const LONG_RUNNING_SHOWN_MAX: usize = 20;

/// Which table, and what of it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop table status invoices
  backstop table status invoices --expired             the keys of rows that are not tried any more
  backstop table status invoices --json | jq '{due, expired, next_due}'

Counts every row, so it takes its time on a large table. Expired rows are those past `max_age`, past the last band, or
with as many failures as `strategy` has `max_attempts`: they stay as they are, and are counted here. Rows that nobody can
tell whether they are due, and rows that a handler has had in hand for long, are told as well.")]
pub(crate) struct TableStatusArgs {
    #[command(flatten)]
    table: TableArgs,
    /// List the keys of expired rows as well, the oldest first and at most 1,000
    #[arg(long)]
    expired: bool,
}

pub(super) async fn run(
    args: &TableStatusArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let table = &args.table.find_table(context)?.table;
    let backstop = context.open_for_reading().await?;
    let at = args.table.at.unwrap_or_else(|| backstop.now());
    let adopted = backstop.adopted_table(table);
    let status = match adopted.status(at).await {
        Ok(status) => status,
        Err(error) => {
            // What keeps rows from being counted is likely what passes fail of; since when is known
            // all the same.
            if let Some(failing) = adopted.failing().await? {
                context.output.note(passes(&failing, at));
            }
            return Err(table_error(table, error));
        }
    };
    let expired = if args.expired {
        Some(
            adopted
                .expired(at, TABLE_LISTED_MAX)
                .await
                .map_err(|error| table_error(table, error))?,
        )
    } else {
        None
    };
    if context.output.is_json() {
        context
            .output
            .json(&TableStatusShape::new(&status, expired.as_deref()))?;
    } else {
        print_status(table, &status, expired.as_deref(), context)?;
    }
    Ok(ExitStatus::Success)
}

fn print_status(
    table: &Table,
    status: &TableStatus,
    expired: Option<&[Value]>,
    context: &CliContext,
) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    let name = paint.bold(table.name());
    output.line(format!(
        "{name}: {} new, {} error, {} success, {} in other states",
        count(status.new),
        count(status.error),
        count(status.success),
        count(status.other)
    ))?;
    let expired_text = format!("{} expired", count(status.expired));
    output.line(format!(
        "{} due, {} waiting, {}; {}",
        count(status.due),
        count(status.waiting),
        if status.expired > 0 {
            paint.warning(expired_text)
        } else {
            expired_text
        },
        next(status)
    ))?;
    if let Some(failing) = &status.failing {
        output.line(paint.bad(passes(failing, status.at)))?;
    }
    if let Some(UnburiedRows { rows, full }) = &status.unburied {
        let message = format!(
            "{} or more are not copied to the dead letters: {}",
            count(*rows),
            full.advice()
        );
        output.line(paint.bad(message))?;
    }
    output.table(&ages(status))?;
    print_rows_in_hand(status, context)?;
    let never = [
        (status.undated, "a date or a count that cannot be read"),
        (
            status.unkeyed,
            "no key, or one that is too long to be noted down",
        ),
    ];
    for (rows, what) in never.into_iter().filter(|(rows, _)| *rows > 0) {
        output.line(paint.bad(format!(
            "{} open rows have {what}: they are never tried",
            count(rows)
        )))?;
    }
    if let Some(expired) = expired {
        let mut lines = Lines::new(&["EXPIRED ROW"]);
        for key in expired {
            lines.row([key.to_string()]);
        }
        output.table(&lines)?;
    } else if status.expired > 0 {
        output.note(format!(
            "try: backstop table status {} --expired",
            table.name()
        ));
    }
    Ok(())
}

/// What runners have in their hands, and what they have had there for long.
fn print_rows_in_hand(status: &TableStatus, context: &CliContext) -> Result<(), CliError> {
    if status.in_hand == 0 {
        return Ok(());
    }
    context.output.line(format!(
        "{} in the hands of runners",
        count(status.in_hand as u64)
    ))?;
    let is_long = |row: &&RowInHand| status.at.since(row.since) >= LONG_RUNNING;
    let long: Vec<&RowInHand> = status
        .hands
        .iter()
        .filter(is_long)
        .take(LONG_RUNNING_SHOWN_MAX)
        .collect();
    if !long.is_empty() {
        let mut lines = Lines::new(&["LONG IN HAND", "SINCE", "RUNNER"]);
        for row in long {
            lines.row([
                row.key.to_string(),
                relative(row.since, status.at),
                row.runner.clone(),
            ]);
        }
        context.output.table(&lines)?;
        context.output.note(
            "a handler that may hang keeps its place; `timeout` in the table's entry ends it",
        );
    }
    Ok(())
}

/// What comes next, and what was last.
fn next(status: &TableStatus) -> String {
    let seen = |at: Time| relative(at, status.at);
    let due = match status.next_due {
        Some(at) if at > status.at => format!("the next is due {}", seen(at)),
        Some(_) => "they are due now".to_owned(),
        None => "none will be".to_owned(),
    };
    let last = status.last_pass.map_or_else(
        || "no pass yet".to_owned(),
        |at| format!("last pass {}", seen(at)),
    );
    format!("{due}; {last}")
}

/// Passes that fail, in a line.
fn passes(failing: &FailingPasses, at: Time) -> String {
    let FailingPasses {
        since,
        passes,
        error,
        ..
    } = failing;
    let many = if *passes == 1 {
        "a pass".to_owned()
    } else {
        format!("{} passes", count(*passes))
    };
    format!(
        "{many} failed since {} ({}), the last one of: {error}",
        instant(*since),
        relative(*since, at)
    )
}

fn ages(status: &TableStatus) -> Lines {
    let mut lines = Lines::new(&["AGE", "TRIED EVERY", "NEW", "ERROR"]);
    for band in &status.bands {
        let age = band
            .until
            .map_or_else(|| "older".to_owned(), |until| format!("up to {until}"));
        let every = band
            .every
            .map_or_else(|| "–".to_owned(), |every| every.to_string());
        lines.row([age, every, count(band.new), count(band.error)]);
    }
    lines
}
