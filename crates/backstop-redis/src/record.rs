//! Jobs as bytes. The scripts in `lua` change records in place. `lua/keys.lua` describes the
//! layout, but counts bytes from 1, as Lua does; the offsets here count from 0. A time, an arrival
//! and a lease number have 8 bytes. Times are in microseconds; see [`sortable`].
//!
//! | offset | content |
//! |---|---|
//! | 0 | state, see [`state_code`] |
//! | 1 | `finished_at`, or zeros |
//! | 9 | lease number of the last accepted settlement |
//! | 17 | tag of the last accepted settlement |
//! | 18 | end reason, see [`reason_code`] |
//! | 19 | attempts, 4 bytes |
//! | 23 | lost leases, 4 bytes |
//! | 27 | `run_at` |
//! | 35 | flags: the digit `0` plus the flag bits |
//! | 36 | arrival |
//! | 44 | `inserted_at` |
//! | 52 | priority level, as a digit |
//! | 53 | requeues, 4 bytes |
//! | 57 | states in which the job holds its unique key, as bits |
//! | 58 | end of the key's period: microseconds as decimal digits, padded with spaces to 20 bytes |
//! | 78 | bytes of the kind, a number of 2 bytes |
//! | 80 | kind, then the unique key or the payload, never both |

use backstop_core::failure::FailureHistory;
use backstop_core::job::Claimant;
use backstop_core::job_options::JobOptions;
use backstop_core::port::NewDeadLetter;
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::EndReason;
use backstop_core::{
    Fingerprint, Job, JobId, JobState, Kind, Lease, LeaseNumber, LeasedRun, NewJob, Payload,
    Priority, QueueName, Time,
};
use std::ops::Range;

/// Bytes of an index member: the job's arrival (8, see `arrival_clock.rs`), then its id (16). A
/// lease has as many: id (16), then lease number (8).
pub(crate) const MEMBER_BYTES: usize = 24;
/// Bytes of an index member that begins with a time.
pub(crate) const TIMED: usize = MEMBER_BYTES + 8;
/// Bytes of the part of a record that always has the same length: all that is before the kind.
const HEAD_BYTES: usize = 80;
const SIGN: u64 = 1 << 63;
/// Payloads up to this many bytes, with the job's own options and their length, are kept in the
/// record. Larger ones, and those of jobs with a unique key, are in the key `payloads`. The record
/// is rewritten with every change of state, so it should be small.
const PAYLOAD_WITHIN_MAX: usize = 512;
/// Flag bit of a record: the unique key follows the kind. The flag bit 1, which scripts and
/// [`pack_burial`] set, means that the job has a failure history.
const WITH_KEY: u8 = 2;
/// Flag bit of a record: the payload follows the kind.
const WITH_PAYLOAD: u8 = 4;
const NEVER: [u8; 8] = [0; 8];
/// The bytes of a job without a settlement: no lease number, no tag, no end reason.
const UNSETTLED: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 0, b'0', b'0'];

/// Encodes a number as eight bytes that sort like the number.
pub(crate) const fn sortable(number: i64) -> [u8; 8] {
    (number.cast_unsigned() ^ SIGN).to_be_bytes()
}

/// Decodes eight bytes written by [`sortable`].
pub(crate) fn from_sortable(bytes: &[u8]) -> Option<i64> {
    let bytes: [u8; 8] = bytes.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ SIGN).cast_signed())
}

/// Encodes a lease number for scripts.
pub(crate) const fn number_bytes(number: LeaseNumber) -> [u8; 8] {
    number.as_i64().to_be_bytes()
}

/// Decodes a lease number from a script.
pub(crate) fn number_of(bytes: &[u8]) -> Option<LeaseNumber> {
    Some(LeaseNumber::from_i64(i64::from_be_bytes(
        bytes.try_into().ok()?,
    )))
}

/// Encodes a lease for scripts: job id, then lease number.
pub(crate) fn lease_bytes(lease: &Lease) -> [u8; MEMBER_BYTES] {
    joined(lease.job.as_bytes(), &number_bytes(lease.number))
}

/// The index member of a job: arrival, then id.
pub(crate) fn member(arrival: i64, id: JobId) -> [u8; MEMBER_BYTES] {
    joined(&sortable(arrival), id.as_bytes())
}

fn joined(first: &[u8], second: &[u8]) -> [u8; MEMBER_BYTES] {
    let mut bytes = [0; MEMBER_BYTES];
    bytes[..first.len()].copy_from_slice(first);
    bytes[first.len()..].copy_from_slice(second);
    bytes
}

/// Decodes a job id of sixteen bytes.
pub(crate) fn id_of(bytes: &[u8]) -> Option<JobId> {
    bytes.try_into().ok().map(JobId::from_bytes)
}

/// The byte that stands for a state in records and scripts.
pub(crate) const fn state_code(state: JobState) -> u8 {
    b'0' + state as u8
}

