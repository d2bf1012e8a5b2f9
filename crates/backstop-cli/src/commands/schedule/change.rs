//! Triggering, pausing and resuming a schedule.

use super::{NameArg, configured, unknown};
use crate::context::Context;
use crate::trouble::{Trouble, Verdict};
use backstop::schedules::TriggerError;
use backstop::{Backstop, ScheduleName};
use backstop_server::wire::queue::PausedShape;
use backstop_server::wire::schedule::TriggeredShape;

pub(super) async fn trigger(args: &NameArg, context: &Context) -> Result<Verdict, Trouble> {
    let name = &args.name;
    let schedule = configured(name, context)?;
    let backstop = context.open().await?;
    let triggered = args
        .because
        .changes(&backstop)
        .trigger(schedule)
        .await
        .map_err(|error| match error {
            TriggerError::Store(error) => error.into(),
            TriggerError::Full(_) => Trouble::new(error).advise("backstop queue list"),
            _ => Trouble::new(error),
        })?;
    if context.output.is_json() {
        let shape = TriggeredShape {
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
    Ok(Verdict::Fine)
}

pub(super) async fn pause(args: &NameArg, context: &Context) -> Result<Verdict, Trouble> {
    let (backstop, name) = (context.open().await?, &args.name);
    check_known(name, &backstop, context).await?;
    let is_new = args.because.changes(&backstop).pause_schedule(name).await?;
    let done = if is_new {
        "paused until it is resumed"
    } else {
        "was paused already"
    };
    tell(name, true, done, context)
}

pub(super) async fn resume(args: &NameArg, context: &Context) -> Result<Verdict, Trouble> {
    let (backstop, name) = (context.open().await?, &args.name);
    check_known(name, &backstop, context).await?;
    let was_paused = args
        .because
        .changes(&backstop)
        .resume_schedule(name)
        .await?;
    let done = if was_paused {
        "goes on with its next instant"
    } else {
        "was not paused"
    };
    tell(name, false, done, context)
}

/// A schedule that is no longer configured can still be paused and resumed; one that never was is a
/// typing error.
async fn check_known(
    name: &ScheduleName,
    backstop: &Backstop,
    context: &Context,
) -> Result<(), Trouble> {
    if context.config.schedules.contains_key(name) {
        return Ok(());
    }
    let known = backstop.schedules().known().await?;
    if known.iter().any(|(known, _)| known == name) {
        Ok(())
    } else {
        Err(unknown(name))
    }
}

fn tell(
    name: &ScheduleName,
    paused: bool,
    done: &str,
    context: &Context,
) -> Result<Verdict, Trouble> {
    if context.output.is_json() {
        context.output.json(&PausedShape { name, paused })?;
    } else {
        context.output.line(format!("{name}: {done}"))?;
    }
    Ok(Verdict::Fine)
}
