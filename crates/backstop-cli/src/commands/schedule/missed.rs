//! The runs that are missing.

use super::configured;
use crate::context::Context;
use crate::output::table::Table;
use crate::output::words::relative;
use crate::trouble::{Trouble, Verdict};
use backstop::{Schedule, ScheduleName, Time};
use clap::Args;
use serde::Serialize;

/// Of which schedules, and seen from when.
#[derive(Args, Debug)]
pub(crate) struct MissedArgs {
    /// The schedules [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<ScheduleName>,
    /// Seen from this time, RFC 3339 [default: now]
    #[arg(long, value_name = "T")]
    at: Option<Time>,
}

#[derive(Serialize)]
struct MissedShapes {
    missed: Vec<MissedShape>,
}

#[derive(Serialize)]
struct MissedShape {
    schedule: ScheduleName,
    instant: Time,
}

pub(super) async fn run(args: &MissedArgs, context: &Context) -> Result<Verdict, Trouble> {
    let schedules: Vec<Schedule> = if args.names.is_empty() {
        context.config.schedules.values().cloned().collect()
    } else {
        let named = args.names.iter().map(|name| configured(name, context).cloned());
        named.collect::<Result<_, _>>()?
    };
    let backstop = context.look().await?;
    let at = args.at.unwrap_or_else(|| backstop.now());
    let missed = backstop.schedules().missed(&schedules, at).await?;
    if context.output.is_json() {
        let shape = |(instant, schedule)| MissedShape { schedule, instant };
        context.output.json(&MissedShapes { missed: missed.into_iter().map(shape).collect() })?;
    } else if missed.is_empty() {
        context.output.note("nothing is missing");
    } else {
        let mut table = Table::new(&["SCHEDULE", "INSTANT", "DUE"]);
        for (instant, name) in &missed {
            table.row([name.to_string(), instant.to_string(), relative(*instant, at)]);
        }
        context.output.table(&table)?;
        context.output.note(
            "a worker with this configuration makes them up as their `missed` says; `schedule runs NAME` tells what was given up",
        );
    }
    Ok(Verdict::Fine)
}
