//! Streams, their keys, and records on their way in.

use crate::history::StreamAlarms;
use backstop::core::Payload;
use backstop::core::redact::Redaction;
use backstop::core::stream::{OffStep, OffStepRecord, StoredRecord, StreamAlarm};
use backstop::streams::{KeyState, KeyStatus, OfferOutcome, StoredKey, StreamStatus};
use backstop::why::record::explain_record;
use backstop::{StreamKey, StreamName, Time};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// All streams.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Streams)]
pub struct StreamsShape<'a> {
    /// By name.
    pub streams: Vec<StreamShape<'a>>,
}

/// A stream: what it holds, and what happened in it.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Stream)]
pub struct StreamShape<'a> {
    /// What somebody should look at, by the last ten minutes of the history that servers keep.
    alarms: Vec<&'static str>,
    /// What happened so far, by the names of the counters.
    #[schema(value_type = BTreeMap<String, u64>)]
    counts: BTreeMap<&'static str, u64>,
    /// Records that wait.
    held: u64,
    /// Keys that keep records.
    holding: u64,
    /// Keys that are known.
    keys: u64,
    /// Its name.
    name: &'a str,
    /// When the oldest record that is kept came in.
    #[schema(value_type = Option<String>, format = DateTime)]
    oldest: Option<Time>,
    /// The share of records that came when too many waited.
    overflow_rate: Option<f64>,
    /// Records that are kept.
    records: u64,
    /// The share of gaps that were filled in time.
    success_rate: Option<f64>,
    /// The share of records whose gap was given up.
    timeout_rate: Option<f64>,
}

impl<'a> StreamShape<'a> {
    /// The shape of a stream.
    pub fn new(status: &'a StreamStatus, alarms: &StreamAlarms) -> Self {
        Self {
            alarms: alarms
                .of(&status.name)
                .iter()
                .copied()
                .map(StreamAlarm::as_str)
                .collect(),
            counts: status.counts.named().collect(),
            held: status.counts.held(),
            holding: status.holding,
            keys: status.keys,
            name: status.name.as_str(),
            oldest: status.oldest,
            overflow_rate: status.counts.overflow_rate(),
            records: status.records,
            success_rate: status.counts.success_rate(),
            timeout_rate: status.counts.timeout_rate(),
        }
    }
}

/// A page of the keys of a stream.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = StreamKeys)]
pub struct StreamKeysShape<'a> {
    /// The keys, by name.
    pub keys: Vec<StreamKeySummaryShape<'a>>,
    /// The key behind which the next page starts; the list ends where there is none.
    #[schema(value_type = Option<String>)]
    pub next: Option<&'a StreamKey>,
}

impl<'a> StreamKeysShape<'a> {
    /// The shape of a page that was to have at most `limit` keys.
    pub fn new(keys: &'a [KeyStatus], limit: usize) -> Self {
        let next = keys
            .last()
            .map(|status| &status.key)
            .filter(|_| keys.len() == limit);
        Self {
            keys: keys.iter().map(StreamKeySummaryShape::new).collect(),
            next,
        }
    }
}

/// A key in a list.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = StreamKeySummary)]
pub struct StreamKeySummaryShape<'a> {
    /// The how manieth wait for a gap, if it waits for one.
    attempt: Option<u32>,
    /// When it is looked at again.
    #[schema(value_type = Option<String>, format = DateTime)]
    due: Option<Time>,
    /// The key.
    key: &'a str,
    /// When the oldest record that it keeps came in.
    #[schema(value_type = Option<String>, format = DateTime)]
    oldest: Option<Time>,
    /// Records that it keeps.
    records: u64,
    /// in order, waiting, due, in hand, failing, halted, disabled or unreadable.
    state: &'static str,
    /// The last position that was handled or passed.
    watermark: Option<i64>,
    /// Who has it in hand.
    worker: Option<&'a str>,
}

impl<'a> StreamKeySummaryShape<'a> {
    /// The shape of a key.
    pub fn new(status: &'a KeyStatus) -> Self {
        let key_state = KeyState::from_bytes(&status.state).ok();
        Self {
            attempt: key_state
                .as_ref()
                .and_then(|key_state| key_state.wait)
                .map(|wait| wait.attempt),
            due: status.due,
            key: status.key.as_str(),
            oldest: status.oldest,
            records: status.records,
            state: state_of(status),
            watermark: status.watermark,
            worker: status.holder.as_ref().map(|holder| holder.worker.as_str()),
        }
    }
}

