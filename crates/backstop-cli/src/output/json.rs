//! The JSON shapes of jobs, queues and their amendments.

use backstop::core::amend::Refusal;
use backstop::core::failure::Failure;
use backstop::core::port::{Damaged, Gate, QueueStatus, Totals};
use backstop::core::redact::Redaction;
use backstop::core::unique::UniqueKey;
use backstop::core::verdict::Reason;
use backstop::{JobId, Priority, QueueName, State, Time};
use backstop_core::{Job, Overflow};
use serde::Serialize;
use serde_json::value::RawValue;
use std::fmt::Write as _;

/// A job.
#[derive(Serialize)]
pub(crate) struct JobShape<'a> {
    id: JobId,
    queue: &'a str,
    kind: &'a str,
    state: State,
    payload: Box<RawValue>,
    /// Of bytes that are not JSON; backstop takes none in, but a damaged store may hold some.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
    attempt: u32,
    max_attempts: Option<u32>,
    lost_leases: u32,
    run_at: Time,
    inserted_at: Time,
    unique_key: Option<&'a str>,
    errors: Vec<Failure>,
    priority: Priority,
    finished_at: Option<Time>,
    reason: Option<&'static str>,
    requeues: u32,
    worker: Option<&'a str>,
    lease_until: Option<Time>,
}

impl<'a> JobShape<'a> {
    /// The shape of a job in a list: secrets are hidden.
    pub(crate) fn listed(job: &'a Job, max_attempts: Option<u32>, redaction: &Redaction) -> Self {
        let (payload, payload_hex) = payload(&redaction.payload(job.payload.as_bytes()));
        Self { payload, payload_hex, ..Self::new(job, max_attempts, redaction) }
    }

    /// The shape of a job, with its payload whole.
    pub(crate) fn new(job: &'a Job, max_attempts: Option<u32>, redaction: &Redaction) -> Self {
        let (payload, payload_hex) = payload(job.payload.as_bytes());
        Self {
            id: job.id,
            queue: job.queue.as_str(),
            kind: job.kind.as_str(),
            state: job.state,
            payload,
            payload_hex,
            attempt: job.attempt,
            max_attempts,
            lost_leases: job.lost_leases,
            run_at: job.run_at,
            inserted_at: job.inserted_at,
            unique_key: job.unique_key.as_ref().map(UniqueKey::as_str),
            errors: job.history.failures().into_iter().map(|failure| redaction.failure(failure)).collect(),
            priority: job.priority,
            finished_at: job.finished_at,
            reason: job.reason.map(Reason::as_str),
            requeues: job.requeues,
            worker: job.held_by.as_ref().map(|holder| holder.worker.as_str()),
            lease_until: job.held_by.as_ref().map(|holder| holder.until),
        }
    }
}

/// The payload as it is; if it is not JSON, as text, and its bytes beside it.
fn payload(bytes: &[u8]) -> (Box<RawValue>, Option<String>) {
    let as_it_is =
        std::str::from_utf8(bytes).ok().and_then(|text| RawValue::from_string(text.to_owned()).ok());
    as_it_is.map_or_else(|| (quoted(&String::from_utf8_lossy(bytes)), Some(hex(bytes))), |raw| (raw, None))
}

fn quoted(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).expect("text is JSON")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// A queue.
#[derive(Serialize)]
pub(crate) struct QueueShape<'a> {
    name: &'a str,
    paused: bool,
    scheduled: u64,
    ready: u64,
    running: u64,
    retrying: u64,
    done: u64,
    dead: u64,
    cancelled: u64,
    totals: TotalsShape,
    next_ready_at: Option<Time>,
    max_size: Option<u64>,
    overflow: Overflow,
    dead_max: u64,
    is_under_pressure: bool,
}

#[derive(Serialize)]
struct TotalsShape {
    enqueued: u64,
    done: u64,
    dead: u64,
    cancelled: u64,
}

impl<'a> QueueShape<'a> {
    /// The shape of a queue.
    pub(crate) fn new(queue: &'a QueueStatus) -> Self {
        let Totals { enqueued, done, dead, cancelled } = queue.totals;
        Self {
            name: queue.name.as_str(),
            paused: queue.gate == Gate::Paused,
            scheduled: queue.counts.of(State::Scheduled),
            ready: queue.counts.of(State::Ready),
            running: queue.counts.of(State::Running),
            retrying: queue.counts.of(State::Retrying),
            done: queue.counts.of(State::Done),
            dead: queue.counts.of(State::Dead),
            cancelled: queue.counts.of(State::Cancelled),
            totals: TotalsShape { enqueued, done, dead, cancelled },
            next_ready_at: queue.next_ready,
            max_size: queue.bounds.max_size,
            overflow: queue.bounds.overflow,
            dead_max: queue.bounds.dead_max,
            is_under_pressure: queue.bounds.is_under_pressure(queue.counts.live()),
        }
    }
}

/// What an amendment did.
#[derive(Serialize)]
pub(crate) struct AmendedShape {
    /// To how many jobs.
    pub(crate) count: u64,
    /// To which not, and why.
    pub(crate) refused: Vec<RefusedShape>,
}

/// A job an amendment was not applied to.
#[derive(Serialize)]
pub(crate) struct RefusedShape {
    /// Which.
    pub(crate) id: JobId,
    /// Why.
    pub(crate) why: String,
}

impl RefusedShape {
    /// The shape of a refusal.
    pub(crate) fn new(id: JobId, refusal: Refusal) -> Self {
        Self { id, why: refusal.to_string() }
    }
}

/// A job that is there and cannot be read.
#[derive(Serialize)]
pub(crate) struct DamagedShape {
    id: Option<JobId>,
    queue: Option<QueueName>,
    why: String,
}

impl DamagedShape {
    /// The shape of what is left of a job.
    pub(crate) fn new(damaged: &Damaged) -> Self {
        Self { id: damaged.id, queue: damaged.queue.clone(), why: damaged.why.clone() }
    }

    /// What it is called, as far as that is known.
    pub(crate) fn name(&self) -> String {
        match (&self.id, &self.queue) {
            (Some(id), _) => id.to_string(),
            (None, Some(queue)) => format!("a job of {queue}"),
            (None, None) => "a job".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_comes_out_as_it_went_in() {
        let (raw, hex) = payload(br#"{"a": 1.0, "a":1e2 }"#);
        assert_eq!((raw.get(), hex), (r#"{"a": 1.0, "a":1e2 }"#, None));
    }

    #[test]
    fn what_is_not_json_is_text_with_its_bytes_beside_it() {
        let (raw, hex) = payload(b"\xff{");
        assert_eq!((raw.get(), hex.as_deref()), ("\"\u{fffd}{\"", Some("ff7b")));
    }
}
