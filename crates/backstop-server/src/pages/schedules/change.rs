//! Running a schedule now, pausing it and setting it going again.

use super::{link, named};
use crate::pages::form::PostedForm;
use crate::pages::{FlashMessage, PageFailure, PageLink, PageView};
use axum::extract::Path;
use axum::response::Response;
use backstop::schedules::TriggerError;
use backstop_core::ScheduleName;

pub(super) async fn trigger(
    view: PageView,
    Path(name): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let name = named(&view, &name)?;
    let config = view.app().config();
    let Some(schedule) = config.schedules.get(&name) else {
        return Err(view.missing(format!(
            "Schedule {name} is not in the configuration of this server, so it cannot be run from here."
        )));
    };
    let note = match view.changes(&posted)?.trigger(schedule).await {
        Ok(triggered) => FlashMessage::done(format!(
            "{name} runs now: job {} is in queue {}.",
            triggered.id, schedule.queue
        )),
        Err(TriggerError::Store(error)) => return Err(view.store_failed(error)),
        Err(error) => FlashMessage::refused(format!("{error}.")),
    };
    Ok(back(&view, &name, &posted, &note))
}

pub(super) async fn pause(
    view: PageView,
    Path(name): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let name = find_schedule(&view, &name).await?;
    let note = if view
        .ask(view.changes(&posted)?.pause_schedule(&name))
        .await?
    {
        FlashMessage::done(format!(
            "{name} is paused on all workers; its instants are skipped until it is resumed."
        ))
    } else {
        FlashMessage::refused(format!("{name} was paused already."))
    };
    Ok(back(&view, &name, &posted, &note))
}

pub(super) async fn resume(
    view: PageView,
    Path(name): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let name = find_schedule(&view, &name).await?;
    let note = if view
        .ask(view.changes(&posted)?.resume_schedule(&name))
        .await?
    {
        FlashMessage::done(format!(
            "{name} goes on with its next instant; what fell into the pause stays skipped."
        ))
    } else {
        FlashMessage::refused(format!("{name} was not paused."))
    };
    Ok(back(&view, &name, &posted, &note))
}

/// One of the configuration, or one that the store has heard of: anything else is a slip.
async fn find_schedule(view: &PageView, name: &str) -> Result<ScheduleName, PageFailure> {
    let name = named(view, name)?;
    if view.app().config().schedules.contains_key(&name) {
        return Ok(name);
    }
    let known = view
        .ask(view.app().backstop().schedules().list_known())
        .await?;
    if known.iter().any(|(known, _)| *known == name) {
        return Ok(name);
    }
    Err(view.missing(format!("There is no schedule {name}.")))
}

/// To where the button was.
fn back(
    view: &PageView,
    name: &ScheduleName,
    posted: &PostedForm,
    note: &FlashMessage,
) -> Response {
    let here = PageLink::to(link(view, name))
        .with_some("day", posted.get("day"))
        .with_some("what", posted.get("what"));
    let address = if posted.get("back") == Some("list") {
        view.at("/schedules")
    } else {
        here.to_string()
    };
    note.redirect(view.app().base(), &address)
}