/// What a key does, in a word.
pub fn state_of(status: &KeyStatus) -> &'static str {
    match status.holder {
        Some(_) => "in hand",
        None => state(
            KeyState::from_bytes(&status.state).ok().as_ref(),
            status.records,
        ),
    }
}

/// What a key does, in a word, while nobody has it in hand.
pub const fn state(key_state: Option<&KeyState>, records: u64) -> &'static str {
    let Some(key_state) = key_state else {
        return "unreadable";
    };
    if key_state.disabled {
        "disabled"
    } else if key_state.halted.is_some() {
        "halted"
    } else if key_state.failing.is_some() {
        "failing"
    } else if key_state.wait.is_some() {
        "waiting"
    } else if records > 0 {
        "due"
    } else {
        "in order"
    }
}

/// One key, with the records it keeps.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = StreamKey)]
pub struct StreamKeyShape<'a> {
    /// The how manieth wait for a gap, if it waits for one.
    attempt: Option<u32>,
    /// Whether its records are ignored.
    disabled: bool,
    /// The record that failed last, until it succeeds.
    failing: Option<FailingRecordShape<'a>>,
    /// Up to this position nothing is waited for any more.
    gives_up_to: Option<i64>,
    /// The record that failed for good, at which it stands still.
    halted_at: Option<i64>,
    /// The records of the lowest positions: at most 256, and none after the one that makes 4 MiB
    /// of payloads. Secrets are hidden.
    held: Vec<HeldRecordShape<'a>>,
    /// The key.
    key: &'a str,
    /// What came after it was declared missing.
    late: Vec<LateRecordShape>,
    /// What was declared missing.
    missed: Vec<MissedRunShape>,
    /// Records that it keeps beyond those in `held`.
    more: u64,
    /// What was not on the step of its key.
    off_step: Vec<OffStepRecordShape>,
    /// Records that it keeps.
    records: u64,
    /// in order, waiting, due, failing, halted or disabled.
    state: &'static str,
    /// How far apart positions are.
    step: Option<i64>,
    /// The stream.
    stream: &'a str,
    /// Until when a gap is waited for.
    #[schema(value_type = Option<String>, format = DateTime)]
    waits_until: Option<Time>,
    /// The last position that was handled or passed.
    watermark: Option<i64>,
    /// Why the first record that it keeps is not handled: `gate`, `why` in a sentence, and its
    /// `details`.
    #[schema(value_type = Option<Object>)]
    why: Option<Value>,
}

#[derive(Serialize, ToSchema, Debug)]
#[schema(as = FailingRecord)]
struct FailingRecordShape<'a> {
    error: &'a str,
    failures: u32,
    #[schema(value_type = String, format = DateTime)]
    next: Time,
    position: i64,
}

#[derive(Serialize, ToSchema, Debug)]
#[schema(as = HeldRecord)]
struct HeldRecordShape<'a> {
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    #[schema(value_type = Value)]
    payload: Option<Box<RawValue>>,
    position: i64,
    step: i64,
    tenant: Option<&'a str>,
}

#[derive(Serialize, ToSchema, Debug)]
#[schema(as = LateRecord)]
struct LateRecordShape {
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    position: i64,
}

#[derive(Serialize, ToSchema, Debug)]
#[schema(as = OffStepRecord)]
struct OffStepRecordShape {
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    /// What the steps are counted from.
    from: i64,
    position: i64,
    /// handled, or duplicate.
    result: &'static str,
    step: i64,
}

impl OffStepRecordShape {
    const fn new(record: &OffStepRecord) -> Self {
        Self {
            at: Time::from_micros(record.at),
            from: record.place.from,
            position: record.place.position,
            result: if record.is_handled {
                "handled"
            } else {
                "duplicate"
            },
            step: record.place.step,
        }
    }
}

#[derive(Serialize, ToSchema, Debug)]
#[schema(as = MissedRun)]
struct MissedRunShape {
    count: u64,
    first: i64,
    step: i64,
}

