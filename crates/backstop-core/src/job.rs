//! A job: what a producer pushes, and what an operator sees.

use crate::failure::FailureHistory;
use crate::fingerprint::Fingerprint;
use crate::job_options::JobOptions;
use crate::lease::WorkerName;
use crate::limits::DELAY_MAX;
use crate::name::{Kind, QueueName};
use crate::payload::Payload;
use crate::retry::RetryPolicy;
use crate::time::{Span, Time};
use crate::trace::TraceContext;
use crate::unique::{UniqueConstraint, UniqueKey};
use crate::verdict::EndReason;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// Identifies one job for ever. The producer makes it, so that a repeated push is harmless.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Uuid);

impl JobId {
    /// A UUID that begins with the time: a store then appends to its index instead of scattering
    /// writes over it.
    pub fn at(now: Time, random: [u8; 10]) -> Self {
        Self(
            uuid::Builder::from_unix_timestamp_millis(
                now.as_millis().max(0).unsigned_abs(),
                &random,
            )
            .into_uuid(),
        )
    }

    /// The id of a name. The same name always gives the same id, and so the same job.
    pub fn named(name: &str) -> Self {
        let digest = Sha256::digest(name.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Parses a UUID; takes any other text as a name.
    pub fn from_text(text: &str) -> Self {
        text.parse().unwrap_or_else(|_| Self::named(text))
    }

    /// An id that a store read back.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl FromStr for JobId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_text(&String::deserialize(deserializer)?))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits until it is due, and did not get here by a failure.
    Scheduled,
    Ready,
    /// A worker holds it under a lease.
    Running,
    /// Waits until it is due, after a failure.
    Retrying,
    Done,
    /// Backstop gave it up. Final, until an operator requeues it.
    Dead,
    /// An operator or the handler called it off. Final, until an operator requeues it.
    Cancelled,
}

impl JobState {
    /// All states, in the order in which people think of them.
    pub const ALL: [Self; 7] = [
        Self::Scheduled,
        Self::Ready,
        Self::Running,
        Self::Retrying,
        Self::Done,
        Self::Dead,
        Self::Cancelled,
    ];

    /// Whether a job in this state has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a state; states are scheduled, ready, running, retrying, done, dead, cancelled"
)]
pub struct InvalidJobState(String);

impl FromStr for JobState {
    type Err = InvalidJobState;

    fn from_str(text: &str) -> Result<Self, InvalidJobState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| InvalidJobState(text.to_owned()))
    }
}

/// The priority of a job. Within one level, jobs run in the order in which they became ready.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// Runs before everything else in the queue.
    Critical,
    High,
    #[default]
    Normal,
    Low,
}

impl Priority {
    /// All levels, from the most urgent to the least.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    /// The level as a number: 0 is the most urgent, 3 the least.
    pub const fn level(self) -> u8 {
        self as u8
    }

    /// The priority of a level from 0 to 3.
    pub fn from_level(level: u8) -> Option<Self> {
        Self::ALL.get(usize::from(level)).copied()
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is not a priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a priority; use critical, high, normal or low, or 0 to 3")]
pub struct InvalidPriority(String);

impl FromStr for Priority {
    type Err = InvalidPriority;

    fn from_str(text: &str) -> Result<Self, InvalidPriority> {
        let by_word = Self::ALL
            .into_iter()
            .find(|priority| priority.as_str() == text);
        by_word
            .or_else(|| text.parse().ok().and_then(Self::from_level))
            .ok_or_else(|| InvalidPriority(text.to_owned()))
    }
}

impl Serialize for Priority {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Priority {
    /// Accepts the word, or the level as a number.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum WordOrLevel {
            Word(String),
            Level(u8),
        }
        match WordOrLevel::deserialize(deserializer)? {
            WordOrLevel::Word(word) => word.parse().map_err(serde::de::Error::custom),
            WordOrLevel::Level(level) => Self::from_level(level)
                .ok_or_else(|| serde::de::Error::custom(InvalidPriority(level.to_string()))),
        }
    }
}

/// The requested time to run is further ahead than [`DELAY_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "`delay` and `run_at` reach at most ten years ({DELAY_MAX}) ahead; this job would run later"
)]
pub struct RunAtTooFar;

/// Refuses a time to run that is further ahead than [`DELAY_MAX`].
pub fn check_run_at(run_at: Option<Time>, now: Time) -> Result<(), RunAtTooFar> {
    if run_at.is_some_and(|at| at > now.after(DELAY_MAX)) {
        Err(RunAtTooFar)
    } else {
        Ok(())
    }
}

