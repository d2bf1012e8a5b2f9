//! Workers.

use backstop::Time;
use backstop::core::worker_command::DesiredWorkerState;
use backstop::workers::{WorkerHealth, WorkerInfo};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The workers that were heard of within the hour.
#[derive(Serialize, Debug)]
pub struct WorkersShape<'a> {
    pub workers: Vec<WorkerShape<'a>>,
}

/// Some of the workers that were heard of within the hour.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Workers)]
pub struct WorkersPageShape<'a> {
    /// By name.
    pub workers: Vec<WorkerShape<'a>>,
    /// Where the next page starts; the list ends where there is none.
    pub next: Option<&'a str>,
}

/// A worker, as its beats and what it tells of itself show it. What it does not tell is null.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Worker)]
pub struct WorkerShape<'a> {
    /// Its name.
    name: &'a str,
    /// The queues it serves.
    queues: Vec<&'a str>,
    /// Its last sign of life.
    #[schema(value_type = String, format = DateTime)]
    seen_at: Time,
    /// Whether that was within 30 seconds. One that is not live and holds jobs has lost them once
    /// its leases are over.
    live: bool,
    /// How many jobs it holds.
    running: u64,
    /// live, quiet (takes no new jobs), stopping, `not_heard` (and holds jobs) or stopped.
    state: &'static str,
    /// What it is asked for: quiet, stop, or null.
    #[serde(rename = "asked")]
    desired_state: Option<&'static str>,
    /// By whom.
    #[serde(rename = "asked_by")]
    commanded_by: Option<&'a str>,
    /// When.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(rename = "asked_at")]
    commanded_at: Option<Time>,
    /// The machine it runs on.
    host: Option<&'a str>,
    /// Its process there.
    pid: Option<u32>,
    /// The version of backstop it is built with; of a worker over HTTP, whatever it calls its
    /// version.
    version: Option<&'a str>,
    /// Since when it runs.
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Time>,
    /// How many jobs it can run at once, over all its queues.
    concurrency: Option<u32>,
    /// How many of these places are taken, as it told in the last ten seconds. It may hold more
    /// jobs, claimed ahead.
    taken: u64,
    /// How much memory its process has in use.
    memory_bytes: Option<u64>,
    /// The kinds it knows, for each queue of which it does not know every kind.
    kinds: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> WorkerShape<'a> {
    /// The shape of a worker, seen at `now`.
    pub fn new(worker: &'a WorkerInfo, now: Time) -> Self {
        let (status, about, command) = (
            &worker.status,
            &worker.about,
            worker.active_command.as_ref(),
        );
        let kinds = worker.kinds.iter();
        Self {
            name: status.name.as_str(),
            queues: status
                .queues
                .iter()
                .map(backstop::QueueName::as_str)
                .collect(),
            seen_at: status.seen_at,
            live: backstop::workers::is_heard(status, now),
            running: status.running,
            state: state(worker.health(now)),
            desired_state: command.map(|order| order.desired_state.as_str()),
            commanded_by: command.map(|order| order.by.as_str()),
            commanded_at: command.map(|order| order.at),
            host: about.host.as_deref(),
            pid: about.pid,
            version: about.version.as_deref(),
            started_at: about.since,
            concurrency: about.places,
            taken: worker.taken,
            memory_bytes: about.memory,
            kinds: kinds
                .map(|(queue, kinds)| {
                    (
                        queue.as_str(),
                        kinds.iter().map(backstop::Kind::as_str).collect(),
                    )
                })
                .collect(),
        }
    }
}

const fn state(health: WorkerHealth) -> &'static str {
    match health {
        WorkerHealth::Silent => "not_heard",
        WorkerHealth::Stopping
        | WorkerHealth::Quiet
        | WorkerHealth::Live
        | WorkerHealth::Stopped => health.as_str(),
    }
}

/// What a worker is asked for from now on.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Ordered)]
pub struct WorkerCommandShape<'a> {
    /// The worker.
    pub name: &'a str,
    /// quiet, stop, or null: nothing.
    #[serde(rename = "asked")]
    pub desired_state: Option<&'static str>,
    /// Whether that is new.
    pub changed: bool,
    /// Why it may not hear that; only there if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

impl<'a> WorkerCommandShape<'a> {
    /// The shape of what became of an order to a worker.
    pub fn new(name: &'a str, given: backstop::workers::WorkerCommandResult) -> Self {
        let changed = given.outcome == backstop::core::worker_command::CommandOutcome::Given;
        let note = (!given.listens).then_some(backstop::workers::NOT_LISTENING);
        Self {
            name,
            desired_state: given.desired_state.map(DesiredWorkerState::as_str),
            changed,
            note,
        }
    }
}
