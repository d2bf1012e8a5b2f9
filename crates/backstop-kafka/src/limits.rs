//! All bounds of the consumer that are not settings, and the ranges of those that are.

use std::time::Duration;

/// The most records of one batch, whatever the settings say.
pub(crate) const BATCH_RECORDS_LIMIT: usize = 5_000;
/// The most bytes of one batch, whatever the settings say; a single record may be larger.
pub(crate) const BATCH_BYTES_LIMIT: usize = 8 << 20;
/// The longest a record may wait for others to fill its batch.
pub(crate) const BATCH_WAIT_LIMIT: Duration = Duration::from_secs(10);
/// The most batches of one partition in the sink at once, whatever the settings say.
pub(crate) const PARTITION_BATCHES_LIMIT: usize = 64;
/// The most uncommitted records in memory, whatever the settings say.
pub(crate) const RECORDS_LIMIT: usize = 1_000_000;
/// The most characters of a topic name; Kafka itself has this bound.
pub(crate) const TOPIC_CHARS_MAX: usize = 249;

/// The shortest session timeout: below it, one late heartbeat costs the membership.
pub(crate) const SESSION_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// The longest session timeout: the client's own bound on the time between two polls.
pub(crate) const SESSION_TIMEOUT_MAX: Duration = Duration::from_mins(5);
/// The longest time between two heartbeats, however long the session timeout is.
pub(crate) const HEARTBEAT_MAX: Duration = Duration::from_secs(3);
/// The shortest time between two commits.
pub(crate) const COMMIT_EVERY_MIN: Duration = Duration::from_millis(10);
/// The longest time between two commits.
pub(crate) const COMMIT_EVERY_MAX: Duration = Duration::from_mins(1);
/// The shortest time between two measurements of the lag.
pub(crate) const LAG_EVERY_MIN: Duration = Duration::from_millis(100);
/// The longest time between two measurements of the lag.
pub(crate) const LAG_EVERY_MAX: Duration = Duration::from_mins(10);
/// The timeout for one request of a lag measurement.
pub(crate) const LAG_ANSWER_MAX: Duration = Duration::from_secs(3);
/// The longest a stop may wait for batches and commits under way.
pub(crate) const STOP_WAIT_MAX: Duration = Duration::from_mins(10);
/// How long a stop waits, after its own deadline, for the consumer to leave the group.
pub(crate) const LEAVE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The backoff after the first failure of a batch.
pub(crate) const RETRY_WAIT_MIN: Duration = Duration::from_millis(100);
/// The longest backoff between two tries of a batch.
pub(crate) const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a poll waits for a record while batches or commits are under way: the end of a batch
/// does not wake the poll.
pub(crate) const POLL_BUSY: Duration = Duration::from_millis(5);
/// How long a poll waits for a record while nothing is under way.
pub(crate) const POLL_IDLE: Duration = Duration::from_millis(100);
/// The most records taken from the client before new batches are cut.
pub(crate) const POLL_RECORDS_MAX: usize = 1_000;