/// The state that a byte stands for.
pub(crate) fn state_of(letter: u8) -> Option<JobState> {
    JobState::ALL
        .get(usize::from(letter.checked_sub(b'0')?))
        .copied()
}

/// The byte that stands for an end reason in records and scripts.
pub(crate) fn reason_code(reason: Option<EndReason>) -> u8 {
    let position =
        reason.and_then(|reason| EndReason::ALL.iter().position(|known| *known == reason));
    position.map_or(b'0', |position| b'1' + position as u8)
}

/// The end reason that a byte stands for.
pub(crate) fn reason_of(letter: u8) -> Option<EndReason> {
    EndReason::ALL
        .get(usize::from(letter.checked_sub(b'1')?))
        .copied()
}

/// A new job, encoded as bytes.
pub(crate) struct PackedJob {
    pub(crate) record: Vec<u8>,
    /// Empty if the record contains the payload.
    pub(crate) payload: Vec<u8>,
}

/// Encodes a new job; its payload goes into the record if it is small and the job has no unique
/// key.
pub(crate) fn pack(job: &NewJob, arrival: i64, now: Time) -> PackedJob {
    let (mut record, mut payload) = (pack_record(job, arrival, now), pack_payload(job));
    if job.unique.is_none() && payload.len() <= PAYLOAD_WITHIN_MAX {
        record[35] += WITH_PAYLOAD;
        record.append(&mut payload);
    }
    PackedJob { record, payload }
}

fn pack_record(job: &NewJob, arrival: i64, now: Time) -> Vec<u8> {
    let hold = job.unique.as_ref().map(|unique| unique.hold(now));
    let key = job.unique.as_ref().map_or("", |unique| unique.key.as_str());
    let behind = if hold.is_some() {
        key.len()
    } else {
        PAYLOAD_WITHIN_MAX
    };
    let mut bytes = Vec::with_capacity(HEAD_BYTES + job.kind.as_str().len() + behind);
    bytes.push(state_code(job.first_state(now)));
    bytes.extend(NEVER);
    bytes.extend(UNSETTLED);
    bytes.extend([0; 8]);
    bytes.extend(sortable(job.run_at.unwrap_or(now).as_micros()));
    bytes.push(if hold.is_some() { b'2' } else { b'0' });
    bytes.extend(sortable(arrival));
    bytes.extend(sortable(now.as_micros()));
    bytes.push(b'0' + job.priority.level());
    bytes.extend([0; 4]);
    bytes.push(hold.map_or(0, |hold| hold.states.bits()));
    match hold.and_then(|hold| hold.until) {
        Some(until) => bytes.extend(format!("{:>20}", until.as_micros()).as_bytes()),
        None => bytes.extend([b' '; 20]),
    }
    bytes.extend((job.kind.as_str().len() as u16).to_be_bytes());
    bytes.extend(job.kind.as_str().as_bytes());
    bytes.extend(key.as_bytes());
    bytes
}

/// Encodes a new dead letter.
pub(crate) fn pack_burial(burial: &NewDeadLetter, arrival: i64) -> PackedJob {
    let PackedJob {
        record: mut bytes,
        payload,
    } = pack(&burial.job, arrival, burial.inserted_at);
    bytes[0] = state_code(JobState::Dead);
    bytes[1..9].copy_from_slice(&sortable(burial.finished_at.as_micros()));
    bytes[18] = reason_code(Some(burial.reason));
    bytes[19..23].copy_from_slice(&burial.attempts.to_be_bytes());
    bytes[23..27].copy_from_slice(&burial.lost_leases.to_be_bytes());
    bytes[35] += u8::from(burial.history.as_bytes().is_some());
    bytes[53..57].copy_from_slice(&burial.requeues.to_be_bytes());
    PackedJob {
        record: bytes,
        payload,
    }
}

/// Encodes a fingerprint for scripts.
pub(crate) const fn fingerprint_bytes(fingerprint: Fingerprint) -> [u8; 8] {
    fingerprint.as_i64().to_be_bytes()
}

/// Decodes a fingerprint from a script.
pub(crate) fn fingerprint_of(bytes: &[u8]) -> Option<Fingerprint> {
    Some(Fingerprint::from_i64(i64::from_be_bytes(
        bytes.try_into().ok()?,
    )))
}

/// The payload, followed by the job's own options. The last four bytes are the length of the
/// options.
fn pack_payload(job: &NewJob) -> Vec<u8> {
    let terms = JobOptions::of(job);
    let terms = terms.as_bytes().unwrap_or_default();
    let mut bytes = Vec::with_capacity(job.payload.len() + terms.len() + 4);
    bytes.extend(job.payload.as_bytes());
    bytes.extend(terms);
    bytes.extend((terms.len() as u32).to_be_bytes());
    bytes
}