impl<'a> StreamKeyShape<'a> {
    /// The shape of a key. Payloads and errors are shown as they are in `stored`, and `standing` is
    /// read from it: see [`redacted`].
    pub fn new(stream: &'a StreamName, stored: &'a StoredKey, key_state: &'a KeyState) -> Self {
        let failing = key_state
            .failing
            .as_ref()
            .map(|failing| FailingRecordShape {
                error: &failing.error,
                failures: failing.failures,
                next: Time::from_micros(failing.due),
                position: failing.position,
            });
        let missed = key_state
            .missed
            .runs()
            .map(|(first, step, count)| MissedRunShape { count, first, step });
        let late = key_state.late.iter();
        Self {
            attempt: key_state.wait.map(|wait| wait.attempt),
            disabled: key_state.disabled,
            failing,
            gives_up_to: key_state.drain_to,
            halted_at: key_state.halted,
            held: stored.records.iter().map(held).collect(),
            key: stored.key.as_str(),
            late: late
                .map(|(position, at)| LateRecordShape {
                    at: Time::from_micros(*at),
                    position: *position,
                })
                .collect(),
            missed: missed.collect(),
            more: stored.more(),
            off_step: key_state
                .off_step
                .iter()
                .map(OffStepRecordShape::new)
                .collect(),
            records: stored.count,
            state: state(Some(key_state), stored.count),
            step: key_state.step,
            stream: stream.as_str(),
            waits_until: key_state.wait.map(|wait| Time::from_micros(wait.due)),
            watermark: stored.watermark,
            why: stored
                .records
                .first()
                .and_then(|record| why(stored, record.position)),
        }
    }
}

fn why(stored: &StoredKey, position: i64) -> Option<Value> {
    let why = explain_record(stored, position).ok()?;
    Some(json!({ "gate": why.gate(), "why": why.to_string(), "details": why.details() }))
}

fn held(record: &StoredRecord) -> HeldRecordShape<'_> {
    HeldRecordShape {
        at: record.at,
        payload: serde_json::from_slice(record.payload.as_bytes()).ok(),
        position: record.position,
        step: record.step,
        tenant: record.tenant.as_deref(),
    }
}

/// A key whose records, and what is told of one that fails, may be shown. Whoever wrote an error
/// down may have known fewer names of secrets than whoever shows it.
#[must_use]
pub fn redacted(mut stored: StoredKey, redaction: &Redaction) -> StoredKey {
    for record in &mut stored.records {
        record.payload = Payload::from_stored(redaction.payload(record.payload.as_bytes()));
    }
    if let Ok(mut key_state) = KeyState::from_bytes(&stored.state)
        && let Some(failing) = &mut key_state.failing
    {
        failing.error = redaction.text(&failing.error);
        stored.state = key_state.to_bytes();
    }
    stored
}

/// A key that was forgotten.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = StreamKeyForgotten)]
pub struct StreamKeyForgottenShape<'a> {
    /// How many records it held.
    pub count: u64,
    /// Whether its records are ignored until it is enabled.
    pub disabled: bool,
    /// The key.
    #[schema(value_type = String)]
    pub key: &'a StreamKey,
}

/// What was done to a key.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = StreamKeyDone)]
pub struct StreamKeyDoneShape<'a> {
    /// enabled, resumed or skipped.
    pub done: &'static str,
    /// The key.
    #[schema(value_type = String)]
    pub key: &'a StreamKey,
}

/// What became of records that came in, in their order.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = StreamOffered)]
pub struct StreamOfferedShape {
    /// One for each record.
    pub results: Vec<StreamOfferedRecordShape>,
}

/// What became of a record that came in.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = StreamOfferedRecord)]
pub struct StreamOfferedRecordShape {
    /// Its key.
    #[schema(value_type = String)]
    pub key: StreamKey,
    /// Its position.
    pub position: i64,
    /// held, duplicate or full.
    pub result: &'static str,
    /// Where it is, if that is not a whole number of steps from the record before it or from the
    /// watermark. Ahead of the watermark it is handled in its turn, and the steps go on from it;
    /// behind the watermark it is dropped as a duplicate. Only the first 10 keys of a call are
    /// looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_step: Option<OffStepPositionShape>,
}

/// A position that is off the step, and what the steps are counted from.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = OffStep)]
pub struct OffStepPositionShape {
    /// The position.
    pub position: i64,
    /// The step it is not on.
    pub step: i64,
    /// What the steps are counted from.
    pub from: i64,
}

impl From<OffStep> for OffStepPositionShape {
    fn from(off: OffStep) -> Self {
        Self {
            position: off.position,
            step: off.step,
            from: off.from,
        }
    }
}

impl StreamOfferedRecordShape {
    /// What became of the record of this key and position.
    pub fn new(
        key: StreamKey,
        position: i64,
        offered: OfferOutcome,
        off_step: Option<OffStep>,
    ) -> Self {
        let result = match offered {
            OfferOutcome::Held => "held",
            OfferOutcome::Duplicate => "duplicate",
            OfferOutcome::Full => "full",
        };
        Self {
            key,
            position,
            result,
            off_step: off_step.map(OffStepPositionShape::from),
        }
    }
}
