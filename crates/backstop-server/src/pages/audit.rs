//! Who did what, when, and to how many.

use super::link::Link;
use super::mark::When;
use super::{Frame, PageFailure, Section, View, text};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use backstop::audit::{AuditEntry, ENTRIES_MAX};
use backstop_core::Time;
use backstop_core::failure::truncated;

/// Entries shown at a time.
const PAGE: usize = 100;
/// Characters of what an entry was about.
const SELECTION_MAX: usize = 400;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/audit", get(list))
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    frame: Frame,
    rows: Vec<Row>,
    who: String,
    what: String,
    is_filtered: bool,
    next: Option<String>,
    first: Option<String>,
    kept: usize,
}

struct Row {
    at: When,
    who: String,
    what: String,
    selection: String,
    count: Option<String>,
    error: String,
}

async fn list(view: View) -> Result<Response, PageFailure> {
    let entries = view.ask(view.app().backstop().audit(view.who()).entries(ENTRIES_MAX)).await?;
    let (who, what) = (view.query("who").unwrap_or_default(), view.query("what").unwrap_or_default());
    let skip: usize = view.query("skip").and_then(|skip| skip.parse().ok()).unwrap_or(0);
    let fits = |entry: &&AuditEntry| entry.who.contains(who) && entry.what.contains(what);
    let found: Vec<&AuditEntry> = entries.iter().filter(fits).skip(skip).take(PAGE + 1).collect();
    let link =
        Link::to(view.at("/audit")).with_some("who", view.query("who")).with_some("what", view.query("what"));
    let now = view.now();
    let page = Page {
        // Not live: the log is read from its beginning, and nobody waits for it to change.
        frame: view.frame(Section::Audit, "Audit"),
        next: (found.len() > PAGE).then(|| link.clone().with("skip", skip + PAGE).to_string()),
        first: (skip > 0).then(|| link.to_string()),
        rows: found.into_iter().take(PAGE).map(|entry| row(entry, now)).collect(),
        who: who.to_owned(),
        what: what.to_owned(),
        is_filtered: !who.is_empty() || !what.is_empty() || skip > 0,
        kept: ENTRIES_MAX,
    };
    view.show(&page)
}

fn row(entry: &AuditEntry, now: Time) -> Row {
    Row {
        at: When::new(entry.at, now),
        who: entry.who.clone(),
        what: entry.what.clone(),
        selection: truncated(entry.selection.to_string(), SELECTION_MAX),
        count: entry.count.map(text::count),
        error: entry.error.clone().unwrap_or_default(),
    }
}
