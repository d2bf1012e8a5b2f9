//! Jobs: found by queue, kind, state, id and what is in the payload; the filter lives in the
//! address.

mod act;
mod filter;
mod suggest;

use super::link::{Link, part};
use super::mark::{StateMark, When};
use super::pick::Pick;
use super::trail::{Pages, Trail};
use super::{Frame, PageFailure, Section, View, text};
use crate::App;
pub(super) use act::{Outcome, capital, handed_on, is_meant, see, start, told_count, unmeant};
use askama::Template;
use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use backstop_core::amend::Action;
use backstop_core::failure::truncated;
use backstop_core::limits::SEARCH_CHARS_MAX;
use backstop_core::port::Damaged;
use backstop_core::redact::Redaction;
use backstop_core::{Job, JobId, State, Time};
use filter::JobFilter;
use suggest::Suggested;

/// Jobs on a page.
const PAGE: usize = 50;
/// Characters of an error in a list.
const ERROR_MAX: usize = 160;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/jobs", get(list))
        .route("/jobs/confirm", get(act::confirm))
        .route("/jobs/act", post(act::act))
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct Page {
    frame: Frame,
    filter: Shown,
    chips: Vec<Chip>,
    states: Vec<StateChip>,
    suggested: Suggested,
    runs: String,
    rows: Vec<Row>,
    damaged: Vec<String>,
    pages: Pages,
    order: &'static str,
    confirm: String,
    matching: Option<String>,
    actions: Vec<&'static str>,
    kept: Vec<(String, String)>,
    text_max: usize,
}

/// The filter as the form shows it.
struct Shown {
    queue: String,
    kind: String,
    state: String,
    text: String,
    worker: String,
    is_empty: bool,
}

/// A part of the filter, and the list without it.
pub(super) struct Chip {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) without: String,
}

struct StateChip {
    word: String,
    count: String,
    link: String,
    is_on: bool,
}

/// One job of a list.
struct Row {
    id: String,
    pick: String,
    short: String,
    link: String,
    queue: String,
    queue_link: String,
    kind: String,
    kind_link: String,
    state: StateMark,
    attempt: String,
    time: Option<(&'static str, When)>,
    /// Who runs it; nothing if nobody does.
    worker: String,
    age: When,
    error: String,
}

async fn list(view: View) -> Result<Response, PageFailure> {
    if let Some(id) = view.query("id") {
        let queue = JobFilter::of(&view)?.queue;
        let found = Pick {
            queue,
            ..Pick::read(id)
        }
        .link(&view, "/jobs");
        return Ok(Redirect::to(&found.to_string()).into_response());
    }
    let filter = JobFilter::of(&view)?;
    let now = view.now();
    let queues = view.ask(view.store().queues(now)).await?;
    let cursor = view.query("after").map(str::to_owned);
    let config = view.app().config();
    let (search, redaction) = (filter.search(), &config.redaction);
    let page = view
        .ask(
            view.app()
                .backstop()
                .search(&search, redaction, cursor, PAGE),
        )
        .await?;
    let link = filter.link(&view);
    let frame = frame(&view, &filter);
    let suggested = if frame.is_fragment {
        Suggested::default()
    } else {
        view.ask(Suggested::of(&view, &queues, &page.jobs)).await?
    };
    let shown = Page {
        runs: super::runs::word(&view).await?,
        suggested,
        frame,
        filter: filter.shown(),
        chips: filter.chips(&link),
        states: state_chips(&view, &filter, &queues),
        rows: page
            .jobs
            .iter()
            .map(|job| Row::of(job, &view, &config.redaction, now))
            .collect(),
        damaged: page.damaged.iter().map(told).collect(),
        pages: Trail::of(&view, "after")
            .pages(&link, page.next)
            .called(if filter.text.is_some() {
                "Go on looking"
            } else {
                "Next page"
            })
            .ordered(order(filter.state())),
        order: order(filter.state()),
        confirm: view.at("/jobs/confirm"),
        matching: filter.count(&queues).map(|count| count.to_string()),
        actions: actions(filter.state()),
        kept: link.pairs().to_vec(),
        text_max: SEARCH_CHARS_MAX,
    };
    view.show(&shown)
}

/// Not live where payloads are looked into: that costs more than somebody who only left the page
/// open should.
fn frame(view: &View, filter: &JobFilter) -> Frame {
    let frame = view.frame(Section::Jobs, "Jobs");
    if filter.text.is_some() {
        frame
    } else {
        frame.live()
    }
}

/// The states with their counts, where those are known without counting: in a queue, or over all.
fn state_chips(
    view: &View,
    filter: &JobFilter,
    queues: &[backstop_core::port::QueueStatus],
) -> Vec<StateChip> {
    let all = StateChip {
        word: "all".to_owned(),
        count: String::new(),
        link: filter
            .link(view)
            .without("state")
            .without("worker")
            .to_string(),
        is_on: filter.state().is_none(),
    };
    let of = |state: State| {
        // Whoever looks at a worker's jobs looks at running ones.
        let worker = filter.worker.clone().filter(|_| state == State::Running);
        let in_state = JobFilter {
            state: Some(state),
            worker,
            ..filter.clone()
        };
        let count = in_state
            .count(queues)
            .filter(|count| count.exact().is_some());
        StateChip {
            word: state.to_string(),
            count: count.map(|count| count.to_string()).unwrap_or_default(),
            link: in_state.link(view).to_string(),
            is_on: filter.state() == Some(state),
        }
    };
    std::iter::once(all)
        .chain(State::ALL.into_iter().map(of))
        .collect()
}

/// In which order a list comes.
const fn order(state: Option<State>) -> &'static str {
    match state {
        Some(State::Scheduled | State::Retrying) => "those due next first",
        Some(State::Ready) => "in the order in which they run",
        Some(State::Done | State::Dead | State::Cancelled) => "those that ended last first",
        Some(State::Running) | None => "the newest first",
    }
}

