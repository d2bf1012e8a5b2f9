//! All schedules.

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{count, instant, relative};
use backstop::schedules::{ScheduleState, ScheduleStatus};
use backstop::{Schedule, ScheduleName, Time};
use backstop_server::wire::schedule::{ScheduleShape, SchedulesShape};

/// A schedule of the configuration, or one that only the store has heard of.
enum ScheduleListRow<'a> {
    /// With how many of its runs that are missing were given up.
    Configured(&'a Schedule, ScheduleStatus, u64),
    Unconfigured(ScheduleName, ScheduleState),
}

pub(super) async fn run(context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let mut listed = Vec::new();
    for schedule in context.config.schedules.values() {
        let schedules = backstop.schedules();
        let missed = schedules
            .missed_runs(std::slice::from_ref(schedule), backstop.now())
            .await?;
        let given_up = missed.iter().filter(|run| run.is_given_up()).count() as u64;
        listed.push(ScheduleListRow::Configured(
            schedule,
            schedules.status(schedule).await?,
            given_up,
        ));
    }
    let others = backstop.schedules().list_known().await?.into_iter();
    let others = others.filter(|(name, _)| !context.config.schedules.contains_key(name));
    listed.extend(others.map(|(name, state)| ScheduleListRow::Unconfigured(name, state)));
    if context.output.is_json() {
        context.output.json(&SchedulesShape {
            schedules: listed.iter().map(shape).collect(),
        })?;
    } else if listed.is_empty() {
        context
            .output
            .note("no schedules yet; `backstop schedule list --help` shows how to configure one");
    } else {
        context.output.table(&table(&listed, backstop.now()))?;
    }
    Ok(ExitStatus::Success)
}

fn shape(listed: &ScheduleListRow<'_>) -> ScheduleShape {
    match listed {
        ScheduleListRow::Configured(schedule, status, _) => {
            ScheduleShape::configured(schedule, status)
        }
        ScheduleListRow::Unconfigured(name, state) => ScheduleShape::known(name, state),
    }
}

fn table(listed: &[ScheduleListRow<'_>], now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "SCHEDULE",
        "CRON",
        "TIME ZONE",
        "QUEUE",
        "NEXT",
        "LAST RUN",
        "MISSING",
    ]);
    let plain = |text: String| (text, CellTone::Plain);
    for listed in listed {
        let (last, paused) = match listed {
            ScheduleListRow::Configured(_, status, _) => (&status.last, status.paused),
            ScheduleListRow::Unconfigured(_, state) => (&state.last, state.paused),
        };
        let last = last
            .as_ref()
            .map(|last| format!("{}, {}", relative(last.instant, now), last.what));
        let pause = paused.map(|since| {
            (
                format!("paused {}", relative(since, now)),
                CellTone::Warning,
            )
        });
        table.styled_row(match listed {
            ScheduleListRow::Configured(schedule, status, given_up) => [
                plain(status.name.to_string()),
                plain(schedule.cron.to_string()),
                plain(schedule.timezone.to_string()),
                plain(schedule.queue.to_string()),
                pause.unwrap_or_else(|| {
                    plain(status.next.map(|at| next(at, now)).unwrap_or_default())
                }),
                plain(last.unwrap_or_default()),
                missing(status.missing as u64, *given_up),
            ],
            ScheduleListRow::Unconfigured(name, state) => [
                plain(name.to_string()),
                plain(state.rule().unwrap_or_default().to_owned()),
                plain(String::new()),
                plain(String::new()),
                pause.unwrap_or(("not configured here".to_owned(), CellTone::Warning)),
                plain(last.unwrap_or_default()),
                plain(String::new()),
            ],
        });
    }
    table
}

fn next(at: Time, now: Time) -> String {
    format!("{} ({})", instant(at), relative(at, now))
}

/// Those that are still to be dealt with, and those that nobody will: together what `schedule
/// missed` lists.
fn missing(open: u64, given_up: u64) -> (String, CellTone) {
    let given_up_too = if given_up > 0 {
        format!(" and {} given up", count(given_up))
    } else {
        String::new()
    };
    let tone = match (open, given_up) {
        (0, 0) => CellTone::Good,
        (0, _) => CellTone::Warning,
        _ => CellTone::Bad,
    };
    (format!("{}{given_up_too}", count(open)), tone)
}
