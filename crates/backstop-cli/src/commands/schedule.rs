//! `backstop schedule`: what is due when, and what became of it.

mod change;
mod list;
mod missed;
mod runs;

use super::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::config::DEFAULT_FILE;
use backstop::{Schedule, ScheduleName};
use clap::{Args, Subcommand};

/// Look at schedules and their runs, trigger, pause and resume them.
#[derive(Subcommand, Debug)]
pub(crate) enum ScheduleSubcommand {
    /// All schedules: the next instant, the last run, what is missing
    #[command(after_help = "\
Examples:
  backstop schedule list
  backstop schedule list --json | jq '.schedules[] | select(.missing > 0)'

Schedules stand in the configuration; every `backstop work` with that configuration fires them, once for each instant
however many run:

  [schedules.daily_digest]
  cron = \"30 8 * * *\"                  minute, hour, day of the month, month, day of the week; or @hourly, @daily, …
  timezone = \"Europe/London\"           [default: UTC]
  queue = \"digests\"
  kind = \"DailyDigest\"
  payload = { range = \"daily\" }        the job also gets \"instant\" and \"date\"
  missed = { policy = \"all\", max = 7, look_back = \"7d\", grace = \"30m\" }    skip | one | all [default: one]

Where clocks are changed: a local time that is skipped fires once, right after the gap; one that is repeated fires
once, the first time; hourly and */n schedules go by elapsed time.")]
    List,
    /// The ledger of a schedule: what became of each instant, the newest first
    #[command(after_help = "\
Examples:
  backstop schedule runs
  backstop schedule runs daily_digest
  backstop schedule runs daily_digest --limit 500 --json | jq '.runs[] | select(.what == \"missed\")'

  fired      in its queue in time            coalesced  missing; the later run it names stands for it
  late       after that, within the grace    missed     given up, and why
  made_up    it had been missing             skipped    not wanted: paused, or policy skip
  triggered  asked for by hand               due        agreed to fire; not in its queue yet

The ledger is kept for 32 days.")]
    Runs(runs::ScheduleRunsArgs),
    /// The runs that are missing: older than their grace, and no run stands for them
    #[command(after_help = "\
Examples:
  backstop schedule missed
  backstop schedule missed daily_digest --at 2026-11-16T09:30:00Z --json

Lists every missing instant within `look_back`, whatever `policy` and `max` will do about it, or did: also what was given
up, which `schedule runs` explains. Changes nothing. Workers make up what is missing by themselves; `schedule list` counts
what they still have to deal with.")]
    Missed(missed::ScheduleMissedArgs),
    /// Run a schedule now, beside its instants
    #[command(after_help = "\
Examples:
  backstop schedule trigger daily_digest

The run is entered in the ledger as triggered, under an id of its own. A paused schedule can be triggered too.")]
    Trigger(ScheduleNameArgs),
    /// Stop firing a schedule, on all workers and across restarts
    #[command(after_help = "\
Examples:
  backstop schedule pause daily_digest

Instants that fall into the pause are entered as skipped, and are not made up afterwards.")]
    Pause(ScheduleNameArgs),
    /// Fire a paused schedule again, from its next instant on
    #[command(after_help = "\
Examples:
  backstop schedule resume daily_digest")]
    Resume(ScheduleNameArgs),
}

/// Which schedule.
#[derive(Args, Debug)]
pub(crate) struct ScheduleNameArgs {
    /// The schedule
    name: ScheduleName,
    #[command(flatten)]
    reason: ReasonArgs,
}

impl ScheduleSubcommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self, Self::List | Self::Runs(_))
    }
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &ScheduleSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        ScheduleSubcommand::List => list::run(context).await,
        ScheduleSubcommand::Runs(args) => runs::run(args, context).await,
        ScheduleSubcommand::Missed(args) => missed::run(args, context).await,
        ScheduleSubcommand::Trigger(args) => change::trigger(args, context).await,
        ScheduleSubcommand::Pause(args) => change::pause(args, context).await,
        ScheduleSubcommand::Resume(args) => change::resume(args, context).await,
    }
}

/// The schedule as it is configured.
fn find_schedule<'a>(
    name: &ScheduleName,
    context: &'a CliContext,
) -> Result<&'a Schedule, CliError> {
    context
        .config
        .schedules
        .get(name)
        .ok_or_else(|| unknown_schedule(name))
}

/// Nobody has heard of this schedule.
fn unknown_schedule(name: &ScheduleName) -> CliError {
    CliError::misuse(format!("there is no schedule {name} in the configuration")).advise(format!(
        "backstop schedule list, or an entry [schedules.{name}] in {DEFAULT_FILE}"
    ))
}
