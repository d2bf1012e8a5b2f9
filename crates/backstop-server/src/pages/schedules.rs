//! Schedules: what is due when, and what became of each instant.

mod change;
mod detail;

use super::components::RelativeTime;
use super::link::{anchor, part};
use super::{PageFailure, PageFrame, PageSection, PageView};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::schedules::{LatestRun, ScheduleState, ScheduleStatus};
use backstop_core::{Schedule, ScheduleName, Time};

/// Schedules that a page lists: for each the store is asked what is missing.
const SCHEDULES_SHOWN: usize = 200;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/schedules", get(list))
        .route("/schedules/{schedule}", get(detail::page))
        .route("/schedules/{schedule}/trigger", post(change::trigger))
        .route("/schedules/{schedule}/pause", post(change::pause))
        .route("/schedules/{schedule}/resume", post(change::resume))
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct ScheduleListPage {
    frame: PageFrame,
    schedules: Vec<ScheduleRow>,
    left_out: usize,
}

/// A schedule in the list.
struct ScheduleRow {
    name: String,
    anchor: String,
    link: String,
    is_configured: bool,
    rule: String,
    words: String,
    zone: String,
    queue: String,
    queue_link: String,
    next: Option<NextRunView>,
    last: Option<LastRunView>,
    paused: Option<RelativeTime>,
    missing: usize,
}

struct NextRunView {
    when: RelativeTime,
    local: String,
}

struct LastRunView {
    when: RelativeTime,
    what: String,
    tone: &'static str,
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let (config, now) = (view.app().config(), view.now());
    let schedules = view.app().backstop().schedules();
    let mut rows = Vec::new();
    for schedule in config.schedules.values().take(SCHEDULES_SHOWN) {
        let status = view.ask(schedules.status(schedule)).await?;
        rows.push(configured_row(&view, schedule, &status, now));
    }
    let known = view.ask(schedules.list_known()).await?;
    let others: Vec<_> = known
        .iter()
        .filter(|(name, _)| !config.schedules.contains_key(name))
        .collect();
    let left_out = config.schedules.len().saturating_sub(SCHEDULES_SHOWN)
        + others.len().saturating_sub(SCHEDULES_SHOWN);
    rows.extend(
        others
            .into_iter()
            .take(SCHEDULES_SHOWN)
            .map(|(name, state)| unconfigured_row(&view, name, state, now)),
    );
    view.show(&ScheduleListPage {
        frame: view.frame(PageSection::Schedules, "Schedules").live(),
        schedules: rows,
        left_out,
    })
}

fn configured_row(
    view: &PageView,
    schedule: &Schedule,
    status: &ScheduleStatus,
    now: Time,
) -> ScheduleRow {
    let next = |at: Time| NextRunView {
        when: RelativeTime::new(at, now),
        local: local(at, schedule.timezone.as_str()),
    };
    ScheduleRow {
        name: schedule.name.to_string(),
        anchor: anchor("schedule", schedule.name.as_str()),
        link: link(view, &schedule.name),
        is_configured: true,
        rule: schedule.cron.to_string(),
        words: in_words(schedule),
        zone: schedule.timezone.to_string(),
        queue: schedule.queue.to_string(),
        queue_link: view.at(&format!("/queues/{}", part(schedule.queue.as_str()))),
        next: status.next.map(next),
        last: last(status.last.as_ref(), now),
        paused: RelativeTime::maybe(status.paused, now),
        missing: status.missing,
    }
}

/// One that only the store has heard of: somebody else's, or taken out of the configuration.
fn unconfigured_row(
    view: &PageView,
    name: &ScheduleName,
    state: &ScheduleState,
    now: Time,
) -> ScheduleRow {
    ScheduleRow {
        name: name.to_string(),
        anchor: anchor("schedule", name.as_str()),
        link: link(view, name),
        is_configured: false,
        rule: state.rule().unwrap_or_default().to_owned(),
        words: String::new(),
        zone: String::new(),
        queue: String::new(),
        queue_link: String::new(),
        next: None,
        last: last(state.last.as_ref(), now),
        paused: RelativeTime::maybe(state.paused, now),
        missing: 0,
    }
}

fn last(last: Option<&LatestRun>, now: Time) -> Option<LastRunView> {
    last.map(|last| LastRunView {
        when: RelativeTime::new(last.instant, now),
        what: last.what.replace('_', " "),
        tone: tone(&last.what),
    })
}

/// How a fate is, by the ledger's word for it.
fn tone(what: &str) -> &'static str {
    match what {
        "fired" | "triggered" => "good",
        "missed" => "bad",
        "skipped" => "calm",
        _ => "warn",
    }
}

fn link(view: &PageView, name: &ScheduleName) -> String {
    view.at(&format!("/schedules/{}", part(name.as_str())))
}

/// The schedule of a path.
fn named(view: &PageView, schedule: &str) -> Result<ScheduleName, PageFailure> {
    ScheduleName::new(schedule).map_err(|error| view.bad(error))
}

/// When it is due, in plain words.
fn in_words(schedule: &Schedule) -> String {
    schedule.cron.description().trim_end_matches('.').to_owned()
}

/// An instant on the clocks of a zone: `Tue 2026-11-17 08:30`.
fn local(at: Time, zone: &str) -> String {
    let stamp = jiff::Timestamp::from_microsecond(at.as_micros()).ok();
    let zoned = stamp.and_then(|stamp| stamp.in_tz(zone).ok());
    zoned.map_or_else(
        || at.to_string(),
        |zoned| zoned.strftime("%a %Y-%m-%d %H:%M").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn an_instant_is_written_on_the_clocks_of_its_zone() {
        let at = "2026-07-01T07:30:00Z".parse().unwrap();
        assert_eq!(local(at, "Europe/London"), "Wed 2026-07-01 08:30");
        assert_eq!(local(at, "UTC"), "Wed 2026-07-01 07:30");
        assert_eq!(local(at, "Nowhere/At all"), "2026-07-01T07:30:00Z");
    }
}
