//! One queue: everything that decides how fast it goes.

use super::{QueueDepth, QueueRow, QueueRowFacts, depth, named, state_of, taking_jobs};
use crate::history::{DurationSeries, HistorySubject, QueueSample, TimeWindow};
use crate::pages::chart::ChartMarkup;
use crate::pages::components::RelativeTime;
use crate::pages::link::{PageLink, anchor};
use crate::pages::overview::{charts, windows};
use crate::pages::{PageFailure, PageFrame, PageSection, PageView, text};
use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use backstop::breakers::BreakerInfo;
use backstop::config::HandlerConfig;
use backstop::rate_limits::RateStatus;
use backstop::why::LIVE_WITHIN;
use backstop::workers::WorkerInfo;
use backstop_core::port::{QueueStatus, WorkerStatus};
use backstop_core::{JobState, QueueName, Time};

#[derive(Template)]
#[template(path = "queue.html")]
struct QueuePage {
    frame: PageFrame,
    queue: QueueRow,
    states: Vec<QueueDepth>,
    totals: Vec<(&'static str, String)>,
    bounds: QueueBoundsView,
    rate: Option<RateLimitView>,
    guards: Vec<QueueBreakerRow>,
    settings: Option<QueueSettingsView>,
    workers: Vec<QueueWorkerRow>,
    dead: String,
    jobs: String,
    guards_link: String,
    windows: Vec<(&'static str, String, bool)>,
    charts: Vec<ChartMarkup>,
}

struct QueueBoundsView {
    live: u64,
    live_text: String,
    max: Option<(u64, String)>,
    overflow: &'static str,
    is_under_pressure: bool,
    dead: u64,
    dead_text: String,
    dead_max: u64,
    dead_max_text: String,
}

struct RateLimitView {
    limit: String,
    room: Option<RelativeTime>,
    refused: Option<RelativeTime>,
}

/// A breaker or gate before it.
struct QueueBreakerRow {
    what: String,
    state: String,
    is_shut: bool,
    since: Option<RelativeTime>,
    why: String,
}

struct QueueSettingsView {
    handler: String,
    concurrency: usize,
    retry: String,
    lease: String,
    timeout: String,
}

/// A worker that serves it.
struct QueueWorkerRow {
    name: String,
    seen: RelativeTime,
    running: u64,
}

pub(super) async fn page(
    view: PageView,
    Path(queue): Path<String>,
) -> Result<Response, PageFailure> {
    let name = named(&view, &queue)?;
    let (store, now, backstop) = (view.store(), view.now(), view.app().backstop());
    let queues = view.ask(store.queues(now)).await?;
    let Some(queue) = queues.iter().find(|queue| queue.name == name) else {
        return Err(view.missing(format!(
            "There is no queue {name} yet: it comes into being with its first job."
        )));
    };
    let workers = view.ask(backstop.workers(LIVE_WITHIN)).await?;
    let taking = taking_jobs(&workers, now);
    let guards = view.ask(backstop.breakers().list()).await?;
    let rate = view.ask(backstop.rate_of(&name)).await?;
    let window: TimeWindow = view
        .query("window")
        .map_or(Ok(TimeWindow::FiveMinutes), str::parse)
        .map_err(|error| view.bad(error))?;
    let subject = HistorySubject::Queue(name.clone());
    let series = view
        .ask(view.app().history().queue(backstop, &subject, window))
        .await?;
    let of_queue = backstop::run_times::RunTimeSubject::Queue(name.clone());
    let durations = view
        .ask(DurationSeries::read(backstop, &of_queue, window))
        .await?;
    let (base, history) = (view.app().base(), view.app().history());
    let facts = QueueRowFacts {
        base,
        workers: &taking,
        guards: &guards,
        history,
        now,
    };
    let page = QueuePage {
        frame: view.frame(PageSection::Queues, name.to_string()).live(),
        queue: QueueRow::of(queue, &facts),
        states: JobState::ALL
            .into_iter()
            .map(|state| depth(queue, state, facts.base))
            .collect(),
        totals: totals(queue),
        bounds: bounds(queue),
        rate: rate.map(|rate| rate_limit_view(&rate, now)),
        guards: guards
            .iter()
            .filter(|guard| *guard.name.queue() == name)
            .map(|guard| breaker_row(guard, now))
            .collect(),
        settings: settings(&view, &name),
        workers: serving(&workers, &name, now),
        dead: PageLink::to(view.at("/dead"))
            .with("queue", &name)
            .to_string(),
        jobs: PageLink::to(view.at("/jobs"))
            .with("queue", &name)
            .to_string(),
        windows: windows(&view.at(&format!("/queues/{name}")), window),
        charts: charts(
            &series.ending_with(QueueSample::new(queue, now), now),
            &durations,
        ),
        guards_link: view.at(&format!("/breakers#{}", anchor("guard", name.as_str()))),
    };
    view.show(&page)
}

fn totals(queue: &QueueStatus) -> Vec<(&'static str, String)> {
    let totals = queue.totals;
    vec![
        ("taken in", text::count(totals.enqueued)),
        ("done", text::count(totals.done)),
        ("died", text::count(totals.dead)),
        ("cancelled", text::count(totals.cancelled)),
    ]
}

fn bounds(queue: &QueueStatus) -> QueueBoundsView {
    let (live, dead) = (queue.counts.live(), queue.counts.of(JobState::Dead));
    QueueBoundsView {
        live,
        live_text: text::count(live),
        max: queue.bounds.max_size.map(|max| (max, text::count(max))),
        overflow: match queue.bounds.overflow {
            backstop_core::bounds::Overflow::Reject => "new jobs are refused",
            backstop_core::bounds::Overflow::DeadLetterOldest => {
                "the oldest ready job becomes a dead letter"
            }
            backstop_core::bounds::Overflow::DropOldest => "the oldest ready job is cancelled",
        },
        is_under_pressure: queue.bounds.is_under_pressure(live),
        dead,
        dead_text: text::count(dead),
        dead_max: queue.bounds.dead_max,
        dead_max_text: text::count(queue.bounds.dead_max),
    }
}

fn rate_limit_view(rate: &RateStatus, now: Time) -> RateLimitView {
    RateLimitView {
        limit: format!(
            "{} in {}",
            text::many(rate.limit.count.into(), "job", "jobs"),
            text::span(rate.limit.per)
        ),
        room: (rate.room_at > now).then(|| RelativeTime::new(rate.room_at, now)),
        refused: RelativeTime::maybe(rate.refused_at, now),
    }
}

fn breaker_row(guard: &BreakerInfo, now: Time) -> QueueBreakerRow {
    QueueBreakerRow {
        what: guard.name.kind().map_or_else(
            || "breaker".to_owned(),
            |kind| format!("gate of kind {kind}"),
        ),
        state: state_of(guard),
        is_shut: guard.is_shut(),
        since: RelativeTime::maybe(guard.status.opened_at, now),
        why: guard
            .status
            .events
            .last()
            .map(|event| event.why.clone())
            .unwrap_or_default(),
    }
}

fn settings(view: &PageView, name: &QueueName) -> Option<QueueSettingsView> {
    let config = view.app().config();
    let entry = config.queues.get(name)?;
    let handler = match &entry.handler {
        Some(HandlerConfig::Exec(_)) => "a command, run by this server",
        Some(HandlerConfig::Http(_)) => "a web service, called by this server",
        None => "none here: workers claim its jobs",
    };
    Some(QueueSettingsView {
        handler: handler.to_owned(),
        concurrency: entry.settings.concurrency,
        retry: String::from_utf8_lossy(&entry.settings.retry.to_json()).into_owned(),
        lease: text::span(entry.settings.lease),
        timeout: entry
            .settings
            .timeout
            .map_or_else(|| "none".to_owned(), text::span),
    })
}

fn serving(workers: &[WorkerInfo], name: &QueueName, now: Time) -> Vec<QueueWorkerRow> {
    let serving = workers
        .iter()
        .map(|worker| &worker.status)
        .filter(|worker| worker.queues.contains(name));
    let worker_row = |worker: &WorkerStatus| QueueWorkerRow {
        name: worker.name.to_string(),
        seen: RelativeTime::new(worker.seen_at, now),
        running: worker.running,
    };
    serving.map(worker_row).collect()
}
