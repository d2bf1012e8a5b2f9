//! The ledger of a schedule.

use crate::context::Context;
use crate::output::table::{Table, Tone};
use crate::output::words::{about, instant};
use crate::trouble::{Trouble, Verdict};
use backstop::schedules::{Entry, What};
use backstop::{Backstop, ScheduleName};
use backstop_server::wire::schedule::RunsShape;
use clap::Args;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Which schedule, and how many.
#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    /// The schedule [default: all]
    name: Option<ScheduleName>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

pub(super) async fn run(args: &RunsArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let Some(name) = &args.name else {
        return all(args, &backstop, context).await;
    };
    let runs = backstop.schedules().runs(name, args.limit as usize).await?;
    if runs.is_empty() && !context.config.schedules.contains_key(name) {
        return Err(super::unknown(name));
    }
    if context.output.is_json() {
        context.output.json(&RunsShape::new(name, &runs))?;
    } else if runs.is_empty() {
        context.output.note(format!(
            "nothing yet; {name} has not been due since it was registered"
        ));
    } else {
        context
            .output
            .table(&table(runs.iter().map(|entry| (name, entry)), false))?;
    }
    Ok(Verdict::Fine)
}

/// The ledgers of all schedules that are configured, or that the store knows.
async fn all(args: &RunsArgs, backstop: &Backstop, context: &Context) -> Result<Verdict, Trouble> {
    let known = backstop
        .schedules()
        .known()
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
            .map(|(name, runs)| RunsShape::new(name, runs))
            .collect();
        context.output.json(&json!({ "schedules": shapes }))?;
        return Ok(Verdict::Fine);
    }
    let mut runs: Vec<(&ScheduleName, &Entry)> = ledgers
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
    Ok(Verdict::Fine)
}

/// The entries; with their schedules, if they are of several.
fn table<'a>(
    runs: impl Iterator<Item = (&'a ScheduleName, &'a Entry)>,
    names_schedules: bool,
) -> Table {
    let titles = ["SCHEDULE", "INSTANT", "WHAT", "AFTER", "JOB", "WHY"];
    let left_out = usize::from(!names_schedules);
    let mut table = Table::new(&titles[left_out..]);
    for (name, entry) in runs {
        let plain = |text: String| (text, Tone::Plain);
        let why = match entry.what {
            What::Coalesced(into) => format!("into {into}"),
            what => what.why().map(|why| why.to_string()).unwrap_or_default(),
        };
        let cells = [
            plain(name.to_string()),
            plain(instant(entry.instant)),
            (entry.what.to_string(), tone(entry.what)),
            plain(about(entry.lateness())),
            plain(entry.job(name).map(|id| id.to_string()).unwrap_or_default()),
            plain(why),
        ];
        table.toned(cells.into_iter().skip(left_out));
    }
    table
}

const fn tone(what: What) -> Tone {
    match what {
        What::Fired | What::Triggered(_) => Tone::Good,
        What::Due | What::Late | What::MadeUp | What::Coalesced(_) | What::Skipped(_) => {
            Tone::Warning
        }
        What::Missed(_) => Tone::Bad,
    }
}
