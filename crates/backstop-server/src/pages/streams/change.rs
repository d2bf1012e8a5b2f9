//! Forgetting, disabling, enabling and setting going again.

use super::named;
use super::one::key_link;
use crate::pages::posted::Posted;
use crate::pages::{Note, PageFailure, View, text};
use axum::extract::Path;
use axum::response::Response;
use backstop::streams::{Resume, Stream};
use backstop_core::StreamKey;

/// A key that something is done to.
struct Asked {
    view: View,
    stream: Stream,
    key: StreamKey,
}

impl Asked {
    fn new(view: View, (stream, key): (String, String)) -> Result<Self, PageFailure> {
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
    fn back(&self, note: &Note, is_gone: bool) -> Response {
        let (view, name) = (&self.view, self.stream.name());
        let address = if is_gone {
            super::link(view, name)
        } else {
            key_link(view, name, &self.key)
        };
        note.on(view.app().base(), &address)
    }
}

/// What cannot be undone has to be said twice, and by its own word: a box that was ticked for one
/// thing counts for no other.
fn confirmed(view: &View, posted: &Posted, word: &str) -> Result<(), PageFailure> {
    match posted.get("confirm") {
        Some(said) if said == word => Ok(()),
        _ => Err(view.bad("This cannot be undone: tick the box that says so, and send it again.")),
    }
}

type Which = Path<(String, String)>;

pub(super) async fn forget(
    view: View,
    Path(which): Which,
    posted: Posted,
) -> Result<Response, PageFailure> {
    confirmed(&view, &posted, "forget")?;
    let asked = Asked::new(view, which)?;
    let (view, key) = (&asked.view, &asked.key);
    let gone = view
        .ask(view.changes(&posted)?.forget(&asked.stream, key))
        .await?;
    let note = match gone {
        Some(gone) => Note::done(format!(
            "{key} is forgotten with {}; its next record is its first.",
            text::many(gone.records, "held record", "held records")
        )),
        None => Note::refused(format!("Nobody has heard of {key}; nothing was forgotten.")),
    };
    Ok(asked.back(&note, true))
}

pub(super) async fn disable(
    view: View,
    Path(which): Which,
    posted: Posted,
) -> Result<Response, PageFailure> {
    confirmed(&view, &posted, "disable")?;
    let asked = Asked::new(view, which)?;
    let (view, key) = (&asked.view, &asked.key);
    let gone = view
        .ask(view.changes(&posted)?.disable(&asked.stream, key))
        .await?;
    let note = Note::done(format!(
        "{key} is forgotten with {}, and its records are ignored until it is enabled.",
        text::many(gone.records, "held record", "held records")
    ));
    Ok(asked.back(&note, false))
}

pub(super) async fn enable(
    view: View,
    Path(which): Which,
    posted: Posted,
) -> Result<Response, PageFailure> {
    let asked = Asked::new(view, which)?;
    let (view, key) = (&asked.view, &asked.key);
    let note = if view
        .ask(view.changes(&posted)?.enable(&asked.stream, key))
        .await?
    {
        Note::done(format!("{key} is enabled; its next record is its first."))
    } else {
        Note::refused(format!("{key} was not disabled."))
    };
    Ok(asked.back(&note, true))
}

pub(super) async fn resume(
    view: View,
    Path(which): Which,
    posted: Posted,
) -> Result<Response, PageFailure> {
    set_going(
        view,
        which,
        &posted,
        Resume::Again,
        "with the record it halted at",
    )
    .await
}

pub(super) async fn skip(
    view: View,
    Path(which): Which,
    posted: Posted,
) -> Result<Response, PageFailure> {
    confirmed(&view, &posted, "skip")?;
    set_going(
        view,
        which,
        &posted,
        Resume::Past,
        "past the record it halted at, which stays a dead letter",
    )
    .await
}

async fn set_going(
    view: View,
    which: (String, String),
    posted: &Posted,
    resume: Resume,
    how: &str,
) -> Result<Response, PageFailure> {
    let asked = Asked::new(view, which)?;
    let (view, key) = (&asked.view, &asked.key);
    let note = if view
        .ask(view.changes(posted)?.resume_key(&asked.stream, key, resume))
        .await?
    {
        Note::done(format!("{key} goes on {how}."))
    } else {
        Note::refused(format!(
            "{key} is not halted; somebody may have been faster."
        ))
    };
    Ok(asked.back(&note, false))
}
