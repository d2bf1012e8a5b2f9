//! Triggering, pausing and resuming a schedule.

use super::{ScheduleNameArgs, find_schedule, unknown_schedule};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::schedules::TriggerError;
use backstop::{Backstop, ScheduleName};
use backstop_server::wire::queue::PausedShape;
use backstop_server::wire::schedule::ScheduleTriggeredShape;

pub(super) async fn trigger(
    args: &ScheduleNameArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let name = &args.name;
    let schedule = find_schedule(name, context)?;
    let backstop = context.open().await?;
    let triggered = args
        .reason
        .changes(&backstop)
        .trigger(schedule)
        .await
        .map_err(|error| match error {
            TriggerError::Store(error) => error.into(),
            TriggerError::Full(_) => CliError::new(error).advise("backstop queue list"),
            _ => CliError::new(error),
        })?;
    if context.output.is_json() {
        let shape = ScheduleTriggeredShape {
            instant: triggered.instant,
            job: triggered.id,
            schedule: name,
        };
        context.output.json(&shape)?;
    } else {
        context.output.line(format!(
            "{name}: job {} is in queue {}",
            triggered.id, schedule.queue
        ))?;
    }
    Ok(ExitStatus::Success)
}

pub(super) async fn pause(
    args: &ScheduleNameArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let (backstop, name) = (context.open().await?, &args.name);
    check_known(name, &backstop, context).await?;
    let is_new = args.reason.changes(&backstop).pause_schedule(name).await?;
    let done = if is_new {
        "paused until it is resumed"
    } else {
        "was paused already"
    };
    print_change(name, true, done, context)
}

pub(super) async fn resume(
    args: &ScheduleNameArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let (backstop, name) = (context.open().await?, &args.name);
    check_known(name, &backstop, context).await?;
    let was_paused = args.reason.changes(&backstop).resume_schedule(name).await?;
    let done = if was_paused {
        "goes on with its next instant"
    } else {
        "was not paused"
    };
    print_change(name, false, done, context)
}

/// A schedule that is no longer configured can still be paused and resumed; one that never was is a
/// typing error.
async fn check_known(
    name: &ScheduleName,
    backstop: &Backstop,
    context: &CliContext,
) -> Result<(), CliError> {
    if context.config.schedules.contains_key(name) {
        return Ok(());
    }
    let known = backstop.schedules().list_known().await?;
    if known.iter().any(|(known, _)| known == name) {
        Ok(())
    } else {
        Err(unknown_schedule(name))
    }
}

fn print_change(
    name: &ScheduleName,
    paused: bool,
    done: &str,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    if context.output.is_json() {
        context.output.json(&PausedShape { name, paused })?;
    } else {
        context.output.line(format!("{name}: {done}"))?;
    }
    Ok(ExitStatus::Success)
}
