//! Queues: how deep, how old, who serves them, and whether they give out their jobs.

mod detail;

use super::components::StateBar;
use super::link::{PageLink, anchor, part};
use super::{FlashMessage, PageFailure, PageFrame, PageSection, PageView, PostedForm, text};
use crate::App;
use crate::detached::run_detached;
use crate::history::History;
use crate::pages::chart::{ChartMarkup, ChartTone, ChartUnit, spark};
use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::breakers::BreakerInfo;
use backstop::why::LIVE_WITHIN;
use backstop::workers::WorkerInfo;
use backstop_core::port::{QueueState, QueueStatus, WorkerStatus};
use backstop_core::{JobState, QueueName, Time};

/// Rows of the list; a store with more queues than these is looked at by name.
const ROWS_MAX: usize = 500;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/queues", get(list).post(turn_all))
        .route("/queues/{queue}", get(detail::page))
        .route("/queues/{queue}/pause", post(pause))
        .route("/queues/{queue}/resume", post(resume))
}

#[derive(Template)]
#[template(path = "queues.html")]
struct QueueListPage {
    frame: PageFrame,
    rows: Vec<QueueRow>,
    left_out: usize,
    search: String,
    is_searched: bool,
    /// Whether any queue, found or not, gives its jobs out; and whether any does not.
    has_open: bool,
    has_paused: bool,
}

/// One queue of a list; the overview shows some of them too.
pub(super) struct QueueRow {
    pub(super) name: String,
    pub(super) anchor: String,
    pub(super) link: String,
    pub(super) jobs: Vec<QueueDepth>,
    pub(super) spread: StateBar,
    pub(super) is_paused: bool,
    pub(super) oldest: Option<String>,
    pub(super) is_old: bool,
    pub(super) workers: u64,
    pub(super) rate: String,
    pub(super) spark: ChartMarkup,
    pub(super) tags: Vec<QueueTag>,
}

/// How many jobs are in a state, and where they are listed.
pub(super) struct QueueDepth {
    pub(super) state: JobState,
    pub(super) count: String,
    pub(super) is_zero: bool,
    pub(super) link: String,
}

/// A word beside a name, with its tone.
pub(super) struct QueueTag {
    pub(super) word: String,
    pub(super) tone: &'static str,
}

/// The states a list of queues has a column for.
pub(super) const COLUMNS: [JobState; 5] = [
    JobState::Ready,
    JobState::Running,
    JobState::Scheduled,
    JobState::Retrying,
    JobState::Dead,
];

/// What a row is made from.
pub(super) struct QueueRowFacts<'a> {
    pub(super) base: &'a str,
    /// Those that are heard and take new jobs.
    pub(super) workers: &'a [WorkerStatus],
    pub(super) guards: &'a [BreakerInfo],
    pub(super) history: &'a History,
    pub(super) now: Time,
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let (store, now) = (view.store(), view.now());
    let queues = view.ask(store.queues(now)).await?;
    let workers = view.ask(view.app().backstop().workers(LIVE_WITHIN)).await?;
    let workers = taking_jobs(&workers, now);
    let guards = view.ask(view.app().backstop().breakers().list()).await?;
    let (base, history) = (view.app().base(), view.app().history());
    let facts = QueueRowFacts {
        base,
        workers: &workers,
        guards: &guards,
        history,
        now,
    };
    let search = view.query("search").unwrap_or_default().to_owned();
    let found = queues
        .iter()
        .filter(|queue| queue.name.as_str().contains(&search));
    let found: Vec<&QueueStatus> = found.collect();
    let page = QueueListPage {
        frame: view.frame(PageSection::Queues, "Queues").live(),
        left_out: found.len().saturating_sub(ROWS_MAX),
        rows: found
            .into_iter()
            .take(ROWS_MAX)
            .map(|queue| QueueRow::of(queue, &facts))
            .collect(),
        is_searched: !search.is_empty(),
        search,
        has_open: queues.iter().any(|queue| queue.state == QueueState::Active),
        has_paused: queues.iter().any(|queue| queue.state == QueueState::Paused),
    };
    view.show(&page)
}

impl QueueRow {
    pub(super) fn of(queue: &QueueStatus, facts: &QueueRowFacts<'_>) -> Self {
        let recent = facts.history.recent_queue(&queue.name, facts.now);
        let waits = queue
            .next_ready
            .filter(|at| *at < facts.now)
            .map(|at| facts.now.since(at));
        Self {
            link: format!("{}/queues/{}", facts.base, part(queue.name.as_str())),
            jobs: COLUMNS
                .into_iter()
                .map(|state| depth(queue, state, facts.base))
                .collect(),
            spread: StateBar::of(&queue.counts),
            is_paused: queue.state == QueueState::Paused,
            oldest: waits.map(text::span),
            is_old: waits.is_some_and(|waits| waits > super::overview::LATE),
            workers: serving(&queue.name, facts.workers),
            rate: recent
                .done
                .last()
                .map_or_else(|| "–".to_owned(), |rate| ChartUnit::PerSecond.format(rate)),
            spark: spark(
                &recent.done,
                ChartTone::Good,
                "jobs done a second, the last five minutes",
            ),
            tags: tags(queue, facts),
            anchor: anchor("queue", queue.name.as_str()),
            name: queue.name.to_string(),
        }
    }
}

