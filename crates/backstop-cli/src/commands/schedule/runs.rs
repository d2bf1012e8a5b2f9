//! The ledger of a schedule.

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{about, instant};
use backstop::schedules::{InstantOutcome, LedgerEntry};
use backstop::{Backstop, ScheduleName};
use backstop_server::wire::schedule::ScheduleRunsShape;
use clap::Args;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Which schedule, and how many.
#[derive(Args, Debug)]
pub(crate) struct ScheduleRunsArgs {
    /// The schedule [default: all]
    name: Option<ScheduleName>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

pub(super) async fn run(
    args: &ScheduleRunsArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let Some(name) = &args.name else {
        return all(args, &backstop, context).await;
    };
    let runs = backstop.schedules().runs(name, args.limit as usize).await?;
    if runs.is_empty() && !context.config.schedules.contains_key(name) {
        return Err(super::unknown_schedule(name));
    }
    if context.output.is_json() {
        context.output.json(&ScheduleRunsShape::new(name, &runs))?;
    } else if runs.is_empty() {
        context.output.note(format!(
            "nothing yet; {name} has not been due since it was registered"
        ));
    } else {
        context
            .output
            .table(&table(runs.iter().map(|entry| (name, entry)), false))?;
    }
    Ok(ExitStatus::Success)
}

/// The ledgers of all schedules that are configured, or that the store knows.
async fn all(
    args: &ScheduleRunsArgs,
    backstop: &Backstop,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let known = backstop
        .schedules()
        .list_known()
        .await?
        .into_iter()
        .map(|(name, _)| name);
    let names: BTreeSet<ScheduleName> = known
        .chain(context.config.schedules.keys().cloned())
        .collect();
    let limit = args.limit as usize;
    let mut ledgers = Vec::with_capacity(names.len());
    for name in names {
        let runs = backstop.schedules().runs(&name, limit).await?;
        ledgers.push((name, runs));
    }
    if context.output.is_json() {
        let shapes: Vec<_> = ledgers
            .iter()
            .map(|(name, runs)| ScheduleRunsShape::new(name, runs))
            .collect();
        context.output.json(&json!({ "schedules": shapes }))?;
        return Ok(ExitStatus::Success);
    }
    let mut runs: Vec<(&ScheduleName, &LedgerEntry)> = ledgers
        .iter()
        .flat_map(|(name, runs)| runs.iter().map(move |entry| (name, entry)))
        .collect();
    runs.sort_by_key(|(_, entry)| Reverse(entry.instant));
    runs.truncate(limit);
    if runs.is_empty() {
        context.output.note("no schedule has been due yet");
    } else {
        context.output.table(&table(runs.into_iter(), true))?;
    }
    Ok(ExitStatus::Success)
}

/// The entries; with their schedules, if they are of several.
fn table<'a>(
    runs: impl Iterator<Item = (&'a ScheduleName, &'a LedgerEntry)>,
    names_schedules: bool,
) -> TextTable {
    let titles = ["SCHEDULE", "INSTANT", "WHAT", "AFTER", "JOB", "WHY"];
    let left_out = usize::from(!names_schedules);
    let mut table = TextTable::new(&titles[left_out..]);
    for (name, entry) in runs {
        let plain = |text: String| (text, CellTone::Plain);
        let why = match entry.outcome {
            InstantOutcome::Coalesced(into) => format!("into {into}"),
            what => what.reason().map(|why| why.to_string()).unwrap_or_default(),
        };
        let cells = [
            plain(name.to_string()),
            plain(instant(entry.instant)),
            (entry.outcome.to_string(), tone(entry.outcome)),
            plain(about(entry.lateness())),
            plain(entry.job(name).map(|id| id.to_string()).unwrap_or_default()),
            plain(why),
        ];
        table.styled_row(cells.into_iter().skip(left_out));
    }
    table
}

const fn tone(what: InstantOutcome) -> CellTone {
    match what {
        InstantOutcome::Fired | InstantOutcome::Triggered(_) => CellTone::Good,
        InstantOutcome::Due
        | InstantOutcome::Late
        | InstantOutcome::MadeUp
        | InstantOutcome::Coalesced(_)
        | InstantOutcome::Skipped(_) => CellTone::Warning,
        InstantOutcome::Missed(_) => CellTone::Bad,
    }
}
