//! The settings of a consumer, and their validation.

mod properties;

pub use properties::KafkaProperties;

use crate::assignment::AssignmentRules;
use crate::flow::KafkaBounds;
use crate::limits;
use crate::partition::BatchCutting;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The settings of a consumer. Created with [`KafkaSettings::new`]; the fields may then be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KafkaSettings {
    /// The addresses of the brokers: `host:port`, separated by commas.
    pub brokers: String,
    pub topics: Vec<String>,
    /// The consumer group whose members share the partitions.
    pub group: String,
    /// Further properties of librdkafka, such as those of TLS and SASL.
    pub properties: KafkaProperties,
    /// Where a group starts that has committed nothing.
    pub start: StartOffset,
    /// The most records of one batch.
    pub batch_records_max: usize,
    /// The most bytes of one batch; a record that is larger comes alone.
    pub batch_bytes_max: usize,
    /// How long a record waits for others to fill its batch.
    pub batch_wait: Duration,
    /// The most batches of one partition in the sink at once. With one, the sink gets the records
    /// of a partition in their order, whatever fails. Larger values are for sinks that order
    /// records themselves.
    pub partition_batches_max: usize,
    /// The most records of one partition that were handed to the sink and are not committed. After
    /// a crash, up to this many come twice.
    pub partition_uncommitted_max: usize,
    /// The most records of one partition that wait for the sink; at this bound the partition is
    /// paused. With room for two seconds of work, the sink never waits for the brokers.
    pub partition_waiting_max: usize,
    /// The most records of all partitions that have arrived and are not committed. Leave room for
    /// some stuck partitions: once they have used it up, all other partitions wait for them.
    pub records_max: usize,
    /// The most bytes of all records that have arrived and are not accepted.
    pub bytes_max: usize,
    /// How long the group waits for a silent member before its partitions go to others.
    pub session_timeout: Duration,
    /// How long offsets wait to be committed together. If many records can be committed, they do
    /// not wait.
    pub commit_every: Duration,
    /// How often the lag is measured.
    pub lag_every: Duration,
    /// How long a stop waits for batches and commits under way.
    pub stop_wait: Duration,
}

/// Where a group starts that has committed nothing, or whose offset the broker no longer has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartOffset {
    /// With the oldest record that the broker still has.
    Earliest,
    /// With the first record that arrives after joining. Until the first commit of a partition,
    /// each new owner starts in the same way, so records may be skipped.
    Latest,
}

/// Why a consumer rejects its settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaSettingsError {
    #[error("`{0}` is empty; say at least one")]
    Empty(&'static str),
    /// No topic can have this name.
    #[error(
        "`{0}` cannot be a topic: names have 1 to {max} of A-Z a-z 0-9 . _ -",
        max = limits::TOPIC_CHARS_MAX
    )]
    Topic(String),
    /// A value is too small or too large.
    #[error("`{setting}` is {is}; set it to {min} or more, {max} or less")]
    Range {
        setting: &'static str,
        is: String,
        /// The smallest value that is allowed.
        min: String,
        /// The largest value that is allowed.
        max: String,
    },
    /// A bound is smaller than another one that has to fit into it.
    #[error(
        "`{setting}` is smaller than `{than}`, so nothing could move; raise the one or lower the other"
    )]
    Smaller {
        setting: &'static str,
        /// The setting that has to fit into it.
        than: &'static str,
    },
    /// The consumer sets this property itself.
    #[error("the property `{0}` is set by the source itself; remove it from `properties`")]
    Property(String),
}

impl KafkaSettings {
    /// Settings for reading topics as a member of a group, with everything else at its default.
    pub fn new<T: Into<String>>(
        brokers: impl Into<String>,
        topics: impl IntoIterator<Item = T>,
        group: impl Into<String>,
    ) -> Self {
        Self {
            brokers: brokers.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            group: group.into(),
            properties: KafkaProperties::default(),
            start: StartOffset::Earliest,
            batch_records_max: 500,
            batch_bytes_max: 1 << 20,
            batch_wait: Duration::from_millis(20),
            partition_batches_max: 1,
            partition_uncommitted_max: 5_000,
            partition_waiting_max: 20_000,
            records_max: 200_000,
            bytes_max: 64 << 20,
            session_timeout: Duration::from_secs(45),
            commit_every: Duration::from_millis(200),
            lag_every: Duration::from_secs(5),
            stop_wait: Duration::from_secs(30),
        }
    }

