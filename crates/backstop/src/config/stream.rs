//! What is said about one stream.

use super::HandlerConfig;
use super::raw::RawHandler;
use crate::streams::{
    DeadRecordPolicy, DrainMode, LatePolicy, RecordFields, Rollout, StepField, StreamRules,
    StreamSettings,
};
use backstop_core::retry::deserialize_for_stream;
use backstop_core::{RetryPolicy, Span};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What is said about one stream.
#[derive(Clone, Debug, Default)]
pub struct StreamConfig {
    /// What handles it, if anything here does.
    pub handler: Option<HandlerConfig>,
    /// Where in a record its parts are, if that is said.
    pub fields: Option<RecordFields>,
    /// How far apart positions are, if that is said.
    pub step: Option<StepField>,
    pub settings: StreamSettings,
    /// Where its records come from by themselves.
    pub source: Option<KafkaSource>,
}

/// A topic whose records are a stream.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSource {
    /// Where the cluster is: host:port, host:port.
    pub brokers: String,
    pub topic: String,
    pub group: String,
    /// Further properties of the client, as librdkafka names them: for TLS and passwords.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawStream {
    handler: Option<RawHandler>,
    key: Option<String>,
    position: Option<String>,
    tenant: Option<String>,
    step: Option<String>,
    steps: Option<Vec<Span>>,
    max_held: Option<u32>,
    max_misses: Option<u32>,
    hold_for: Option<Span>,
    drain: Option<DrainMode>,
    late: Option<LatePolicy>,
    on_dead: Option<DeadRecordPolicy>,
    rollout: Option<Rollout>,
    #[serde(deserialize_with = "deserialize_for_stream")]
    retry: Option<RetryPolicy>,
    concurrency: Option<usize>,
    lease: Option<Span>,
    run: Option<usize>,
    source: Option<RawSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSource {
    kafka: KafkaSource,
}

impl StreamConfig {
    /// The entry of a stream as JSON.
    pub fn from_json(json: &str) -> Result<Self, String> {
        let raw: RawStream = serde_json::from_str(json).map_err(|error| error.to_string())?;
        raw.build()
    }
}

impl RawStream {
    /// What it means, with the usual settings where it is silent.
    pub(super) fn build(self) -> Result<StreamConfig, String> {
        let usual = StreamSettings::default();
        let step = self
            .step
            .as_deref()
            .map(StepField::parse)
            .transpose()
            .map_err(|error| format!("`step`: {error}"))?;
        let fields = fields(self.key, self.position, self.tenant, step.clone())?;
        if self.source.is_some() && fields.is_none() {
            return Err(
                "a `source` needs to know where in its records `key` and `position` are, such as \"/id\""
                    .to_owned(),
            );
        }
        let timeout = self.handler.as_ref().and_then(RawHandler::timeout);
        let handler = self.handler.map(RawHandler::build).transpose()?;
        let StreamRules {
            steps,
            max_held,
            max_misses,
            hold_for,
            drain,
            late,
            on_dead,
            rollout,
            retry,
        } = usual.rules;
        let settings = StreamSettings {
            rules: StreamRules {
                steps: self.steps.unwrap_or(steps),
                max_held: self.max_held.unwrap_or(max_held),
                max_misses: self.max_misses.unwrap_or(max_misses),
                hold_for: self.hold_for.unwrap_or(hold_for),
                drain: self.drain.unwrap_or(drain),
                late: self.late.unwrap_or(late),
                on_dead: self.on_dead.unwrap_or(on_dead),
                rollout: self.rollout.unwrap_or(rollout),
                retry: self.retry.unwrap_or(retry),
            },
            concurrency: self.concurrency.unwrap_or(usual.concurrency),
            lease: self.lease.unwrap_or(usual.lease),
            run: self.run.unwrap_or(usual.run),
            timeout,
            ..StreamSettings::default()
        };
        settings.check()?;
        Ok(StreamConfig {
            handler: handler.map(|handler| handler.within(timeout)),
            fields,
            step,
            settings,
            source: self.source.map(|source| source.kafka),
        })
    }
}

fn fields(
    key: Option<String>,
    position: Option<String>,
    tenant: Option<String>,
    step: Option<StepField>,
) -> Result<Option<RecordFields>, String> {
    for (name, pointer) in [("key", &key), ("position", &position), ("tenant", &tenant)] {
        if let Some(pointer) = pointer.as_ref().filter(|pointer| !pointer.starts_with('/')) {
            return Err(format!(
                "`{name}` is a JSON pointer and begins with /, such as \"/{pointer}\""
            ));
        }
    }
    match (key, position, step) {
        (Some(key), Some(position), Some(step)) => Ok(Some(RecordFields {
            key,
            position,
            tenant,
            step,
        })),
        (None, None, _) if tenant.is_none() => Ok(None),
        (key, position, step) => {
            let missing = [
                ("key", key.is_none()),
                ("position", position.is_none()),
                ("step", step.is_none()),
            ];
            let missing: Vec<&str> = missing
                .iter()
                .filter(|(_, is)| *is)
                .map(|(name, _)| *name)
                .collect();
            Err(format!(
                "`key`, `position` and `step` say together where a record's place is; `{}` is missing",
                missing.join("`, `")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_entry_is_read() {
        let json = r#"{"key":"/subscription_id","position":"/scheduled_check_time_ms","tenant":"/organization_id","step":"5m",
            "steps":["10s","20s","30s","60s","60s"],"max_held":10,"max_misses":100,"hold_for":"60m","drain":"immediate","late":"drop",
            "on_dead":"skip","rollout":{"percent":100,"include":[],"exclude":[]},
            "retry":{"kind":"steps","delays":["1s","5s"],"max_attempts":3},"handler":{"exec":["./handle"]},
            "source":{"kafka":{"brokers":"b:9092","topic":"uptime-results","group":"uptime"}}}"#;
        let config = StreamConfig::from_json(json).unwrap();
        let usual = StreamRules {
            retry: config.settings.rules.retry.clone(),
            ..StreamRules::default()
        };
        assert_eq!(config.settings.rules, usual);
        assert_eq!(config.step.unwrap().usual(), Some(300_000));
        assert_eq!(config.source.unwrap().topic, "uptime-results");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_write() {
        let refused = |json: &str| StreamConfig::from_json(json).unwrap_err();
        assert!(refused(r#"{"max_held":0}"#).contains("max_held is 0; give 1 to"));
        assert!(refused(r#"{"steps":[]}"#).contains("steps has 0 waits"));
        assert!(refused(r#"{"max_hold":1}"#).contains("unknown field `max_hold`"));
        assert!(
            refused(r#"{"key":"id","position":"/p","step":"1m"}"#)
                .contains("begins with /, such as \"/id\"")
        );
        assert!(refused(r#"{"key":"/id","step":"1m"}"#).contains("`position` is missing"));
        assert!(refused(r#"{"step":"often"}"#).contains("`step`"));
        assert!(refused(r#"{"rollout":{"percent":101}}"#).contains("rollout.percent is 101"));
    }
}
