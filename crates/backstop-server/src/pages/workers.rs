//! Workers: who they are, what they do, and what they can be asked for.

use super::link::{Link, anchor, part};
use super::mark::When;
use super::trail::{Pages, Trail};
use super::{Frame, Note, PageFailure, Posted, Section, View, text};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::workers::{About, Health, LISTED, UNHEARD, WorkerInfo};
use backstop_core::order::{Asked, Duty, Order, Ordered};
use backstop_core::port::WorkerStatus;
use backstop_core::{QueueName, Time, WorkerName};

/// Rows of a page.
const ROWS_MAX: usize = 200;
/// Queues named in a row.
const QUEUES_MAX: usize = 20;
/// Kinds named in a row.
const KINDS_MAX: usize = 50;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/workers", get(list))
        .route("/workers/quiet", post(quiet))
        .route("/workers/resume", post(resume))
        .route("/workers/stop", post(stop))
}

#[derive(Template)]
#[template(path = "workers.html")]
struct Page {
    frame: Frame,
    rows: Vec<Row>,
    pages: Pages,
    live: u64,
    silent: u64,
    resting: u64,
    running: u64,
}

struct Row {
    anchor: String,
    name: String,
    /// As it is to be sent back.
    exact: String,
    process: String,
    queues: Vec<(String, String)>,
    more_queues: usize,
    kinds: Vec<(String, String)>,
    seen: When,
    /// How long it runs, and since when exactly.
    started: Option<(String, String)>,
    places: String,
    running: u64,
    running_link: String,
    memory: String,
    health: Health,
    asked: Option<(String, When)>,
    acts: Acts,
}

/// Which buttons a row has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Acts {
    quiet: bool,
    resume: bool,
    stop: bool,
}

impl Acts {
    fn of(worker: &WorkerInfo, health: Health) -> Self {
        let is_asked = worker.asked.is_some();
        let is_ending = worker.duty == Duty::Stopping;
        Self {
            quiet: health.is_there() && !is_asked && !is_ending,
            resume: is_asked && !is_ending && health.is_there(),
            stop: health.is_there() && !matches!(health, Health::Stopping),
        }
    }
}

const fn tone(health: Health) -> &'static str {
    match health {
        Health::Silent => "bad",
        Health::Stopping | Health::Quiet => "warn",
        Health::Live => "good",
        Health::Stopped => "calm",
    }
}

async fn list(view: View) -> Result<Response, PageFailure> {
    let mut workers = view.ask(view.app().backstop().workers(LISTED)).await?;
    let now = view.now();
    workers.retain(|worker| !worker.serves_nothing(now));
    let count = |which: fn(Health) -> bool| {
        workers
            .iter()
            .filter(|worker| which(worker.health(now)))
            .count() as u64
    };
    let (live, silent) = (
        count(|health| health == Health::Live),
        count(|health| health == Health::Silent),
    );
    let resting = count(Health::takes_nothing);
    let mut sorted: Vec<(Health, &WorkerInfo)> = workers
        .iter()
        .map(|worker| (worker.health(now), worker))
        .collect();
    sorted.sort_by(|one, other| (one.0, &one.1.status.name).cmp(&(other.0, &other.1.status.name)));
    // The order changes with the workers: a page begins at a number, not behind a name.
    let begin = view
        .query("after")
        .and_then(|number| number.parse().ok())
        .unwrap_or(0_usize);
    let end = begin.saturating_add(ROWS_MAX);
    let next = (sorted.len() > end).then(|| end.to_string());
    let pages = Trail::of(&view, "after").pages(&Link::to(view.at("/workers")), next);
    let shown = sorted.into_iter().skip(begin).take(ROWS_MAX);
    let rows = shown
        .map(|(health, worker)| Row::of(&view, worker, health, now))
        .collect();
    let running = workers.iter().map(|worker| worker.status.running).sum();
    let frame = view.frame(Section::Workers, "Workers").live();
    view.show(&Page {
        frame,
        rows,
        pages,
        live,
        silent,
        resting,
        running,
    })
}

