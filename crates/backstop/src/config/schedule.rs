//! What is said about one schedule.

use backstop_core::schedule::{Cron, MissedSettings, Zone};
use backstop_core::{Kind, QueueName, Schedule, ScheduleName, Time};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A schedule is nothing without its time and its queue; all else has a usual value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSchedule {
    cron: String,
    timezone: Option<String>,
    since: Option<Time>,
    queue: String,
    kind: Option<String>,
    #[serde(default)]
    payload: toml::Table,
    #[serde(default)]
    missed: MissedSettings,
}

impl RawSchedule {
    /// What it means, with the usual settings where it is silent.
    pub(super) fn build(self, name: ScheduleName) -> Result<Schedule, String> {
        let cron = Cron::new(&self.cron).map_err(|error| format!("`cron`: {error}"))?;
        let queue = QueueName::new(&self.queue).map_err(|error| format!("`queue`: {error}"))?;
        let usual = Schedule::new(name, cron, queue);
        let timezone = self.timezone.as_deref().map(Zone::new).transpose();
        let kind = self.kind.as_deref().map(Kind::new).transpose();
        let schedule = Schedule {
            timezone: timezone
                .map_err(|error| format!("`timezone`: {error}"))?
                .unwrap_or(Zone::UTC),
            since: self.since,
            kind: kind
                .map_err(|error| format!("`kind`: {error}"))?
                .unwrap_or_default(),
            payload: self
                .payload
                .into_iter()
                .map(|(key, value)| (key, json(value)))
                .collect(),
            missed: self.missed,
            ..usual
        };
        schedule.check()?;
        Ok(schedule)
    }
}

/// As JSON. Its dates are texts, and a number that is none in JSON is null.
fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(is) => is.into(),
        toml::Value::Datetime(at) => Value::String(at.to_string()),
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| (key, json(value)))
                .collect::<Map<_, _>>(),
        ),
    }
}
