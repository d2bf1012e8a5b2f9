//! Every bound of the source that is not a setting, and the ranges of those that are.

use std::time::Duration;

/// Records of one batch at most, whatever the settings say.
pub(crate) const BATCH_RECORDS_LIMIT: usize = 5_000;
/// Bytes of one batch at most, whatever the settings say; a single record may be larger.
pub(crate) const BATCH_BYTES_LIMIT: usize = 8 << 20;
/// The longest a record may wait for company.
pub(crate) const BATCH_WAIT_LIMIT: Duration = Duration::from_secs(10);
/// Batches of one partition that may be with the sink at once, whatever the settings say.
pub(crate) const PARTITION_BATCHES_LIMIT: usize = 64;
/// Records in hand at most, whatever the settings say.
pub(crate) const RECORDS_LIMIT: usize = 1_000_000;
/// Characters of a topic's name, a bound of Kafka's own.
pub(crate) const TOPIC_CHARS_MAX: usize = 249;

/// The shortest session: below it one late heartbeat costs the membership.
pub(crate) const SESSION_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// The longest session: the client's own bound on the time between two polls.
pub(crate) const SESSION_TIMEOUT_MAX: Duration = Duration::from_mins(5);
/// The longest time between two heartbeats, however long the session.
pub(crate) const HEARTBEAT_MAX: Duration = Duration::from_secs(3);
/// The shortest pause between two commits.
pub(crate) const COMMIT_EVERY_MIN: Duration = Duration::from_millis(10);
/// The longest pause between two commits.
pub(crate) const COMMIT_EVERY_MAX: Duration = Duration::from_mins(1);
/// The shortest pause between two measurements of the lag.
pub(crate) const LAG_EVERY_MIN: Duration = Duration::from_millis(100);
/// The longest pause between two measurements of the lag.
pub(crate) const LAG_EVERY_MAX: Duration = Duration::from_mins(10);
/// How long one question of a measurement may stay unanswered.
pub(crate) const LAG_ANSWER_MAX: Duration = Duration::from_secs(3);
/// The longest a stop may wait for what is under way.
pub(crate) const STOP_WAIT_MAX: Duration = Duration::from_mins(10);
/// How long a stop waits, after its own deadline, for the group to be left.
pub(crate) const LEAVE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The wait after a batch has failed once.
pub(crate) const RETRY_WAIT_MIN: Duration = Duration::from_millis(100);
/// The longest wait between two tries of a batch.
pub(crate) const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a poll waits for a record while something is under way: the ends of batches do not wake
/// it.
pub(crate) const POLL_BUSY: Duration = Duration::from_millis(5);
/// How long a poll waits for a record while nothing is under way.
pub(crate) const POLL_IDLE: Duration = Duration::from_millis(100);
/// Records taken from the client before batches are cut again.
pub(crate) const POLL_RECORDS_MAX: usize = 1_000;
