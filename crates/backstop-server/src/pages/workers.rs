//! Workers as their beats show them.

use super::link::part;
use super::mark::When;
use super::{Frame, PageFailure, Section, View};
use crate::App;
use crate::wire::worker::LISTED;
use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use backstop::why::LIVE_WITHIN;
use backstop_core::Time;
use backstop_core::port::WorkerStatus;

/// Rows of the list.
const ROWS_MAX: usize = 500;
/// Queues named in a row.
const QUEUES_MAX: usize = 20;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/workers", get(list))
}

#[derive(Template)]
#[template(path = "workers.html")]
struct Page {
    frame: Frame,
    rows: Vec<Row>,
    left_out: usize,
    live: u64,
    silent: u64,
    running: u64,
}

struct Row {
    name: String,
    queues: Vec<(String, String)>,
    more_queues: usize,
    seen: When,
    running: u64,
    health: Health,
}

/// What a worker's beats say about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    /// It holds jobs and is not heard: they are taken over once its leases are over.
    Deaf,
    /// It is heard.
    Live,
    /// It is not heard, and holds nothing: it stopped.
    Gone,
}

impl Health {
    pub(super) fn of(worker: &WorkerStatus, now: Time) -> Self {
        match (now.since(worker.seen_at) > LIVE_WITHIN, worker.running) {
            (false, _) => Self::Live,
            (true, 0) => Self::Gone,
            (true, _) => Self::Deaf,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Deaf => "not heard",
            Self::Live => "live",
            Self::Gone => "stopped",
        }
    }

    const fn tone(self) -> &'static str {
        match self {
            Self::Deaf => "bad",
            Self::Live => "good",
            Self::Gone => "calm",
        }
    }
}

async fn list(view: View) -> Result<Response, PageFailure> {
    let now = view.now();
    let workers = view.ask(view.store().workers(LISTED, now)).await?;
    let count = |health| workers.iter().filter(|worker| Health::of(worker, now) == health).count() as u64;
    let (live, silent) = (count(Health::Live), count(Health::Deaf));
    let mut rows: Vec<Row> = workers.iter().map(|worker| Row::of(&view, worker, now)).collect();
    rows.sort_by(|one, other| (one.health, &one.name).cmp(&(other.health, &other.name)));
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let running = workers.iter().map(|worker| worker.running).sum();
    let frame = view.frame(Section::Workers, "Workers").live();
    view.show(&Page { frame, rows, left_out, live, silent, running })
}

impl Row {
    fn of(view: &View, worker: &WorkerStatus, now: Time) -> Self {
        let queue = |name: &backstop_core::QueueName| {
            (name.to_string(), view.at(&format!("/queues/{}", part(name.as_str()))))
        };
        Self {
            name: worker.name.to_string(),
            queues: worker.queues.iter().take(QUEUES_MAX).map(queue).collect(),
            more_queues: worker.queues.len().saturating_sub(QUEUES_MAX),
            seen: When::new(worker.seen_at, now),
            running: worker.running,
            health: Health::of(worker, now),
        }
    }
}