/// What can be done to jobs in a state; to mixed ones everything.
pub(super) fn actions(state: Option<State>) -> Vec<&'static str> {
    let applies = |action: &Action| {
        let permitted = |state| backstop_core::amend::permitted(action, state).is_ok();
        state.map_or_else(|| State::ALL.into_iter().any(permitted), permitted)
    };
    [
        ("retry", Action::Retry),
        ("cancel", Action::Cancel),
        ("delete", Action::Delete),
    ]
    .into_iter()
    .filter(|(_, action)| applies(action))
    .map(|(word, _)| word)
    .collect()
}

impl Row {
    fn of(job: &Job, view: &View, redaction: &Redaction, now: Time) -> Self {
        let (jobs, pick) = (Link::to(view.at("/jobs")), Pick::new(job.id, &job.queue));
        Self {
            id: job.id.to_string(),
            pick: pick.to_string(),
            short: short(job.id),
            link: pick.link(view, "/jobs").to_string(),
            queue: job.queue.to_string(),
            queue_link: view.at(&format!("/queues/{}", part(job.queue.as_str()))),
            kind_link: jobs
                .with("queue", &job.queue)
                .with("kind", &job.kind)
                .to_string(),
            kind: text::kind(&job.kind),
            state: StateMark(job.state),
            attempt: text::count(job.attempt.into()),
            time: time(job, now),
            worker: job
                .held_by
                .as_ref()
                .map(|claimant| claimant.worker.to_string())
                .unwrap_or_default(),
            age: When::new(job.inserted_at, now),
            error: last_error(job, redaction),
        }
    }
}

/// What went wrong last; nothing of a job that is done, whatever an earlier run of it met.
fn last_error(job: &Job, redaction: &Redaction) -> String {
    match job.state {
        State::Done => String::new(),
        _ => truncated(redaction.text(&job.history.last_error()), ERROR_MAX),
    }
}

/// The instant that matters in its state.
fn time(job: &Job, now: Time) -> Option<(&'static str, When)> {
    let when = |at| When::new(at, now);
    match job.state {
        State::Scheduled | State::Retrying => Some(("due", when(job.run_at))),
        State::Ready => Some(("ready since", when(job.run_at))),
        State::Running => {
            let claimant = job.held_by.as_ref()?;
            Some(if claimant.until < now {
                ("lease over", when(claimant.until))
            } else {
                ("started", when(claimant.since))
            })
        }
        State::Done | State::Dead | State::Cancelled => {
            job.finished_at.map(|at| ("ended", when(at)))
        }
    }
}

/// An id by its two ends: the first tells the time, the last tells it from others.
pub(super) fn short(id: JobId) -> String {
    let id = id.to_string();
    format!("{}…{}", &id[..8], &id[id.len() - 6..])
}

/// A job that cannot be read, in words.
pub(super) fn told(damaged: &Damaged) -> String {
    let id = damaged
        .id
        .map_or_else(|| "one without an id".to_owned(), |id| id.to_string());
    format!("{id}: {}", damaged.why)
}
