//! Schedules: work that is due at instants, and a ledger of what became of each.
//!
//! | where | what it decides |
//! |---|---|
//! | [`cron`] | which instants a schedule means, also where clocks are changed |
//! | [`decide()`] | what is to be done about the instants that nobody has entered yet |
//! | [`ledger`] | what became of an instant, and how a day of that is kept |
//! | [`standing`] | since when a schedule counts, and when it was paused |
//!
//! One firing for each instant, however many processes run and wherever they are killed, in three
//! steps of which each can be repeated:
//!
//! 1. What becomes of an instant is agreed on: the first entry in the ledger counts, by
//!    compare-and-set. To fire is entered as *due*.
//! 2. Whatever is due is enqueued, by whoever sees it: with an id and a unique key that the instant
//!    gives, so that the second one is answered with the first.
//! 3. Once the queue has it, *due* becomes *fired*, *late* or *made up*, as the time says at which
//!    the job came in.
//!
//! Agreeing first means that no process can fire what another one has just given up: an instant has
//! a job if and only if the ledger says so.

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

/// Work that is due at instants.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    pub name: ScheduleName,
    pub cron: Cron,
    pub timezone: Zone,
    /// Nothing was due before this; `None` for when it was first registered.
    pub since: Option<Time>,
    pub queue: QueueName,
    /// Which handler they are for.
    pub kind: Kind,
    /// What they carry, beside `instant` and `date`.
    pub payload: Map<String, Value>,
    /// What becomes of runs that are missing.
    pub missed: MissedSettings,
}

/// What becomes of runs that are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MissedSettings {
    /// Whether they are made up.
    pub policy: MissedPolicy,
    /// At most so many at once, the newest; for [`Policy::All`].
    pub max: u32,
    /// How far back is looked for them.
    pub look_back: Span,
    /// How late a run may be before it counts as missing.
    pub grace: Span,
}

/// Whether missing runs are made up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissedPolicy {
    Skip,
    /// One run, the newest, for all of them.
    #[default]
    One,
    /// Each of the newest `max`, the oldest of them first.
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
    /// Refuses what cannot work, and says what can.
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

    /// How long nobody can fire an instant again, even when its job is long gone.
    fn remembered(&self) -> Span {
        self.look_back.times(2).plus(LEDGER_KEPT)
    }
}

impl Schedule {
    /// A schedule with the usual settings, on UTC.
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

    /// Refuses what cannot work, and says what can.
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

    /// Cron and zone: what decides which instants there are.
    pub fn rule(&self) -> String {
        format!("{} {}", self.cron, self.timezone)
    }

    /// The instants in (`after`, `until`], in order.
    pub fn between(&self, after: Time, until: Time) -> impl Iterator<Item = Time> {
        self.cron
            .instants(&self.timezone, after)
            .take_while(move |instant| *instant <= until)
    }

    /// The first instant behind `after`.
    pub fn next(&self, after: Time) -> Option<Time> {
        self.cron.instants(&self.timezone, after).next()
    }

    /// The job of an instant: the same one for everybody, and never again for as long as anybody
    /// could ask for it.
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

    /// The job of a run that somebody asked for.
    pub fn job_by_hand(&self, id: JobId, instant: Time) -> NewJob {
        NewJob::new(
            id,
            self.queue.clone(),
            self.kind.clone(),
            self.payload_at(instant),
        )
    }

    /// What is configured, with the instant and the local date; those two always win.
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

/// The id of an instant's job.
pub fn job_id(name: &ScheduleName, instant: Time) -> JobId {
    JobId::named(&run_name(name, instant))
}

fn run_name(name: &ScheduleName, instant: Time) -> String {
    format!("schedule:{name}:{instant}")
}
