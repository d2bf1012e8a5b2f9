//! Queues.

use backstop::core::Overflow;
use backstop::core::port::{QueueState, QueueStatus, QueueTotals};
use backstop::{JobState, QueueName, Time};
use serde::Serialize;
use utoipa::ToSchema;

/// All queues.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Queues)]
pub struct QueuesShape<'a> {
    /// By name.
    pub queues: Vec<QueueShape<'a>>,
}

/// Queues that were paused or resumed together.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = AllQueues)]
pub struct AllQueuesShape {
    /// How many.
    count: usize,
    /// Which, by name.
    #[schema(value_type = Vec<String>)]
    queues: Vec<QueueName>,
}

impl AllQueuesShape {
    pub const fn new(queues: Vec<QueueName>) -> Self {
        Self {
            count: queues.len(),
            queues,
        }
    }
}

/// A queue: how many jobs are in which state, and what it holds.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Queue)]
pub struct QueueShape<'a> {
    /// Its name.
    name: &'a str,
    /// Whether its jobs are kept from being given out.
    paused: bool,
    scheduled: u64,
    ready: u64,
    running: u64,
    retrying: u64,
    done: u64,
    dead: u64,
    cancelled: u64,
    /// What has ever happened in it.
    totals: QueueTotalsShape,
    /// When the job that is claimed next was to run.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_ready_at: Option<Time>,
    /// How many live jobs it holds; null for no bound.
    max_size: Option<u64>,
    /// reject, `dead_letter_oldest` or `drop_oldest`.
    #[schema(value_type = String)]
    overflow: Overflow,
    /// How many dead letters it holds.
    dead_max: u64,
    /// Whether it is nearly full.
    is_under_pressure: bool,
}

/// What has ever happened in a queue.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Totals)]
struct QueueTotalsShape {
    enqueued: u64,
    done: u64,
    dead: u64,
    cancelled: u64,
}

impl<'a> QueueShape<'a> {
    /// The shape of a queue.
    pub fn new(queue: &'a QueueStatus) -> Self {
        let QueueTotals {
            enqueued,
            done,
            dead,
            cancelled,
        } = queue.totals;
        Self {
            name: queue.name.as_str(),
            paused: queue.state == QueueState::Paused,
            scheduled: queue.counts.of(JobState::Scheduled),
            ready: queue.counts.of(JobState::Ready),
            running: queue.counts.of(JobState::Running),
            retrying: queue.counts.of(JobState::Retrying),
            done: queue.counts.of(JobState::Done),
            dead: queue.counts.of(JobState::Dead),
            cancelled: queue.counts.of(JobState::Cancelled),
            totals: QueueTotalsShape {
                enqueued,
                done,
                dead,
                cancelled,
            },
            next_ready_at: queue.next_ready,
            max_size: queue.bounds.max_size,
            overflow: queue.bounds.overflow,
            dead_max: queue.bounds.dead_max,
            is_under_pressure: queue.bounds.is_under_pressure(queue.counts.live()),
        }
    }
}

/// Whether something is paused from now on.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Paused)]
pub struct PausedShape<N> {
    /// What.
    #[schema(value_type = String)]
    pub name: N,
    /// Whether it is.
    pub paused: bool,
}

impl PausedShape<QueueName> {
    /// A queue that was paused, or resumed.
    pub const fn queue(name: QueueName, paused: bool) -> Self {
        Self { name, paused }
    }
}
