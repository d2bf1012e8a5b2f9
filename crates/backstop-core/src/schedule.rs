//! Schedules fire jobs at instants, and a ledger records the outcome of each instant.
//!
//! | module | what it decides |
//! |---|---|
//! | [`cron`] | the instants of a schedule, also where clocks change |
//! | [`decide()`] | what to do about the instants that have no ledger entry yet |
//! | [`ledger`] | the outcome of an instant, and how the outcomes of a day are stored |
//! | [`state`] | since when a schedule counts, and when it was paused |
//!
//! Each instant fires once, however many processes run and wherever they are killed. Firing takes
//! three steps, and each of them can be repeated:
//!
//! 1. The processes agree on the outcome of an instant: the first entry in the ledger wins, by
//!    compare-and-set. An instant that is to fire is entered as *due*.
//! 2. Any process that sees a *due* entry enqueues its job. The instant determines the id and the
//!    unique key of the job, so a second enqueue is answered with the first job.
//! 3. Once the job is in its queue, *due* becomes *fired*, *late* or *made up*, depending on when
//!    the job was enqueued.
//!
//! The agreement comes first, so no process can fire an instant that another one has just given up:
//! an instant has a job if and only if the ledger says so.

pub mod cron;
pub mod decide;
pub mod ledger;
pub mod state;
#[cfg(test)]
mod tests;

pub use cron::{Cron, InvalidCron, InvalidZone, Zone};
pub use decide::{ScheduleDecision, ScheduleSnapshot, decide, expected_entries, missing};
pub use ledger::{InstantOutcome, LedgerEntry, LedgerPage, SkipReason, UtcDay};
pub use state::{LatestRun, ScheduleState};

use crate::job::{JobId, JobState, NewJob};
use crate::limits::{
    CATCH_UP_MAX, GRACE_MIN, LEDGER_KEPT, LOOK_BACK_MAX, LOOK_BACK_MIN, SCHEDULE_PAYLOAD_BYTES_MAX,
};
use crate::name::{Kind, QueueName, ScheduleName};
use crate::payload::Payload;
use crate::time::{Span, Time};
use crate::unique::{StateSet, UniqueConstraint, UniqueKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A schedule enqueues one job at each of its instants.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    pub name: ScheduleName,
    pub cron: Cron,
    pub timezone: Zone,
    /// Instants before this are never due; `None` means the time of the first registration.
    pub since: Option<Time>,
    pub queue: QueueName,
    /// The kind of the jobs, which selects their handler.
    pub kind: Kind,
    /// The payload of the jobs, apart from `instant` and `date`.
    pub payload: Map<String, Value>,
    /// What to do about missing runs.
    pub missed: MissedSettings,
}

/// What to do about missing runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MissedSettings {
    /// Whether missing runs are made up.
    pub policy: MissedPolicy,
    /// The most runs to make up at once, the newest ones; for [`MissedPolicy::All`].
    pub max: u32,
    /// How far back to look for missing runs.
    pub look_back: Span,
    /// How late a run may be before it counts as missing.
    pub grace: Span,
}

/// Whether missing runs are made up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissedPolicy {
    Skip,
    /// Make up one run, the newest, for all of them.
    #[default]
    One,
    /// Make up each of the newest `max` runs, the oldest of them first.
    All,
}

impl Default for MissedSettings {
    fn default() -> Self {
        Self {
            policy: MissedPolicy::default(),
            max: 7,
            look_back: Span::days(7),
            grace: Span::minutes(30),
        }
    }
}

impl MissedSettings {
    /// Rejects settings that cannot work, and says which values can.
    pub fn check(&self) -> Result<(), String> {
        if self.look_back < LOOK_BACK_MIN || self.look_back > LOOK_BACK_MAX {
            return Err(format!(
                "missed.look_back is {}; give {LOOK_BACK_MIN} to {LOOK_BACK_MAX}",
                self.look_back
            ));
        }
        if self.grace < GRACE_MIN || self.grace >= self.look_back {
            return Err(format!(
                "missed.grace is {}; give {GRACE_MIN} or more, and less than look_back ({})",
                self.grace, self.look_back
            ));
        }
        if self.max == 0 || self.max > CATCH_UP_MAX {
            return Err(format!(
                "missed.max is {}; give 1 to {CATCH_UP_MAX}, or policy = \"skip\" to make up nothing",
                self.max
            ));
        }
        Ok(())
    }

    /// How long the unique key of an instant prevents a second run, even after its job is gone.
    fn remembered(&self) -> Span {
        self.look_back.times(2).plus(LEDGER_KEPT)
    }
}

impl Schedule {
    /// A schedule with the default settings, in UTC.
    pub fn new(name: ScheduleName, cron: Cron, queue: QueueName) -> Self {
        Self {
            name,
            cron,
            timezone: Zone::UTC,
            since: None,
            queue,
            kind: Kind::default(),
            payload: Map::new(),
            missed: MissedSettings::default(),
        }
    }

    /// Rejects settings that cannot work, and says which values can.
    pub fn check(&self) -> Result<(), String> {
        self.missed.check()?;
        let bytes = Value::Object(self.payload.clone()).to_string().len();
        if bytes > SCHEDULE_PAYLOAD_BYTES_MAX {
            return Err(format!(
                "the payload has {bytes} bytes; at most {SCHEDULE_PAYLOAD_BYTES_MAX} go with every run"
            ));
        }
        Ok(())
    }

    /// The rule of the schedule: cron and zone, which together determine its instants.
    pub fn rule(&self) -> String {
        format!("{} {}", self.cron, self.timezone)
    }

    /// The instants in (`after`, `until`], in order.
    pub fn between(&self, after: Time, until: Time) -> impl Iterator<Item = Time> {
        self.cron
            .instants(&self.timezone, after)
            .take_while(move |instant| *instant <= until)
    }

    /// The first instant after `after`.
    pub fn next(&self, after: Time) -> Option<Time> {
        self.cron.instants(&self.timezone, after).next()
    }

    /// The job of an instant. Every process builds the same job. Its unique key prevents a second
    /// run for as long as any process could still fire the instant.
    pub fn job(&self, instant: Time) -> NewJob {
        let text = run_name(&self.name, instant);
        let key =
            UniqueKey::new(&text).expect("a name and an instant are shorter than a key may be");
        let unique = UniqueConstraint {
            key,
            period: Some(self.missed.remembered()),
            states: StateSet::of(&JobState::ALL),
        };
        NewJob {
            unique: Some(unique),
            ..self.job_by_hand(JobId::named(&text), instant)
        }
    }

    /// The job of a run that an operator triggered.
    pub fn job_by_hand(&self, id: JobId, instant: Time) -> NewJob {
        NewJob::new(
            id,
            self.queue.clone(),
            self.kind.clone(),
            self.payload_at(instant),
        )
    }

    /// The configured payload with the instant and the local date, which override fields of the
    /// same name.
    fn payload_at(&self, instant: Time) -> Payload {
        let mut fields = self.payload.clone();
        fields.insert("instant".to_owned(), Value::String(instant.to_string()));
        fields.insert(
            "date".to_owned(),
            Value::String(self.timezone.date(instant)),
        );
        Payload::from_stored(Value::Object(fields).to_string().into_bytes())
    }
}

/// The id of the job of an instant.
pub fn job_id(name: &ScheduleName, instant: Time) -> JobId {
    JobId::named(&run_name(name, instant))
}

fn run_name(name: &ScheduleName, instant: Time) -> String {
    format!("schedule:{name}:{instant}")
}