/// A job as its producer pushes it.
#[derive(Clone, PartialEq, Debug)]
pub struct NewJob {
    pub id: JobId,
    pub queue: QueueName,
    /// Selects the handler that runs it.
    pub kind: Kind,
    pub payload: Payload,
    pub priority: Priority,
    /// The job does not run before this; `None` means as soon as possible.
    pub run_at: Option<Time>,
    /// Allows at most one live job per key.
    pub unique: Option<UniqueConstraint>,
    /// The job's own retry policy; `None` means the queue's.
    pub retry: Option<RetryPolicy>,
    /// The span that pushed the job; the spans of its runs link to it.
    pub trace: Option<TraceContext>,
}

impl NewJob {
    /// A job of normal priority that runs as soon as possible.
    pub fn new(id: JobId, queue: QueueName, kind: Kind, payload: Payload) -> Self {
        Self {
            id,
            queue,
            kind,
            payload,
            priority: Priority::default(),
            run_at: None,
            unique: None,
            retry: None,
            trace: None,
        }
    }

    /// Refuses a job that would wait longer than [`DELAY_MAX`].
    pub fn check_run_at(&self, now: Time) -> Result<(), RunAtTooFar> {
        check_run_at(self.run_at, now)
    }

    /// The state in which the job starts: scheduled if it is not due yet, else ready.
    pub fn first_state(&self, now: Time) -> JobState {
        if self.run_at.is_some_and(|at| at > now) {
            JobState::Scheduled
        } else {
            JobState::Ready
        }
    }
}

/// A job as an operator sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    pub id: JobId,
    /// The queue where the job waits, ran or died.
    pub queue: QueueName,
    /// Selects the handler that runs it.
    pub kind: Kind,
    pub state: JobState,
    pub payload: Payload,
    pub priority: Priority,
    /// Runs that ended by themselves, plus the current one while the job runs.
    pub attempt: u32,
    pub lost_leases: u32,
    /// How often an operator requeued it.
    pub requeues: u32,
    pub run_at: Time,
    pub inserted_at: Time,
    /// When the job ended, if it has.
    pub finished_at: Option<Time>,
    /// The unique key that the job holds or held.
    pub unique_key: Option<UniqueKey>,
    /// Its own retry policy and its trace context, if it has them.
    pub options: JobOptions,
    /// The failures of its runs so far.
    pub history: FailureHistory,
    /// Why it ended as dead or cancelled.
    pub reason: Option<EndReason>,
    /// Which worker runs it, since when, and when its lease ends; only while the job runs.
    pub held_by: Option<Claimant>,
}

impl Job {
    /// The fingerprint of its death, if it is dead: deaths of the same cause share one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        (self.state == JobState::Dead).then(|| Fingerprint::of_death(self.reason, &self.history))
    }

    /// How long ago the job was enqueued.
    pub fn age(&self, now: Time) -> Span {
        now.since(self.inserted_at)
    }

    /// When its worker claimed it; `None` if the job does not run.
    pub fn started_at(&self) -> Option<Time> {
        self.held_by.as_ref().map(|claimant| claimant.since)
    }

    /// How long its worker has held it; zero if the clock was set back since the claim.
    pub fn running_for(&self, now: Time) -> Option<Span> {
        self.started_at().map(|since| now.since(since))
    }
}

/// The worker that holds a running job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claimant {
    pub worker: WorkerName,
    /// The `now` of the claim, or of the seizure that gave it the job. Heartbeats do not change
    /// it.
    pub since: Time,
    /// When the lease ends, unless a heartbeat renews it.
    pub until: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_names_are_stable() {
        let early = JobId::at(Time::from_millis(1_000), [255; 10]);
        let late = JobId::at(Time::from_millis(1_001), [0; 10]);
        assert!(early < late);
        assert_eq!(JobId::named("order-17"), JobId::named("order-17"));
        assert_ne!(JobId::named("order-17"), JobId::named("order-18"));
        assert_eq!(JobId::from_text(&early.to_string()), early);
        assert_eq!(JobId::from_text("order-17"), JobId::named("order-17"));
    }

    #[test]
    fn words_read_back() {
        for state in JobState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        for priority in Priority::ALL {
            assert_eq!(priority.as_str().parse(), Ok(priority));
            assert_eq!(Priority::from_level(priority.level()), Some(priority));
        }
        assert_eq!("2".parse(), Ok(Priority::Normal));
        assert!("4".parse::<Priority>().is_err());
        assert!("Ready".parse::<JobState>().is_err());
    }

    #[test]
    fn a_job_is_scheduled_only_for_a_time_to_come() {
        let now = Time::from_millis(10);
        let check = |run_at: Option<i64>, state| {
            let queue = QueueName::new("q").expect("a name");
            let mut job = NewJob::new(
                JobId::named("a"),
                queue,
                Kind::default(),
                Payload::default(),
            );
            job.run_at = run_at.map(Time::from_millis);
            assert_eq!(job.first_state(now), state, "{run_at:?}");
        };
        check(None, JobState::Ready);
        check(Some(9), JobState::Ready);
        check(Some(10), JobState::Ready);
        check(Some(11), JobState::Scheduled);
    }
}