    /// Checks whether a consumer can be started with these settings.
    pub fn check(&self) -> Result<(), KafkaSettingsError> {
        self.check_names()?;
        self.check_bounds()?;
        self.check_times()?;
        match self.properties.reserved() {
            Some(name) => Err(KafkaSettingsError::Property(name.to_owned())),
            None => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), KafkaSettingsError> {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
        let is_topic = |topic: &&String| {
            (1..=limits::TOPIC_CHARS_MAX).contains(&topic.len()) && topic.chars().all(is_legal)
        };
        match () {
            () if self.brokers.trim().is_empty() => Err(KafkaSettingsError::Empty("brokers")),
            () if self.topics.is_empty() => Err(KafkaSettingsError::Empty("topics")),
            () if self.group.is_empty() => Err(KafkaSettingsError::Empty("group")),
            () => match self.topics.iter().find(|topic| !is_topic(topic)) {
                Some(topic) => Err(KafkaSettingsError::Topic(topic.clone())),
                None => Ok(()),
            },
        }
    }

    fn check_bounds(&self) -> Result<(), KafkaSettingsError> {
        within(
            "batch_records_max",
            &self.batch_records_max,
            1..=limits::BATCH_RECORDS_LIMIT,
        )?;
        within(
            "batch_bytes_max",
            &self.batch_bytes_max,
            1..=limits::BATCH_BYTES_LIMIT,
        )?;
        within(
            "partition_batches_max",
            &self.partition_batches_max,
            1..=limits::PARTITION_BATCHES_LIMIT,
        )?;
        within("records_max", &self.records_max, 1..=limits::RECORDS_LIMIT)?;
        let (batch, waiting) = (self.batch_records_max, self.partition_waiting_max);
        let fits = [
            (
                "partition_uncommitted_max",
                self.partition_uncommitted_max,
                "batch_records_max",
                batch,
            ),
            ("partition_waiting_max", waiting, "batch_records_max", batch),
            (
                "records_max",
                self.records_max,
                "partition_waiting_max",
                waiting,
            ),
            (
                "bytes_max",
                self.bytes_max,
                "batch_bytes_max",
                self.batch_bytes_max,
            ),
        ];
        match fits.into_iter().find(|(_, bound, _, inner)| bound < inner) {
            Some((setting, _, than, _)) => Err(KafkaSettingsError::Smaller { setting, than }),
            None => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), KafkaSettingsError> {
        let zero = Duration::ZERO;
        within(
            "batch_wait",
            &self.batch_wait,
            zero..=limits::BATCH_WAIT_LIMIT,
        )?;
        let sessions = limits::SESSION_TIMEOUT_MIN..=limits::SESSION_TIMEOUT_MAX;
        within("session_timeout", &self.session_timeout, sessions)?;
        within(
            "commit_every",
            &self.commit_every,
            limits::COMMIT_EVERY_MIN..=limits::COMMIT_EVERY_MAX,
        )?;
        within(
            "lag_every",
            &self.lag_every,
            limits::LAG_EVERY_MIN..=limits::LAG_EVERY_MAX,
        )?;
        within("stop_wait", &self.stop_wait, zero..=limits::STOP_WAIT_MAX)
    }

    /// The rules that the assignment follows.
    pub(crate) fn rules(&self) -> AssignmentRules {
        AssignmentRules {
            cutting: BatchCutting {
                records_max: self.batch_records_max,
                bytes_max: self.batch_bytes_max,
                wait: self.batch_wait,
                batches_max: self.partition_batches_max,
                uncommitted_max: self.partition_uncommitted_max,
            },
            bounds: KafkaBounds {
                partition_waiting: self.partition_waiting_max,
                records: self.records_max,
                bytes: self.bytes_max,
            },
            commit_every: self.commit_every,
        }
    }
}

fn within<T: PartialOrd + fmt::Debug>(
    setting: &'static str,
    is: &T,
    range: RangeInclusive<T>,
) -> Result<(), KafkaSettingsError> {
    if range.contains(is) {
        return Ok(());
    }
    let (is, min, max) = (
        format!("{is:?}"),
        format!("{:?}", range.start()),
        format!("{:?}", range.end()),
    );
    Err(KafkaSettingsError::Range {
        setting,
        is,
        min,
        max,
    })
}

#[cfg(test)]
mod tests;
