//! Schedules: what is due when, and what became of each instant.

mod change;
mod one;

use super::link::{anchor, part};
use super::mark::When;
use super::{Frame, PageFailure, Section, View};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::schedules::{Last, ScheduleStatus, Standing};
use backstop_core::{Schedule, ScheduleName, Time};

/// Schedules that a page lists: for each the store is asked what is missing.
const SCHEDULES_SHOWN: usize = 200;

/// The pages of schedules.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/schedules", get(list))
        .route("/schedules/{schedule}", get(one::page))
        .route("/schedules/{schedule}/trigger", post(change::trigger))
        .route("/schedules/{schedule}/pause", post(change::pause))
        .route("/schedules/{schedule}/resume", post(change::resume))
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct Page {
    frame: Frame,
    schedules: Vec<Row>,
    left_out: usize,
}

/// A schedule in the list.
struct Row {
    name: String,
    anchor: String,
    link: String,
    is_configured: bool,
    rule: String,
    words: String,
    zone: String,
    queue: String,
    queue_link: String,
    next: Option<Next>,
    last: Option<LastShown>,
    paused: Option<When>,
    missing: usize,
}

/// The next instant.
struct Next {
    when: When,
    local: String,
}

/// The newest run.
struct LastShown {
    when: When,
    what: String,
    tone: &'static str,
}

async fn list(view: View) -> Result<Response, PageFailure> {
    let (config, now) = (view.app().config(), view.now());
    let schedules = view.app().backstop().schedules();
    let mut rows = Vec::new();
    for schedule in config.schedules.values().take(SCHEDULES_SHOWN) {
        let status = view.ask(schedules.status(schedule)).await?;
        rows.push(configured(&view, schedule, &status, now));
    }
    let known = view.ask(schedules.known()).await?;
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
            .map(|(name, standing)| heard_of(&view, name, standing, now)),
    );
    view.show(&Page {
        frame: view.frame(Section::Schedules, "Schedules").live(),
        schedules: rows,
        left_out,
    })
}

fn configured(view: &View, schedule: &Schedule, status: &ScheduleStatus, now: Time) -> Row {
    let next = |at: Time| Next {
        when: When::new(at, now),
        local: local(at, schedule.timezone.as_str()),
    };
    Row {
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
        paused: When::maybe(status.paused, now),
        missing: status.missing,
    }
}

/// One that only the store has heard of: somebody else's, or taken out of the configuration.
fn heard_of(view: &View, name: &ScheduleName, standing: &Standing, now: Time) -> Row {
    Row {
        name: name.to_string(),
        anchor: anchor("schedule", name.as_str()),
        link: link(view, name),
        is_configured: false,
        rule: standing.rule().unwrap_or_default().to_owned(),
        words: String::new(),
        zone: String::new(),
        queue: String::new(),
        queue_link: String::new(),
        next: None,
        last: last(standing.last.as_ref(), now),
        paused: When::maybe(standing.paused, now),
        missing: 0,
    }
}

fn last(last: Option<&Last>, now: Time) -> Option<LastShown> {
    last.map(|last| LastShown {
        when: When::new(last.instant, now),
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

fn link(view: &View, name: &ScheduleName) -> String {
    view.at(&format!("/schedules/{}", part(name.as_str())))
}

/// The schedule of a path.
fn named(view: &View, schedule: &str) -> Result<ScheduleName, PageFailure> {
    ScheduleName::new(schedule).map_err(|error| view.bad(error))
}

/// When it is due, in plain words.
fn in_words(schedule: &Schedule) -> String {
    schedule.cron.words().trim_end_matches('.').to_owned()
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
    fn an_instant_is_told_on_the_clocks_of_its_zone() {
        let at = "2026-07-01T07:30:00Z".parse().unwrap();
        assert_eq!(local(at, "Europe/London"), "Wed 2026-07-01 08:30");
        assert_eq!(local(at, "UTC"), "Wed 2026-07-01 07:30");
        assert_eq!(local(at, "Nowhere/At all"), "2026-07-01T07:30:00Z");
    }
}