/// Those that take new jobs.
pub(super) fn taking_jobs(workers: &[WorkerInfo], now: Time) -> Vec<WorkerStatus> {
    workers
        .iter()
        .filter(|worker| worker.takes_jobs(now))
        .map(|worker| worker.status.clone())
        .collect()
}

/// How many workers serve a queue.
pub(super) fn serving(queue: &QueueName, workers: &[WorkerStatus]) -> u64 {
    workers
        .iter()
        .filter(|worker| worker.queues.contains(queue))
        .count() as u64
}

fn depth(queue: &QueueStatus, state: JobState, base: &str) -> QueueDepth {
    let count = queue.counts.of(state);
    let link = match state {
        JobState::Dead => PageLink::to(format!("{base}/dead")).with("queue", &queue.name),
        _ => PageLink::to(format!("{base}/jobs"))
            .with("queue", &queue.name)
            .with("state", state),
    };
    QueueDepth {
        state,
        count: text::count(count),
        is_zero: count == 0,
        link: link.to_string(),
    }
}

/// What stands out about a queue.
pub(super) fn tags(queue: &QueueStatus, facts: &QueueRowFacts<'_>) -> Vec<QueueTag> {
    let tag = |word: &str, tone| QueueTag {
        word: word.to_owned(),
        tone,
    };
    let mut tags = Vec::new();
    if queue.state == QueueState::Paused {
        tags.push(tag("paused", "calm"));
    }
    let shut = facts
        .guards
        .iter()
        .filter(|guard| *guard.name.queue() == queue.name && guard.is_shut());
    for guard in shut {
        tags.push(match guard.name.kind() {
            None => tag(
                &format!("breaker {}", words(guard.status.state.as_str())),
                "bad",
            ),
            Some(kind) => tag(&format!("gate of {kind} shut"), "bad"),
        });
    }
    let live = queue.counts.live();
    match queue.bounds.max_size {
        Some(max) if live >= max => tags.push(tag("full", "warn")),
        Some(_) if queue.bounds.is_under_pressure(live) => tags.push(tag("nearly full", "warn")),
        _ => {}
    }
    if queue.counts.of(JobState::Dead) >= queue.bounds.dead_max {
        tags.push(tag("dead letters full", "bad"));
    }
    if live > 0 && serving(&queue.name, facts.workers) == 0 {
        tags.push(tag("nobody serves it", "warn"));
    }
    tags
}

/// A word of the store as people write it.
pub(super) fn words(word: &str) -> String {
    word.replace('_', "-")
}

/// The state of a breaker or a gate: a closed breaker lets jobs through, and so does an open gate.
pub(super) fn state_of(guard: &BreakerInfo) -> String {
    words(guard.word())
}

async fn pause(
    view: PageView,
    Path(queue): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let queue = named(&view, &queue)?;
    view.ask(view.changes(&posted)?.pause(&queue)).await?;
    let note =
        format!("Queue {queue} is paused: its jobs stay where they are until it is resumed.");
    Ok(back(&view, &queue, &posted, &FlashMessage::done(note)))
}

async fn resume(
    view: PageView,
    Path(queue): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let queue = named(&view, &queue)?;
    view.ask(view.changes(&posted)?.resume(&queue)).await?;
    Ok(back(
        &view,
        &queue,
        &posted,
        &FlashMessage::done(format!("Queue {queue} gives out its jobs again.")),
    ))
}

/// Pauses every queue that is open, or opens those that were paused so.
async fn turn_all(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    let changes = view.changes(&posted)?;
    let note = match posted.get("action") {
        Some("pause") => {
            let paused = view
                .ask(run_detached(async move { changes.pause_all().await }))
                .await?
                .len();
            format!(
                "{} paused: their jobs stay where they are until they are resumed.",
                queues_are(paused)
            )
        }
        Some("resume") => {
            match view.ask(run_detached(async move { changes.resume_all().await })).await?.len() {
                0 => "No queue was paused with all others: those that were paused by themselves stay so."
                    .to_owned(),
                opened => format!("{} giving out jobs again.", queues_are(opened)),
            }
        }
        _ => return Err(view.bad("say what to do with all queues: action=pause or action=resume")),
    };
    Ok(back_to_list(&view, &posted, &FlashMessage::done(note)))
}

fn queues_are(count: usize) -> String {
    match count {
        1 => "1 queue is".to_owned(),
        _ => format!("{} queues are", text::count(count as u64)),
    }
}

/// To where the button was: the queue, or the list with its search.
fn back(view: &PageView, queue: &QueueName, posted: &PostedForm, note: &FlashMessage) -> Response {
    match posted.get("back") {
        Some("list") => back_to_list(view, posted, note),
        _ => note.redirect(
            view.app().base(),
            &view.at(&format!("/queues/{}", part(queue.as_str()))),
        ),
    }
}

/// To the list, with its search.
fn back_to_list(view: &PageView, posted: &PostedForm, note: &FlashMessage) -> Response {
    let list = PageLink::to(view.at("/queues")).with_some("search", posted.get("search"));
    note.redirect(view.app().base(), &list.to_string())
}

/// The queue of a path.
pub(super) fn named(view: &PageView, queue: &str) -> Result<QueueName, PageFailure> {
    QueueName::new(queue).map_err(|error| view.bad(error))
}
