//! The runs that are missing.

use super::find_schedule;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::TextTable;
use crate::output::words::relative;
use backstop::schedules::MissedRun;
use backstop::{Schedule, ScheduleName, Time};
use backstop_core::schedule::InstantOutcome;
use clap::Args;
use serde::Serialize;

/// Of which schedules, and seen from when.
#[derive(Args, Debug)]
pub(crate) struct ScheduleMissedArgs {
    /// The schedules [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<ScheduleName>,
    /// Seen from this time, RFC 3339 [default: now]
    #[arg(long, value_name = "T")]
    at: Option<Time>,
}

#[derive(Serialize)]
struct MissedInstantsShape {
    missed: Vec<MissedInstantShape>,
}

#[derive(Serialize)]
struct MissedInstantShape {
    schedule: ScheduleName,
    instant: Time,
}

pub(super) async fn run(
    args: &ScheduleMissedArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let schedules: Vec<Schedule> = if args.names.is_empty() {
        context.config.schedules.values().cloned().collect()
    } else {
        let named = args
            .names
            .iter()
            .map(|name| find_schedule(name, context).cloned());
        named.collect::<Result<_, _>>()?
    };
    let backstop = context.open_for_reading().await?;
    let at = args.at.unwrap_or_else(|| backstop.now());
    let missed = backstop.schedules().missed_runs(&schedules, at).await?;
    if context.output.is_json() {
        let shape = |run: MissedRun| MissedInstantShape {
            schedule: run.schedule,
            instant: run.instant,
        };
        context.output.json(&MissedInstantsShape {
            missed: missed.into_iter().map(shape).collect(),
        })?;
    } else if missed.is_empty() {
        context.output.note("nothing is missing");
    } else {
        let mut table = TextTable::new(&["SCHEDULE", "INSTANT", "DUE", "WHAT BECOMES OF IT"]);
        for run in &missed {
            let due = relative(run.instant, at);
            table.row([
                run.schedule.to_string(),
                run.instant.to_string(),
                due,
                fate(run),
            ]);
        }
        context.output.table(&table)?;
        if missed.iter().any(|run| !run.is_given_up()) {
            context.output.note(
                "a worker with this configuration does what is still to be done, by what `missed` says",
            );
        }
    }
    Ok(ExitStatus::Success)
}

/// What becomes of a run, in words.
fn fate(run: &MissedRun) -> String {
    match (run.what, run.what.reason()) {
        (InstantOutcome::Coalesced(newest), _) => format!("the run of {newest} is to stand for it"),
        (_, Some(why)) if run.is_entered => format!("given up: {why}"),
        (_, Some(why)) => format!("to be given up: {why}"),
        _ => "to be made up".to_owned(),
    }
}
