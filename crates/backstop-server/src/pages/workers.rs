//! Workers: who they are, what they do, and what they can be asked for.

use super::components::RelativeTime;
use super::link::{PageLink, anchor, part};
use super::pagination::{PaginationLinks, PaginationState};
use super::{FlashMessage, PageFailure, PageFrame, PageSection, PageView, PostedForm, text};
use crate::App;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use backstop::workers::{LISTED, NOT_LISTENING, WorkerDescription, WorkerHealth, WorkerInfo};
use backstop_core::port::WorkerStatus;
use backstop_core::worker_command::{
    CommandOutcome, DesiredWorkerState, WorkerCommand, WorkerState,
};
use backstop_core::{QueueName, Time, WorkerName};

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
struct WorkerListPage {
    frame: PageFrame,
    rows: Vec<WorkerRow>,
    pages: PaginationLinks,
    live: u64,
    silent: u64,
    resting: u64,
    running: u64,
}

struct WorkerRow {
    anchor: String,
    name: String,
    /// As it is to be sent back.
    exact: String,
    process: String,
    queues: Vec<(String, String)>,
    more_queues: usize,
    kinds: Vec<(String, String)>,
    seen: RelativeTime,
    /// How long it runs, and since when exactly.
    started: Option<(String, String)>,
    places: String,
    running: u64,
    running_link: String,
    memory: String,
    health: WorkerHealth,
    command: Option<(String, RelativeTime)>,
    acts: WorkerButtons,
}

/// Which buttons a row has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WorkerButtons {
    quiet: bool,
    resume: bool,
    stop: bool,
}

impl WorkerButtons {
    fn of(worker: &WorkerInfo, health: WorkerHealth) -> Self {
        let has_command = worker.active_command.is_some();
        let is_ending = worker.state == WorkerState::Stopping;
        Self {
            quiet: health.is_there() && !has_command && !is_ending,
            resume: has_command && !is_ending && health.is_there(),
            stop: health.is_there() && !matches!(health, WorkerHealth::Stopping),
        }
    }
}

const fn tone(health: WorkerHealth) -> &'static str {
    match health {
        WorkerHealth::Silent => "bad",
        WorkerHealth::Stopping | WorkerHealth::Quiet => "warn",
        WorkerHealth::Live => "good",
        WorkerHealth::Stopped => "calm",
    }
}

async fn list(view: PageView) -> Result<Response, PageFailure> {
    let mut workers = view.ask(view.app().backstop().workers(LISTED)).await?;
    let now = view.now();
    workers.retain(|worker| !worker.serves_nothing(now));
    let count = |which: fn(WorkerHealth) -> bool| {
        workers
            .iter()
            .filter(|worker| which(worker.health(now)))
            .count() as u64
    };
    let (live, silent) = (
        count(|health| health == WorkerHealth::Live),
        count(|health| health == WorkerHealth::Silent),
    );
    let resting = count(WorkerHealth::takes_nothing);
    let mut sorted: Vec<(WorkerHealth, &WorkerInfo)> = workers
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
    let pages = PaginationState::of(&view, "after").pages(&PageLink::to(view.at("/workers")), next);
    let shown = sorted.into_iter().skip(begin).take(ROWS_MAX);
    let rows = shown
        .map(|(health, worker)| WorkerRow::of(&view, worker, health, now))
        .collect();
    let running = workers.iter().map(|worker| worker.status.running).sum();
    let frame = view.frame(PageSection::Workers, "Workers").live();
    view.show(&WorkerListPage {
        frame,
        rows,
        pages,
        live,
        silent,
        resting,
        running,
    })
}

impl WorkerRow {
    fn of(view: &PageView, worker: &WorkerInfo, health: WorkerHealth, now: Time) -> Self {
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
            seen: RelativeTime::new(status.seen_at, now),
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
            command: worker
                .active_command
                .as_ref()
                .map(|order| (describe_command(order), RelativeTime::new(order.at, now))),
            acts: WorkerButtons::of(worker, health),
        }
    }

    fn tone(&self) -> &'static str {
        tone(self.health)
    }
}

fn describe_command(order: &backstop_core::worker_command::ActiveCommand) -> String {
    let what = match order.desired_state {
        DesiredWorkerState::Quiet => "be quiet",
        DesiredWorkerState::Stop => "stop",
    };
    format!("asked to {what} by {}", text::name(&order.by))
}

/// Host, process and version, as far as they are told.
fn process(about: &WorkerDescription) -> String {
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

fn running_link(view: &PageView, status: &WorkerStatus) -> String {
    PageLink::to(view.at("/jobs"))
        .with("state", "running")
        .with("worker", status.name.as_str())
        .to_string()
}

async fn quiet(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    order(
        &view,
        &posted,
        WorkerCommand::Quiet,
        "takes no new jobs within seconds; what it runs may end.",
    )
    .await
}

async fn resume(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    order(
        &view,
        &posted,
        WorkerCommand::Resume,
        "goes on within seconds, unless it has begun to stop.",
    )
    .await
}

async fn stop(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    order(
        &view,
        &posted,
        WorkerCommand::Stop,
        "ends what it runs, within its grace, and then itself.",
    )
    .await
}

async fn order(
    view: &PageView,
    posted: &PostedForm,
    order: WorkerCommand,
    then: &str,
) -> Result<Response, PageFailure> {
    let name = posted
        .get_exact("name")
        .ok_or_else(|| view.bad("Which worker?"))?;
    let worker = WorkerName::new(name);
    let reply = view
        .ask(view.changes(posted)?.command_worker(&worker, order))
        .await?;
    let then = match reply {
        Some(reply) if !reply.listens => {
            &format!("{then} Unless it does not hear: {NOT_LISTENING}.")
        }
        _ => then,
    };
    let note = match reply.map(|reply| reply.outcome) {
        Some(CommandOutcome::Given) => FlashMessage::done(format!("{worker} {then}")),
        Some(CommandOutcome::Same) => {
            FlashMessage::done(format!("Nothing changed: {worker} {then}"))
        }
        Some(CommandOutcome::TooLate) => FlashMessage::refused(format!(
            "{worker} has begun to stop and does not go back to work. Start another one."
        )),
        None => FlashMessage::refused(format!(
            "There is no worker {worker} to be asked: it has not been heard of lately."
        )),
    };
    Ok(note.redirect(view.app().base(), &view.at("/workers")))
}
