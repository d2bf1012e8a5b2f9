//! Running a schedule now, pausing it and setting it going again.

use super::{link, named};
use crate::pages::posted::Posted;
use crate::pages::{Link, Note, PageFailure, View};
use axum::extract::Path;
use axum::response::Response;
use backstop::schedules::TriggerError;
use backstop_core::ScheduleName;

pub(super) async fn trigger(
    view: View,
    Path(name): Path<String>,
    posted: Posted,
) -> Result<Response, PageFailure> {
    let name = named(&view, &name)?;
    let config = view.app().config();
    let Some(schedule) = config.schedules.get(&name) else {
        return Err(view.missing(format!(
            "Schedule {name} is not in the configuration of this server, so it cannot be run from here."
        )));
    };
    let note = match view.changes(&posted)?.trigger(schedule).await {
        Ok(triggered) => Note::done(format!(
            "{name} runs now: job {} is in queue {}.",
            triggered.id, schedule.queue
        )),
        Err(TriggerError::Store(error)) => return Err(view.store_failed(error)),
        Err(error) => Note::refused(format!("{error}.")),
    };
    Ok(back(&view, &name, &posted, &note))
}

pub(super) async fn pause(
    view: View,
    Path(name): Path<String>,
    posted: Posted,
) -> Result<Response, PageFailure> {
    let name = known(&view, &name).await?;
    let note = if view
        .ask(view.changes(&posted)?.pause_schedule(&name))
        .await?
    {
        Note::done(format!(
            "{name} is paused on all workers; its instants are skipped until it is resumed."
        ))
    } else {
        Note::refused(format!("{name} was paused already."))
    };
    Ok(back(&view, &name, &posted, &note))
}

pub(super) async fn resume(
    view: View,
    Path(name): Path<String>,
    posted: Posted,
) -> Result<Response, PageFailure> {
    let name = known(&view, &name).await?;
    let note = if view
        .ask(view.changes(&posted)?.resume_schedule(&name))
        .await?
    {
        Note::done(format!(
            "{name} goes on with its next instant; what fell into the pause stays skipped."
        ))
    } else {
        Note::refused(format!("{name} was not paused."))
    };
    Ok(back(&view, &name, &posted, &note))
}

/// One of the configuration, or one that the store has heard of: anything else is a slip.
async fn known(view: &View, name: &str) -> Result<ScheduleName, PageFailure> {
    let name = named(view, name)?;
    if view.app().config().schedules.contains_key(&name) {
        return Ok(name);
    }
    let known = view.ask(view.app().backstop().schedules().known()).await?;
    if known.iter().any(|(known, _)| *known == name) {
        return Ok(name);
    }
    Err(view.missing(format!("There is no schedule {name}.")))
}

/// To where the button was.
fn back(view: &View, name: &ScheduleName, posted: &Posted, note: &Note) -> Response {
    let here = Link::to(link(view, name))
        .with_some("day", posted.get("day"))
        .with_some("what", posted.get("what"));
    let address = if posted.get("back") == Some("list") {
        view.at("/schedules")
    } else {
        here.to_string()
    };
    note.on(view.app().base(), &address)
}
