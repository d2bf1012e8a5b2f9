//! Schedules, and what became of their instants.

use backstop::core::schedule::{InstantOutcome, LedgerEntry, SkipReason};
use backstop::schedules::{LatestRun, MissedSettings, ScheduleState, ScheduleStatus};
use backstop::{JobId, Kind, QueueName, Schedule, ScheduleName, Time};
use serde::Serialize;
use utoipa::ToSchema;

/// All schedules, of the configuration and those that only the store has heard of.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Schedules)]
pub struct SchedulesShape {
    /// Those of the configuration by name, then the others.
    pub schedules: Vec<ScheduleShape>,
}

/// A schedule as it stands.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Schedule)]
pub struct ScheduleShape {
    /// Whether it is in the configuration of this server; of others only what the store has heard
    /// is known.
    configured: bool,
    /// When it is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    cron: Option<String>,
    /// The kind of its jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, nullable = false)]
    kind: Option<Kind>,
    /// Its newest run.
    #[schema(value_type = Option<ScheduleLastShape>)]
    last: Option<LatestRun>,
    /// What becomes of runs that are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ScheduleMissedShape, required = false, nullable = false)]
    missed: Option<MissedSettings>,
    /// How many runs are missing, and still to be dealt with; null if it is not configured.
    missing: Option<usize>,
    /// Its name.
    #[schema(value_type = String)]
    name: ScheduleName,
    /// The next instant; null while it is paused, or is not configured.
    #[schema(value_type = Option<String>, format = DateTime)]
    next: Option<Time>,
    /// Whether it is paused.
    paused: bool,
    /// Since when.
    #[schema(value_type = Option<String>, format = DateTime)]
    paused_since: Option<Time>,
    /// Where its jobs go.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, nullable = false)]
    queue: Option<QueueName>,
    /// From when on its instants are expected.
    #[schema(value_type = String, format = DateTime)]
    since: Time,
    /// Where that is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    timezone: Option<String>,
}

/// The newest run of a schedule.
#[derive(ToSchema)]
#[schema(as = ScheduleLast)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct ScheduleLastShape {
    /// The instant.
    #[schema(format = DateTime)]
    instant: String,
    /// What became of it.
    what: String,
    /// When that was entered.
    #[schema(format = DateTime)]
    at: String,
}

/// What becomes of runs that are missing.
#[derive(ToSchema)]
#[schema(as = ScheduleMissed)]
#[expect(dead_code, reason = "it describes; what writes is the library's")]
pub(crate) struct ScheduleMissedShape {
    /// skip, one or all.
    policy: String,
    /// At most so many are made up.
    max: u32,
    /// How far back they are looked for, such as `7d`.
    look_back: String,
    /// How late a run may be before it is missing.
    grace: String,
}

impl ScheduleShape {
    /// The shape of a schedule of the configuration.
    pub fn configured(schedule: &Schedule, status: &ScheduleStatus) -> Self {
        Self {
            name: status.name.clone(),
            configured: true,
            cron: Some(schedule.cron.as_str().to_owned()),
            timezone: Some(schedule.timezone.as_str().to_owned()),
            queue: Some(schedule.queue.clone()),
            kind: Some(schedule.kind.clone()),
            since: status.since,
            next: status.next,
            last: status.last.clone(),
            paused: status.paused.is_some(),
            paused_since: status.paused,
            missing: Some(status.missing),
            missed: Some(schedule.missed),
        }
    }

    /// The shape of a schedule that only the store has heard of.
    pub fn known(name: &ScheduleName, schedule_state: &ScheduleState) -> Self {
        Self {
            name: name.clone(),
            configured: false,
            cron: None,
            timezone: None,
            queue: None,
            kind: None,
            since: schedule_state.registered,
            next: None,
            last: schedule_state.last.clone(),
            paused: schedule_state.paused.is_some(),
            paused_since: schedule_state.paused,
            missing: None,
            missed: None,
        }
    }
}

/// A run that was asked for.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = ScheduleTriggered)]
pub struct ScheduleTriggeredShape<'a> {
    /// The instant it was given: when it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub instant: Time,
    /// Its job.
    #[schema(value_type = String)]
    pub job: JobId,
    /// The schedule.
    #[schema(value_type = String)]
    pub schedule: &'a ScheduleName,
}

/// The ledger of a schedule.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = ScheduleRuns)]
pub struct ScheduleRunsShape<'a> {
    /// What became of each instant, the newest first.
    pub runs: Vec<ScheduleRunShape>,
    /// The schedule.
    #[schema(value_type = String)]
    pub schedule: &'a ScheduleName,
}

impl<'a> ScheduleRunsShape<'a> {
    /// The shape of a ledger.
    pub fn new(schedule: &'a ScheduleName, runs: &[LedgerEntry]) -> Self {
        Self {
            runs: runs
                .iter()
                .map(|entry| ScheduleRunShape::new(entry, schedule))
                .collect(),
            schedule,
        }
    }
}

/// What became of an instant.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = ScheduleRun)]
pub struct ScheduleRunShape {
    /// When that was entered.
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    /// The instant.
    #[schema(value_type = String, format = DateTime)]
    instant: Time,
    /// The later instant that stands for it, if it was coalesced.
    #[schema(value_type = Option<String>, format = DateTime)]
    into: Option<Time>,
    /// Its job, if it has one.
    #[schema(value_type = Option<String>)]
    job: Option<JobId>,
    /// How long after the instant.
    late_ms: i64,
    /// due, fired, late, `made_up`, coalesced, missed, skipped or triggered.
    what: &'static str,
    /// Why it was missed or skipped.
    why: Option<&'static str>,
}

impl ScheduleRunShape {
    fn new(entry: &LedgerEntry, schedule: &ScheduleName) -> Self {
        let into = match entry.outcome {
            InstantOutcome::Coalesced(into) => Some(into),
            _ => None,
        };
        Self {
            at: entry.at,
            instant: entry.instant,
            into,
            job: entry.job(schedule),
            late_ms: entry.lateness().as_millis(),
            what: entry.outcome.as_str(),
            why: entry.outcome.reason().map(SkipReason::as_str),
        }
    }
}
