//! Who did what, when, and to how many.

use super::components::RelativeTime;
use super::link::PageLink;
use super::pagination::{PaginationLinks, PaginationState};
use super::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use backstop::audit::{AuditEntry, ENTRIES_MAX, LOOKS_MAX};
use backstop_core::Time;
use backstop_core::failure::truncate_text;

/// Entries shown at a time.
const PAGE: usize = 100;
/// Characters of what an entry was about.
const SELECTION_MAX: usize = 400;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/audit", get(list))
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditLogPage {
    frame: PageFrame,
    rows: Vec<AuditRow>,
    who: String,
    what: String,
    /// How many entries were looked at, where that is why there are no more on the page.
    looked: Option<String>,
    is_filtered: bool,
    pages: PaginationLinks,
    kept: usize,
}

struct AuditRow {
    at: RelativeTime,
    who: String,
    what: String,
    selection: String,
    count: Option<String>,
    reason: String,
    error: String,
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let (who, what) = (
        view.query("who").unwrap_or_default(),
        view.query("what").unwrap_or_default(),
    );
    let after = view.query("after");
    let fits = |entry: &AuditEntry| entry.who.contains(who) && entry.what.contains(what);
    let audit = view.app().backstop().audit(view.who());
    let found = view
        .ask(audit.page(after.map(str::to_owned), PAGE, fits))
        .await?;
    let link = PageLink::to(view.at("/audit"))
        .with_some("who", view.query("who"))
        .with_some("what", view.query("what"));
    let (now, is_filtered) = (view.now(), !who.is_empty() || !what.is_empty());
    let page = AuditLogPage {
        // Not live: nobody waits for it to change.
        frame: view.frame(PageSection::Audit, "Audit"),
        pages: PaginationState::of(&view, "after")
            .pages(&link, found.next)
            .with_next_label(if is_filtered && found.is_cut {
                "Go on looking"
            } else {
                "Next page"
            }),
        rows: found.entries.iter().map(|entry| row(entry, now)).collect(),
        who: who.to_owned(),
        what: what.to_owned(),
        looked: (is_filtered && found.is_cut).then(|| text::count(LOOKS_MAX as u64)),
        is_filtered: is_filtered || after.is_some(),
        kept: ENTRIES_MAX,
    };
    view.show(&page)
}

fn row(entry: &AuditEntry, now: Time) -> AuditRow {
    AuditRow {
        at: RelativeTime::new(entry.at, now),
        who: entry.who.clone(),
        what: entry.what.clone(),
        selection: truncate_text(entry.selection.to_string(), SELECTION_MAX),
        count: entry.count.map(text::count),
        reason: entry.reason.clone().unwrap_or_default(),
        error: entry.error.clone().unwrap_or_default(),
    }
}
