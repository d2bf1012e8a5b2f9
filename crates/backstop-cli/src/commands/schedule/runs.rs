//! The ledger of a schedule.

use crate::context::Context;
use crate::output::table::{Table, Tone};
use crate::output::words::{about, instant};
use crate::trouble::{Trouble, Verdict};
use backstop::ScheduleName;
use backstop::schedules::{Entry, What};
use backstop_server::wire::schedule::RunsShape;
use clap::Args;

/// Which schedule, and how many.
#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    /// The schedule
    name: ScheduleName,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

pub(super) async fn run(args: &RunsArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let runs = backstop.schedules().runs(&args.name, args.limit as usize).await?;
    if runs.is_empty() && !context.config.schedules.contains_key(&args.name) {
        return Err(super::unknown(&args.name));
    }
    if context.output.is_json() {
        context.output.json(&RunsShape::new(&args.name, &runs))?;
    } else if runs.is_empty() {
        context.output.note(format!("nothing yet; {} has not been due since it was registered", args.name));
    } else {
        context.output.table(&table(&runs, &args.name))?;
    }
    Ok(Verdict::Fine)
}

fn table(runs: &[Entry], name: &ScheduleName) -> Table {
    let mut table = Table::new(&["INSTANT", "WHAT", "AFTER", "JOB", "WHY"]);
    for entry in runs {
        let plain = |text: String| (text, Tone::Plain);
        let why = match entry.what {
            What::Coalesced(into) => format!("into {into}"),
            what => what.why().map(|why| why.to_string()).unwrap_or_default(),
        };
        table.toned([
            plain(instant(entry.instant)),
            (entry.what.to_string(), tone(entry.what)),
            plain(about(entry.lateness())),
            plain(entry.job(name).map(|id| id.to_string()).unwrap_or_default()),
            plain(why),
        ]);
    }
    table
}

const fn tone(what: What) -> Tone {
    match what {
        What::Fired | What::Triggered(_) => Tone::Good,
        What::Due | What::Late | What::MadeUp | What::Coalesced(_) | What::Skipped(_) => Tone::Warning,
        What::Missed(_) => Tone::Bad,
    }
}
