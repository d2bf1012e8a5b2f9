//! Workers.

use backstop::Time;
use backstop::core::port::WorkerStatus;
use backstop::why::LIVE_WITHIN;
use backstop_core::Span;
use serde::Serialize;
use utoipa::ToSchema;

/// Workers are listed for so long after their last sign of life.
pub const LISTED: Span = Span::hours(1);

/// The workers that were heard of within the hour.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Workers)]
pub struct WorkersShape<'a> {
    /// By name.
    pub workers: Vec<WorkerShape<'a>>,
}

/// A worker, as its beats show it.
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
    /// Whether that was within 30 seconds. One that is not live and holds jobs has lost them once its leases are over.
    live: bool,
    /// How many jobs it holds.
    running: u64,
}

impl<'a> WorkerShape<'a> {
    /// The shape of a worker, seen at `now`.
    pub fn new(worker: &'a WorkerStatus, now: Time) -> Self {
        Self {
            name: worker.name.as_str(),
            queues: worker.queues.iter().map(backstop::QueueName::as_str).collect(),
            seen_at: worker.seen_at,
            live: now.since(worker.seen_at) <= LIVE_WITHIN,
            running: worker.running,
        }
    }
}
