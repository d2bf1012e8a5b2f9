//! Breakers and gates: what is left alone, since when, why, and how to change it.

use super::components::RelativeTime;
use super::link::{PageLink, anchor, part};
use super::queues::{state_of, words};
use super::{FlashMessage, PageFailure, PageFrame, PageSection, PageView, PostedForm, text};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::breakers::{BY_HAND, BreakerInfo, BreakerName};
use backstop_core::Time;
use backstop_core::limits::EVENT_REASON_CHARS_MAX;

/// Rows of the list; those that are shut come first.
const ROWS_MAX: usize = 500;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/breakers", get(list))
        .route("/breakers/reset", post(reset))
        .route("/breakers/open", post(open))
}

#[derive(Template)]
#[template(path = "breakers.html")]
struct BreakerListPage {
    frame: PageFrame,
    rows: Vec<BreakerRow>,
    left_out: usize,
    why_max: usize,
}

struct BreakerRow {
    anchor: String,
    name: String,
    what: &'static str,
    state: String,
    is_shut: bool,
    since: Option<RelativeTime>,
    next_probe: Option<RelativeTime>,
    why: String,
    failures: String,
    rejected: String,
    settings: String,
    dead: String,
    queue_link: String,
    queue: String,
    events: Vec<BreakerEventRow>,
}

struct BreakerEventRow {
    at: RelativeTime,
    from: String,
    to: String,
    why: String,
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let now = view.now();
    let mut guards = view.ask(view.app().backstop().breakers().list()).await?;
    guards.sort_by_key(|guard| !guard.is_shut());
    let page = BreakerListPage {
        frame: view
            .frame(PageSection::Breakers, "Breakers and gates")
            .live(),
        left_out: guards.len().saturating_sub(ROWS_MAX),
        rows: guards
            .iter()
            .take(ROWS_MAX)
            .map(|guard| row(&view, guard, now))
            .collect(),
        why_max: EVENT_REASON_CHARS_MAX,
    };
    view.show(&page)
}

fn row(view: &PageView, guard: &BreakerInfo, now: Time) -> BreakerRow {
    let (queue, status) = (guard.name.queue(), &guard.status);
    let dead = PageLink::to(view.at("/dead"))
        .with("queue", queue)
        .with_some("kind", guard.name.kind());
    let counted = match guard.deaths {
        Some(deaths) => text::many(deaths, "death", "deaths"),
        None => text::many(
            status.failure_count.into(),
            "failure in a row",
            "failures in a row",
        ),
    };
    BreakerRow {
        anchor: anchor("guard", &guard.name.to_string()),
        name: guard.name.to_string(),
        what: if guard.name.kind().is_some() {
            "gate"
        } else {
            "breaker"
        },
        state: state_of(guard),
        is_shut: guard.is_shut(),
        since: RelativeTime::maybe(status.opened_at, now),
        next_probe: RelativeTime::maybe(status.next_probe_at, now),
        why: status
            .events
            .last()
            .map(|event| event.why.clone())
            .unwrap_or_default(),
        failures: counted,
        rejected: text::count(status.rejected_calls),
        settings: describe_settings(guard),
        dead: dead.to_string(),
        queue_link: view.at(&format!("/queues/{}", part(queue.as_str()))),
        queue: queue.to_string(),
        events: status
            .events
            .iter()
            .rev()
            .map(|event| event_row(guard, event, now))
            .collect(),
    }
}

/// When it opens, and what it takes to close it.
fn describe_settings(guard: &BreakerInfo) -> String {
    let settings = &guard.settings;
    let (after, needed, probes) = (
        text::span(settings.recovery_timeout),
        settings.success_threshold,
        settings.half_open_max_calls,
    );
    match guard.name.kind() {
        None => {
            let failures = settings.failure_threshold;
            format!(
                "opens at {failures} failures in a row; tried again after {after}; {needed} of {probes} probes close it"
            )
        }
        Some(_) => {
            format!("once shut, tried again after {after}; {needed} of {probes} probes open it")
        }
    }
}

fn event_row(
    guard: &BreakerInfo,
    event: &backstop_core::breaker::PhaseChange,
    now: Time,
) -> BreakerEventRow {
    BreakerEventRow {
        at: RelativeTime::new(event.at, now),
        from: words(guard.name.word(event.from)),
        to: words(guard.name.word(event.to)),
        why: event.why.clone(),
    }
}

async fn reset(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    let name: BreakerName = posted.read(&view, "name")?;
    let note = if view.ask(view.changes(&posted)?.reset(&name)).await? {
        FlashMessage::done(format!("{name} lets jobs through again."))
    } else {
        FlashMessage::refused(format!("There is no breaker or gate {name}."))
    };
    Ok(note.redirect(view.app().base(), &view.at("/breakers")))
}

async fn open(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    let name: BreakerName = posted.read(&view, "name")?;
    let changes = view.changes(&posted)?;
    let why = posted.get("why").or(changes.reason()).unwrap_or(BY_HAND);
    let why: String = why.chars().take(EVENT_REASON_CHARS_MAX).collect();
    view.ask(changes.open(&name, &why)).await?;
    let note = format!(
        "{name} lets nothing through until somebody resets it; its jobs stay where they are."
    );
    Ok(FlashMessage::done(note).redirect(view.app().base(), &view.at("/breakers")))
}
