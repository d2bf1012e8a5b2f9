//! Properties of librdkafka that the consumer passes to the client.

use std::collections::BTreeMap;
use std::fmt;

/// The properties that the consumer depends on. Each has a setting of its own, or keeps the control
/// of offsets with us.
const RESERVED: [&str; 15] = [
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "log.queue",
    "metadata.broker.list",
    "offset.store.method",
    "session.timeout.ms",
];

/// Properties of librdkafka, by name. Values may be secrets, so they are never shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct KafkaProperties(BTreeMap<String, String>);

impl KafkaProperties {
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// The first property that the user may not set.
    pub(crate) fn reserved(&self) -> Option<&str> {
        self.0
            .keys()
            .map(String::as_str)
            .find(|name| RESERVED.contains(name))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for KafkaProperties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

impl fmt::Debug for KafkaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = self.0.keys().map(|name| (name, "***"));
        f.debug_map().entries(hidden).finish()
    }
}
