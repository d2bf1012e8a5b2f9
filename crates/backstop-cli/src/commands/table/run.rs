//! One pass over a table.

use super::{TableArgs, table_error};
use crate::commands::work::{self, serve::StopSignals};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::progress;
use crate::output::words::{about, count};
use crate::services::programs;
use backstop::config::{DEFAULT_FILE, HandlerConfig};
use backstop::tables::{AdoptedTable, FailedRow, PassProgress, PassReport, Table};
use backstop::{Exec, Time};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const BAR: &str = "{bar:32.cyan/dim} {pos}/{len}  {msg}  {eta} left";
/// How often a pass that goes on says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// Failures told one by one to people.
const FAILURES_SHOWN_MAX: usize = 20;

/// Which table, with what, and as of when.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop table run invoices                            with the handler of [tables.invoices] in backstop.toml
  backstop table run invoices --exec './invoice'         the row as JSON on stdin; exit 0 = success
  backstop table run invoices --http http://127.0.0.1:9000/invoice
  backstop table run invoices --at 2026-11-16T09:30:00Z --exec true --json

One pass: takes what is due, the newest first and at most `max_records`, and writes what became of it. A row that fails
becomes an error and is tried again when `strategy` says; the others go on. A handler that ends with 75, or answers so
that a job would be released, leaves its row as it was. A row that its owner changes meanwhile stays as they want it.
Others may run passes at the same time: no row is in two hands. `backstop work` runs passes by itself, every `every`.

--at is the time that counts: for what is due, and for what is written. Exits 0 even if rows failed, 1 if the pass
itself did. Ctrl-C or SIGTERM lets handlers end and takes no more rows; a second one breaks off.")]
pub(crate) struct TableRunArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The command, as a line for the shell [default: the handler of the configuration]
    #[arg(long, value_name = "CMD", conflicts_with = "http")]
    exec: Option<OsString>,
    /// The web service that gets each row as a POST
    #[arg(long, value_name = "URL")]
    http: Option<String>,
}

#[derive(Serialize)]
struct PassShape<'a> {
    at: Time,
    took_ms: i64,
    due: usize,
    succeeded: usize,
    failed: usize,
    released: usize,
    overtaken: usize,
    taken: usize,
    unwritten: usize,
    redated: u64,
    expired: u64,
    buried: u64,
    unburied: u64,
    undated: u64,
    unkeyed: u64,
    is_cut: bool,
    failures: Vec<FailedRowShape<'a>>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct FailedRowShape<'a> {
    id: &'a Value,
    error: &'a str,
}

pub(super) async fn run(args: &TableRunArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let table = find_handled_table(args, context)?;
    let backstop = context.open().await?;
    let adopted = backstop.adopted_table(&table);
    let bar = progress::bar(context.output.shows_progress(), 0, BAR);
    let ended = pass(&adopted, args.table.at, &bar, context).await;
    bar.finish_and_clear();
    let pass = ended?;
    let note = table.unshared_store_warning(&context.config.store);
    if context.output.is_json() {
        context.output.json(&shape(&pass, note))?;
    } else {
        print_pass(&table, &pass, context)?;
        if let Some(note) = note {
            context.output.note(format!("note: {note}"));
        }
    }
    Ok(if pass.unwritten > 0 {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}

/// The table with its handler: as the flags say, else as the configuration says.
fn find_handled_table(args: &TableRunArgs, context: &CliContext) -> Result<Table, CliError> {
    let mut config = args.table.find_table(context)?.clone();
    if let Some(line) = &args.exec {
        config.handler = Some(HandlerConfig::Exec(Exec::shell(line)));
    }
    if let Some(address) = &args.http {
        config.handler = Some(HandlerConfig::Http(work::service(address)?));
    }
    let name = config.table.name().to_owned();
    if config.handler.is_none() {
        return Err(CliError::misuse(format!("table {name} has no handler in the configuration")).advise(
            format!("backstop table run {name} --exec CMD | --http URL, or a handler in {DEFAULT_FILE}"),
        ));
    }
    config
        .handler
        .iter()
        .try_for_each(|handler| programs::check(&format!("table {name}"), handler))?;
    config
        .with_handler()
        .map_err(|problem| CliError::misuse(format!("table {name}: {problem}")))
}

/// Runs it to its end, or to that of its handlers if a signal says so.
async fn pass(
    adopted: &AdoptedTable,
    at: Option<Time>,
    bar: &ProgressBar,
    context: &CliContext,
) -> Result<PassReport, CliError> {
    let mut signals = StopSignals::listen()?;
    let last = Mutex::new(PassProgress::default());
    let mut tell = |progress| {
        show(bar, progress);
        *last.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    };
    let running = async {
        match at {
            Some(at) => adopted.run_at(at, &mut tell).await,
            None => adopted.run_with_progress(&mut tell).await,
        }
    };
    tokio::pin!(running);
    let mut is_stopping = false;
    let mut progress_ticks =
        tokio::time::interval_at(Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
    loop {
        tokio::select! {
            _ = progress_ticks.tick() => {
                let progress = *last.lock().unwrap_or_else(PoisonError::into_inner);
                context.output.announce(so_far(adopted.table(), progress));
            }
            ended = &mut running => return ended.map_err(|error| table_error(adopted.table(), error)),
            () = signals.next() => {
                if is_stopping {
                    let bound = adopted.table().recovery_bound();
                    return Err(CliError::new(format!("the pass was broken off; rows in its hands are free again within {bound}")));
                }
                is_stopping = true;
                context.output.announce("stopping: handlers may end, no more rows are taken; once more to break off");
                adopted.stop();
            }
        }
    }
}

/// How far a pass is, for people who see no bar.
fn so_far(table: &Table, progress: PassProgress) -> String {
    let [total, done, succeeded, failed] = [
        progress.total,
        progress.done(),
        progress.succeeded,
        progress.failed,
    ]
    .map(|rows| count(rows as u64));
    format!(
        "{}: {done} of {total} rows so far, {succeeded} succeeded, {failed} failed",
        table.name()
    )
}

fn show(bar: &ProgressBar, progress: PassProgress) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done() as u64);
    let (succeeded, failed) = (
        count(progress.succeeded as u64),
        count(progress.failed as u64),
    );
    bar.set_message(format!("{succeeded} succeeded, {failed} failed"));
}

fn shape(pass: &PassReport, note: Option<String>) -> PassShape<'_> {
    PassShape {
        at: pass.at,
        took_ms: pass.took.as_millis(),
        due: pass.due,
        succeeded: pass.succeeded,
        failed: pass.failed,
        released: pass.released,
        overtaken: pass.overtaken,
        taken: pass.taken,
        unwritten: pass.unwritten,
        redated: pass.redated,
        expired: pass.expired,
        buried: pass.buried,
        unburied: pass.unburied,
        undated: pass.undated,
        unkeyed: pass.unkeyed,
        is_cut: pass.is_cut,
        failures: pass.failures.iter().map(failure_shape).collect(),
        notes: note.into_iter().collect(),
    }
}

