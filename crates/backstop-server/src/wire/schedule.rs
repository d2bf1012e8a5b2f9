//! Schedules, and what became of their instants.

use backstop::core::schedule::{Entry, What, Why};
use backstop::schedules::{ScheduleStatus, Standing};
use backstop::{JobId, Schedule, ScheduleName, Time};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// All schedules, of the configuration and those that only the store has heard of.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Schedules)]
pub struct SchedulesShape {
    /// Each with its name, whether it is configured, its next and its last instant, whether it is paused, and how many runs are missing.
    pub schedules: Vec<Value>,
}

/// The shape of a schedule of the configuration.
pub fn configured(schedule: &Schedule, status: &ScheduleStatus) -> Value {
    json!({
        "name": status.name,
        "configured": true,
        "cron": schedule.cron.as_str(),
        "timezone": schedule.timezone.as_str(),
        "queue": schedule.queue,
        "kind": schedule.kind,
        "since": status.since,
        "next": status.next,
        "last": status.last,
        "paused": status.paused.is_some(),
        "paused_since": status.paused,
        "missing": status.missing,
        "missed": schedule.missed,
    })
}

/// The shape of a schedule that only the store has heard of.
pub fn known(name: &ScheduleName, standing: &Standing) -> Value {
    json!({
        "name": name,
        "configured": false,
        "since": standing.registered,
        "next": null,
        "last": standing.last,
        "paused": standing.paused.is_some(),
        "paused_since": standing.paused,
        "missing": null,
    })
}

/// The ledger of a schedule.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = ScheduleRuns)]
pub struct RunsShape<'a> {
    /// What became of each instant, the newest first.
    pub runs: Vec<RunShape>,
    /// The schedule.
    #[schema(value_type = String)]
    pub schedule: &'a ScheduleName,
}

impl<'a> RunsShape<'a> {
    /// The shape of a ledger.
    pub fn new(schedule: &'a ScheduleName, runs: &[Entry]) -> Self {
        Self { runs: runs.iter().map(|entry| RunShape::new(entry, schedule)).collect(), schedule }
    }
}

/// What became of an instant.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = ScheduleRun)]
pub struct RunShape {
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

impl RunShape {
    fn new(entry: &Entry, schedule: &ScheduleName) -> Self {
        let into = match entry.what {
            What::Coalesced(into) => Some(into),
            _ => None,
        };
        Self {
            at: entry.at,
            instant: entry.instant,
            into,
            job: entry.job(schedule),
            late_ms: entry.lateness().as_millis(),
            what: entry.what.as_str(),
            why: entry.what.why().map(Why::as_str),
        }
    }
}
