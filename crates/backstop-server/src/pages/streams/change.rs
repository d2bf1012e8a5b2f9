//! Forgetting, disabling, enabling and setting going again.

use super::detail::key_link;
use super::named;
use crate::pages::form::PostedForm;
use crate::pages::{FlashMessage, PageFailure, PageView, text};
use axum::extract::Path;
use axum::response::Response;
use backstop::streams::{ResumeFrom, Stream};
use backstop_core::StreamKey;

/// A key that something is done to.
struct StreamKeyTarget {
    view: PageView,
    stream: Stream,
    key: StreamKey,
}

impl StreamKeyTarget {
    fn new(view: PageView, (stream, key): (String, String)) -> Result<Self, PageFailure> {
        let name = named(&view, &stream)?;
        let key = StreamKey::new(&key).map_err(|error| view.bad(error))?;
        let stream = view
            .app()
            .backstop()
            .stream(name.as_str())
            .map_err(|error| view.bad(error))?;
        Ok(Self { view, stream, key })
    }

    /// Back to the key; a forgotten one is gone, and its stream is shown.
    fn back(&self, note: &FlashMessage, is_gone: bool) -> Response {
        let (view, name) = (&self.view, self.stream.name());
        let address = if is_gone {
            super::link(view, name)
        } else {
            key_link(view, name, &self.key)
        };
        note.redirect(view.app().base(), &address)
    }
}

/// What cannot be undone has to be said twice, and by its own word: a box that was ticked for one
/// thing counts for no other.
fn confirmed(view: &PageView, posted: &PostedForm, word: &str) -> Result<(), PageFailure> {
    match posted.get("confirm") {
        Some(confirmation) if confirmation == word => Ok(()),
        _ => Err(view.bad("This cannot be undone: tick the box that says so, and send it again.")),
    }
}

type StreamKeyPath = Path<(String, String)>;

pub(super) async fn forget(
    view: PageView,
    Path(which): StreamKeyPath,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    confirmed(&view, &posted, "forget")?;
    let target = StreamKeyTarget::new(view, which)?;
    let (view, key) = (&target.view, &target.key);
    let gone = view
        .ask(view.changes(&posted)?.forget(&target.stream, key))
        .await?;
    let note = match gone {
        Some(gone) => FlashMessage::done(format!(
            "{key} is forgotten with {}; its next record is its first.",
            text::many(gone.records, "held record", "held records")
        )),
        None => FlashMessage::refused(format!("Nobody has heard of {key}; nothing was forgotten.")),
    };
    Ok(target.back(&note, true))
}

pub(super) async fn disable(
    view: PageView,
    Path(which): StreamKeyPath,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    confirmed(&view, &posted, "disable")?;
    let target = StreamKeyTarget::new(view, which)?;
    let (view, key) = (&target.view, &target.key);
    let gone = view
        .ask(view.changes(&posted)?.disable(&target.stream, key))
        .await?;
    let note = FlashMessage::done(format!(
        "{key} is forgotten with {}, and its records are ignored until it is enabled.",
        text::many(gone.records, "held record", "held records")
    ));
    Ok(target.back(&note, false))
}

pub(super) async fn enable(
    view: PageView,
    Path(which): StreamKeyPath,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let target = StreamKeyTarget::new(view, which)?;
    let (view, key) = (&target.view, &target.key);
    let note = if view
        .ask(view.changes(&posted)?.enable(&target.stream, key))
        .await?
    {
        FlashMessage::done(format!("{key} is enabled; its next record is its first."))
    } else {
        FlashMessage::refused(format!("{key} was not disabled."))
    };
    Ok(target.back(&note, true))
}

pub(super) async fn resume(
    view: PageView,
    Path(which): StreamKeyPath,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    set_going(
        view,
        which,
        &posted,
        ResumeFrom::SameRecord,
        "with the record it halted at",
    )
    .await
}

pub(super) async fn skip(
    view: PageView,
    Path(which): StreamKeyPath,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    confirmed(&view, &posted, "skip")?;
    set_going(
        view,
        which,
        &posted,
        ResumeFrom::NextRecord,
        "past the record it halted at, which stays a dead letter",
    )
    .await
}

async fn set_going(
    view: PageView,
    which: (String, String),
    posted: &PostedForm,
    resume: ResumeFrom,
    how: &str,
) -> Result<Response, PageFailure> {
    let target = StreamKeyTarget::new(view, which)?;
    let (view, key) = (&target.view, &target.key);
    let note = if view
        .ask(
            view.changes(posted)?
                .resume_key(&target.stream, key, resume),
        )
        .await?
    {
        FlashMessage::done(format!("{key} goes on {how}."))
    } else {
        FlashMessage::refused(format!(
            "{key} is not halted; somebody may have been faster."
        ))
    };
    Ok(target.back(&note, false))
}