impl Row {
    fn of(view: &View, worker: &WorkerInfo, health: Health, now: Time) -> Self {
        let (status, about) = (&worker.status, &worker.about);
        // What has stopped runs for no time, and in no place.
        let since = about.since.filter(|_| health.is_there());
        let places = about
            .places
            .filter(|places| *places > 0 && health.is_there());
        let queue = |name: &QueueName| {
            (
                name.to_string(),
                view.at(&format!("/queues/{}", part(name.as_str()))),
            )
        };
        Self {
            anchor: anchor("worker", status.name.as_str()),
            name: text::name(status.name.as_str()),
            exact: status.name.to_string(),
            process: process(about),
            queues: status.queues.iter().take(QUEUES_MAX).map(queue).collect(),
            more_queues: status.queues.len().saturating_sub(QUEUES_MAX),
            kinds: worker
                .kinds
                .iter()
                .take(QUEUES_MAX)
                .map(|(queue, kinds)| (queue.to_string(), named(kinds)))
                .collect(),
            seen: When::new(status.seen_at, now),
            started: since.map(|since| (text::span(now.since(since)), text::second(since))),
            places: places.map_or_else(String::new, |places| {
                format!(
                    "{} of {}",
                    text::count(worker.taken),
                    text::count(places.into())
                )
            }),
            running: status.running,
            running_link: running_link(view, status),
            memory: about.memory.map(text::bytes).unwrap_or_default(),
            health,
            asked: worker
                .asked
                .as_ref()
                .map(|order| (asked_by(order), When::new(order.at, now))),
            acts: Acts::of(worker, health),
        }
    }

    fn tone(&self) -> &'static str {
        tone(self.health)
    }
}

fn asked_by(order: &backstop_core::order::Standing) -> String {
    let what = match order.asked {
        Asked::Quiet => "be quiet",
        Asked::Stop => "stop",
    };
    format!("asked to {what} by {}", text::name(&order.by))
}

/// Host, process and version, as far as they are told.
fn process(about: &About) -> String {
    let parts = [
        about.host.as_deref().map(text::name),
        about.pid.map(|pid| format!("pid {pid}")),
        about
            .version
            .as_deref()
            .map(|version| format!("version {}", text::name(version))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn named(kinds: &std::collections::BTreeSet<backstop_core::Kind>) -> String {
    let shown: Vec<String> = kinds
        .iter()
        .take(KINDS_MAX)
        .map(ToString::to_string)
        .collect();
    let more = kinds.len().saturating_sub(shown.len());
    let shown = shown.join(", ");
    if more > 0 {
        format!("{shown} and {more} more")
    } else {
        shown
    }
}

/// The jobs in hand.
fn running_link(view: &View, status: &WorkerStatus) -> String {
    Link::to(view.at("/jobs"))
        .with("state", "running")
        .with("worker", status.name.as_str())
        .to_string()
}

async fn quiet(view: View, posted: Posted) -> Result<Response, PageFailure> {
    order(
        &view,
        &posted,
        Order::Quiet,
        "takes no new jobs within seconds; what it runs may end.",
    )
    .await
}

async fn resume(view: View, posted: Posted) -> Result<Response, PageFailure> {
    order(
        &view,
        &posted,
        Order::Resume,
        "goes on within seconds, unless it has begun to stop.",
    )
    .await
}

async fn stop(view: View, posted: Posted) -> Result<Response, PageFailure> {
    order(
        &view,
        &posted,
        Order::Stop,
        "ends what it runs, within its grace, and then itself.",
    )
    .await
}

async fn order(
    view: &View,
    posted: &Posted,
    order: Order,
    then: &str,
) -> Result<Response, PageFailure> {
    let name = posted
        .get_exact("name")
        .ok_or_else(|| view.bad("Which worker?"))?;
    let worker = WorkerName::new(name);
    let given = view
        .ask(view.changes(posted)?.order(&worker, order))
        .await?;
    let then = match given {
        Some(given) if !given.listens => &format!("{then} Unless it does not hear: {UNHEARD}."),
        _ => then,
    };
    let note = match given.map(|given| given.ordered) {
        Some(Ordered::Given) => Note::done(format!("{worker} {then}")),
        Some(Ordered::Same) => Note::done(format!("Nothing changed: {worker} {then}")),
        Some(Ordered::TooLate) => Note::refused(format!(
            "{worker} has begun to stop and does not go back to work. Start another one."
        )),
        None => Note::refused(format!(
            "There is no worker {worker} to be asked: it has not been heard of lately."
        )),
    };
    Ok(note.on(view.app().base(), &view.at("/workers")))
}
