//! Jobs: found by queue, kind, state, id and what is in the payload; the filter lives in the
//! address.

mod act;
mod filter;
mod suggest;

use super::components::{RelativeTime, StateBadge};
use super::job_ref::JobRef;
use super::link::{PageLink, part};
use super::pagination::{PaginationLinks, PaginationState};
use super::{PageFailure, PageFrame, PageSection, PageView, text};
use crate::App;
pub(super) use act::{
    JobActionOutcome, back_to_confirm, capital, confirm_fields, describe_count, is_confirmed,
    redirect_to, start,
};
use askama::Template;
use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use backstop_core::amend::AmendAction;
use backstop_core::failure::truncate_text;
use backstop_core::limits::SEARCH_CHARS_MAX;
use backstop_core::port::DamagedJob;
use backstop_core::redact::Redaction;
use backstop_core::{Job, JobId, JobState, Time};
use filter::JobFilter;
use suggest::FilterSuggestions;

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
struct JobListPage {
    frame: PageFrame,
    filter: JobFilterForm,
    chips: Vec<FilterChip>,
    states: Vec<StateChip>,
    suggested: FilterSuggestions,
    runs: String,
    rows: Vec<JobListRow>,
    damaged: Vec<String>,
    pages: PaginationLinks,
    order: &'static str,
    confirm: String,
    matching: Option<String>,
    actions: Vec<&'static str>,
    kept: Vec<(String, String)>,
    text_max: usize,
}

/// The filter as the form shows it.
struct JobFilterForm {
    queue: String,
    kind: String,
    state: String,
    text: String,
    worker: String,
    is_empty: bool,
}

/// A part of the filter, and the list without it.
pub(super) struct FilterChip {
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
struct JobListRow {
    id: String,
    pick: String,
    short: String,
    link: String,
    queue: String,
    queue_link: String,
    kind: String,
    kind_link: String,
    state: StateBadge,
    attempt: String,
    time: Option<(&'static str, RelativeTime)>,
    /// Who runs it; nothing if nobody does.
    worker: String,
    age: RelativeTime,
    error: String,
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    if let Some(id) = view.query("id") {
        let queue = JobFilter::of(&view)?.queue;
        let found = JobRef {
            queue,
            ..JobRef::read(id)
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
        FilterSuggestions::default()
    } else {
        view.ask(FilterSuggestions::of(&view, &queues, &page.jobs))
            .await?
    };
    let shown = JobListPage {
        runs: super::runs::link_label(&view).await?,
        suggested,
        frame,
        filter: filter.to_form(),
        chips: filter.chips(&link),
        states: state_chips(&view, &filter, &queues),
        rows: page
            .jobs
            .iter()
            .map(|job| JobListRow::of(job, &view, &config.redaction, now))
            .collect(),
        damaged: page.damaged.iter().map(describe_damaged).collect(),
        pages: PaginationState::of(&view, "after")
            .pages(&link, page.next)
            .with_next_label(if filter.text.is_some() {
                "Go on looking"
            } else {
                "Next page"
            })
            .with_order(order(filter.state())),
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
fn frame(view: &PageView, filter: &JobFilter) -> PageFrame {
    let frame = view.frame(PageSection::Jobs, "Jobs");
    if filter.text.is_some() {
        frame
    } else {
        frame.live()
    }
}

/// The states with their counts, where those are known without counting: in a queue, or over all.
fn state_chips(
    view: &PageView,
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
    let of = |state: JobState| {
        // Whoever looks at a worker's jobs looks at running ones.
        let worker = filter.worker.clone().filter(|_| state == JobState::Running);
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
        .chain(JobState::ALL.into_iter().map(of))
        .collect()
}

/// In which order a list comes.
const fn order(state: Option<JobState>) -> &'static str {
    match state {
        Some(JobState::Scheduled | JobState::Retrying) => "those due next first",
        Some(JobState::Ready) => "in the order in which they run",
        Some(JobState::Done | JobState::Dead | JobState::Cancelled) => {
            "those that ended last first"
        }
        Some(JobState::Running) | None => "the newest first",
    }
}

/// What can be done to jobs in a state; to mixed ones everything.
pub(super) fn actions(state: Option<JobState>) -> Vec<&'static str> {
    let applies = |action: &AmendAction| {
        let permitted = |state| backstop_core::amend::check_permitted(action, state).is_ok();
        state.map_or_else(|| JobState::ALL.into_iter().any(permitted), permitted)
    };
    [
        ("retry", AmendAction::Retry),
        ("cancel", AmendAction::Cancel),
        ("delete", AmendAction::Delete),
    ]
    .into_iter()
    .filter(|(_, action)| applies(action))
    .map(|(word, _)| word)
    .collect()
}

impl JobListRow {
    fn of(job: &Job, view: &PageView, redaction: &Redaction, now: Time) -> Self {
        let (jobs, pick) = (
            PageLink::to(view.at("/jobs")),
            JobRef::new(job.id, &job.queue),
        );
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
            state: StateBadge(job.state),
            attempt: text::count(job.attempt.into()),
            time: time(job, now),
            worker: job
                .held_by
                .as_ref()
                .map(|claimant| claimant.worker.to_string())
                .unwrap_or_default(),
            age: RelativeTime::new(job.inserted_at, now),
            error: last_error(job, redaction),
        }
    }
}

/// What went wrong last; nothing of a job that is done, whatever an earlier run of it met.
fn last_error(job: &Job, redaction: &Redaction) -> String {
    match job.state {
        JobState::Done => String::new(),
        _ => truncate_text(redaction.text(&job.history.last_error()), ERROR_MAX),
    }
}

/// The instant that matters in its state.
fn time(job: &Job, now: Time) -> Option<(&'static str, RelativeTime)> {
    let when = |at| RelativeTime::new(at, now);
    match job.state {
        JobState::Scheduled | JobState::Retrying => Some(("due", when(job.run_at))),
        JobState::Ready => Some(("ready since", when(job.run_at))),
        JobState::Running => {
            let claimant = job.held_by.as_ref()?;
            Some(if claimant.until < now {
                ("lease over", when(claimant.until))
            } else {
                ("started", when(claimant.since))
            })
        }
        JobState::Done | JobState::Dead | JobState::Cancelled => {
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
pub(super) fn describe_damaged(damaged: &DamagedJob) -> String {
    let id = damaged
        .id
        .map_or_else(|| "one without an id".to_owned(), |id| id.to_string());
    format!("{id}: {}", damaged.why)
}
