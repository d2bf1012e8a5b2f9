//! How a table stands.

use super::{TableArgs, failed};
use crate::context::Context;
use crate::output::table::Table as Lines;
use crate::output::words::{count, relative};
use crate::trouble::{Trouble, Verdict};
use backstop::Time;
use backstop::core::limits::TABLE_TOLD_MAX;
use backstop::tables::{Status, Table};
use backstop_server::wire::table::StatusShape;
use clap::Args;
use serde_json::Value;

/// Which table, and what of it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop table status invoices
  backstop table status invoices --expired             the keys of rows that are not tried any more
  backstop table status invoices --json | jq '{due, expired, next_due}'

Counts every row, so it takes its time on a large table. Expired rows are those past `max_age`, past the last band, or
with as many failures as `strategy` has `max_attempts`: they stay as they are, and are counted here.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    table: TableArgs,
    /// List the keys of expired rows as well, the oldest first and at most 1,000
    #[arg(long)]
    expired: bool,
}

pub(super) async fn run(args: &StatusArgs, context: &Context) -> Result<Verdict, Trouble> {
    let table = &args.table.configured(context)?.table;
    let backstop = context.look().await?;
    let at = args.table.at.unwrap_or_else(|| backstop.now());
    let adopted = backstop.adopted(table);
    let status = adopted.status(at).await.map_err(|error| failed(table, error))?;
    let expired = if args.expired {
        Some(adopted.expired(at, TABLE_TOLD_MAX).await.map_err(|error| failed(table, error))?)
    } else {
        None
    };
    if context.output.is_json() {
        context.output.json(&StatusShape::new(&status, expired.as_deref()))?;
    } else {
        tell(table, &status, expired.as_deref(), context)?;
    }
    Ok(Verdict::Fine)
}

fn tell(table: &Table, status: &Status, expired: Option<&[Value]>, context: &Context) -> Result<(), Trouble> {
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
        if status.expired > 0 { paint.warning(expired_text) } else { expired_text },
        next(status)
    ))?;
    output.table(&ages(status))?;
    if status.in_hand > 0 {
        output.line(format!("{} in the hands of runners", count(status.in_hand as u64)))?;
    }
    if status.undated > 0 {
        let undated = count(status.undated);
        output.line(
            paint.bad(format!("{undated} open rows have a date that cannot be read: they are never tried")),
        )?;
    }
    if let Some(expired) = expired {
        let mut lines = Lines::new(&["EXPIRED ROW"]);
        for key in expired {
            lines.row([key.to_string()]);
        }
        output.table(&lines)?;
    } else if status.expired > 0 {
        output.note(format!("try: backstop table status {} --expired", table.name()));
    }
    Ok(())
}

/// What comes next, and what was last.
fn next(status: &Status) -> String {
    let seen = |at: Time| relative(at, status.at);
    let due = match status.next_due {
        Some(at) if at > status.at => format!("the next is due {}", seen(at)),
        Some(_) => "they are due now".to_owned(),
        None => "none will be".to_owned(),
    };
    let last =
        status.last_pass.map_or_else(|| "no pass yet".to_owned(), |at| format!("last pass {}", seen(at)));
    format!("{due}; {last}")
}

fn ages(status: &Status) -> Lines {
    let mut lines = Lines::new(&["AGE", "TRIED EVERY", "NEW", "ERROR"]);
    for band in &status.bands {
        let age = band.until.map_or_else(|| "older".to_owned(), |until| format!("up to {until}"));
        let every = band.every.map_or_else(|| "–".to_owned(), |every| every.to_string());
        lines.row([age, every, count(band.new), count(band.error)]);
    }
    lines
}
