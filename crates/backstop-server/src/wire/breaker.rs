//! Breakers and gates.

use backstop::Time;
use backstop::breakers::{BreakerInfo, BreakerName};
use backstop::core::breaker::PhaseChange;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// All breakers and gates.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Breakers)]
pub struct BreakersShape<'a> {
    /// Breakers by queue, then gates.
    pub breakers: Vec<BreakerShape<'a>>,
}

/// A breaker of a queue, or the gate of a kind.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Breaker)]
pub struct BreakerShape<'a> {
    /// When it opens, and what it takes to close it.
    config: Value,
    /// Deaths a gate counts at the moment.
    deaths: Option<u64>,
    /// Its latest changes of state, the newest last.
    events: Vec<BreakerEventShape<'a>>,
    /// Failures in a row.
    failure_count: u32,
    /// The kind it stands before; null for a whole queue.
    kind: Option<&'a str>,
    /// When a call last failed.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_failure_time: Option<Time>,
    /// QUEUE, or QUEUE/KIND.
    name: String,
    /// When the next probe may be had.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_probe_at: Option<Time>,
    /// When it opened, if it is not closed.
    #[schema(value_type = Option<String>, format = DateTime)]
    opened_at: Option<Time>,
    /// The queue it stands before.
    queue: &'a str,
    /// Calls that were not let through.
    rejected_calls: u64,
    /// Why a gate is shut, if it is.
    shut: Value,
    /// Of a breaker closed, open or `half_open`; of a gate open, shut or `half_open`.
    state: &'static str,
    /// Probes that succeeded, while it is half-open.
    success_count: u32,
    /// Calls that reported how they ended.
    total_calls: u64,
    /// breaker or gate.
    what: &'static str,
}

impl<'a> BreakerShape<'a> {
    /// The shape of a breaker or a gate.
    pub fn new(guard: &'a BreakerInfo) -> Self {
        let status = &guard.status;
        let value = |value: serde_json::Result<Value>| value.unwrap_or_default();
        Self {
            config: value(serde_json::to_value(guard.settings)),
            deaths: guard.deaths,
            events: status
                .events
                .iter()
                .map(|event| BreakerEventShape::new(&guard.name, event))
                .collect(),
            failure_count: status.failure_count,
            kind: guard.name.kind().map(backstop::Kind::as_str),
            last_failure_time: status.last_failure_time,
            name: guard.name.to_string(),
            next_probe_at: status.next_probe_at,
            opened_at: status.opened_at,
            queue: guard.name.queue().as_str(),
            rejected_calls: status.rejected_calls,
            shut: value(serde_json::to_value(guard.shut)),
            state: guard.word(),
            success_count: status.success_count,
            total_calls: status.total_calls,
            what: breaker_or_gate(&guard.name),
        }
    }
}

/// A change of state.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = BreakerEvent)]
pub struct BreakerEventShape<'a> {
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    from: &'static str,
    to: &'static str,
    /// Why, in words.
    why: &'a str,
}

impl<'a> BreakerEventShape<'a> {
    fn new(name: &BreakerName, event: &'a PhaseChange) -> Self {
        Self {
            at: event.at,
            from: name.word(event.from),
            to: name.word(event.to),
            why: &event.why,
        }
    }
}

/// Whether a name is a breaker's or a gate's.
pub const fn breaker_or_gate(name: &BreakerName) -> &'static str {
    match name {
        BreakerName::Breaker(_) => "breaker",
        BreakerName::Gate(..) => "gate",
    }
}

/// What was done to a breaker or a gate.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = BreakerDone)]
pub struct BreakerDoneShape<'a> {
    /// What was done.
    pub done: &'a str,
    /// QUEUE, or QUEUE/KIND.
    pub name: String,
}