/// Replaces the lost payload of a job: no bytes, and no options of its own. A script writes a
/// record and its payload together, so a payload is lost only if somebody deleted or changed the
/// key `payloads`, or if the server evicted it. The job stays visible then, and can be claimed: an
/// empty payload is no JSON, so a handler that parses it fails. A handler that does not parse it
/// runs with nothing.
const NO_PAYLOAD: [u8; 4] = [0; 4];

fn unpack_payload(bytes: Option<Vec<u8>>) -> Option<(Payload, JobOptions)> {
    let mut bytes = bytes.unwrap_or_else(|| NO_PAYLOAD.to_vec());
    let at = bytes.len().checked_sub(4)?;
    let length = u32::from_be_bytes(bytes[at..].try_into().ok()?) as usize;
    let terms_at = at.checked_sub(length)?;
    let terms = (length > 0).then(|| bytes[terms_at..at].to_vec());
    bytes.truncate(terms_at);
    Some((Payload::from_stored(bytes), JobOptions::from_stored(terms)))
}

/// A job record that was read from Redis.
#[derive(Clone, Debug)]
pub(crate) struct RedisJobRecord {
    state: JobState,
    priority: Priority,
    attempts: u32,
    lost_leases: u32,
    requeues: u32,
    run_at: Time,
    inserted_at: Time,
    finished_at: Option<Time>,
    reason: Option<EndReason>,
    kind: Kind,
    unique_key: Option<UniqueKey>,
    payload: Option<Vec<u8>>,
}

impl RedisJobRecord {
    /// Decodes a record; `None` if the bytes are not a record.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let time = |range: Range<usize>| Some(Time::from_micros(from_sortable(bytes.get(range)?)?));
        let count =
            |range: Range<usize>| Some(u32::from_be_bytes(bytes.get(range)?.try_into().ok()?));
        let kind_end = HEAD_BYTES
            + usize::from(u16::from_be_bytes(
                bytes.get(78..HEAD_BYTES)?.try_into().ok()?,
            ));
        let kind = std::str::from_utf8(bytes.get(HEAD_BYTES..kind_end)?).ok()?;
        let (flags, behind) = (bytes[35].checked_sub(b'0')?, bytes.get(kind_end..)?);
        let has = |flag: u8| flags & flag != 0;
        let key = if has(WITH_KEY) {
            std::str::from_utf8(behind).ok()?
        } else {
            ""
        };
        let state = state_of(bytes[0])?;
        Some(Self {
            state,
            priority: Priority::from_level(bytes[52].checked_sub(b'0')?)?,
            attempts: count(19..23)?,
            lost_leases: count(23..27)?,
            requeues: count(53..57)?,
            run_at: time(27..35)?,
            inserted_at: time(44..52)?,
            finished_at: if state.is_final() { time(1..9) } else { None },
            reason: reason_of(bytes[18]),
            kind: Kind::new(kind).ok()?,
            unique_key: UniqueKey::new(key).ok(),
            payload: has(WITH_PAYLOAD).then(|| behind.to_vec()),
        })
    }

    /// The job as a worker gets it. `apart` is the payload if it is stored outside of the record.
    pub(crate) fn leased(
        self,
        lease: Lease,
        apart: Option<Vec<u8>>,
        history: Option<Vec<u8>>,
    ) -> Option<LeasedRun> {
        let (payload, terms) = unpack_payload(self.payload.or(apart))?;
        Some(LeasedRun {
            lease,
            kind: self.kind,
            payload,
            priority: self.priority,
            attempts_before: self.attempts,
            lost_leases: self.lost_leases,
            inserted_at: self.inserted_at,
            run_at: self.run_at,
            options: terms,
            history: FailureHistory::from_stored(history),
        })
    }

    /// The job as an operator sees it. `apart` is the payload if it is stored outside of the
    /// record.
    pub(crate) fn view(
        self,
        queue: &QueueName,
        id: JobId,
        apart: Option<Vec<u8>>,
        history: Option<Vec<u8>>,
        held_by: Option<Claimant>,
    ) -> Option<Job> {
        let (payload, terms) = unpack_payload(self.payload.or(apart))?;
        let state = if held_by.is_some() {
            JobState::Running
        } else {
            self.state
        };
        Some(Job {
            id,
            queue: queue.clone(),
            kind: self.kind,
            state,
            payload,
            priority: self.priority,
            attempt: self.attempts + u32::from(state == JobState::Running),
            lost_leases: self.lost_leases,
            requeues: self.requeues,
            run_at: self.run_at,
            inserted_at: self.inserted_at,
            finished_at: self.finished_at,
            unique_key: self.unique_key,
            options: terms,
            history: FailureHistory::from_stored(history),
            reason: self.reason,
            held_by,
        })
    }
}

#[cfg(test)]
mod tests;