fn failure_shape(failed: &FailedRow) -> FailedRowShape<'_> {
    FailedRowShape {
        id: &failed.key,
        error: &failed.error,
    }
}

fn print_pass(table: &Table, pass: &PassReport, context: &CliContext) -> Result<(), CliError> {
    let (output, paint) = (context.output, context.output.paint());
    let number = |count_of: usize| count(count_of as u64);
    let failed_text = format!("{} failed", number(pass.failed));
    let mut parts = vec![
        format!("{} due", number(pass.due)),
        paint.good(format!("{} succeeded", number(pass.succeeded))),
        if pass.failed > 0 {
            paint.bad(failed_text)
        } else {
            failed_text
        },
    ];
    let rare = [
        (pass.released as u64, "left as they were"),
        (pass.overtaken as u64, "changed by their owner meanwhile"),
        (pass.taken as u64, "in other hands"),
        (pass.unwritten as u64, "handled but not written"),
        (pass.redated, "with a failure in the future"),
        (pass.expired, "expired"),
        (pass.buried, "copied to the dead letters"),
        (pass.unburied, "not copied there for lack of room"),
        (pass.undated, "with a date or a count that cannot be read"),
        (pass.unkeyed, "with a key that cannot be noted down"),
    ];
    parts.extend(
        rare.iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{} {what}", count(*n))),
    );
    output.line(format!(
        "{}: {} in {}",
        table.name(),
        parts.join(", "),
        about(pass.took)
    ))?;
    for failure in pass.failures.iter().take(FAILURES_SHOWN_MAX) {
        output.line(format!("  {}: {}", failure.key, failure.error))?;
    }
    if let Some(more) = pass
        .failures
        .len()
        .checked_sub(FAILURES_SHOWN_MAX)
        .filter(|more| *more > 0)
    {
        output.line(format!("  … and {} more", number(more)))?;
    }
    if pass.is_cut {
        let max = number(table.records_max());
        output.note(format!(
            "there may be more than the {max} that one pass takes; the next goes on"
        ));
    }
    if pass.unburied > 0 {
        output.note(format!("try: backstop table status {}", table.name()));
    }
    if pass.buried > 0 {
        output.note(format!(
            "try: backstop dead list --queue {}",
            table.dead_letter_queue()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_pass_is_names_its_table_and_counts_its_rows() {
        let table = Table::new("invoices", "sqlite:app.db", "BACKLOG").unwrap();
        let mut progress = PassProgress::default();
        (progress.total, progress.succeeded, progress.failed) = (1_300, 1_000, 20);
        assert_eq!(
            so_far(&table, progress),
            "invoices: 1,020 of 1,300 rows so far, 1,000 succeeded, 20 failed"
        );
    }
}
