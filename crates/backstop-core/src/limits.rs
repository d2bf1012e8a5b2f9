//! Every bound in one place. A queue, batch, text or loop without an entry here is unbounded by
//! mistake.

use crate::time::Span;

/// Bytes of one job's payload.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of all payloads of one enqueue.
pub const ENQUEUE_BYTES_MAX: usize = 8 << 20;
pub const ENQUEUE_JOBS_MAX: usize = 5_000;
/// Nesting depth of a JSON payload.
pub const PAYLOAD_DEPTH_MAX: usize = 128;
/// Jobs that one claim may lease, over all its queues.
pub const CLAIM_JOBS_MAX: usize = 2_000;
/// Bytes of payloads after which a claim leases no further job. It always leases at least one.
pub const CLAIM_BYTES_MAX: usize = 4 << 20;
/// Queues of a store, unless its configuration names another number. Beyond it a push to a new
/// queue is refused.
pub const QUEUES_MAX: usize = 10_000;
/// Streams of a store, without the configured ones. Beyond it a server refuses records for a new
/// stream.
pub const STREAMS_MAX: usize = 1_000;
/// New queues and streams that one token may name in pushes to one server process.
pub const TOKEN_QUEUES_MAX: usize = 1_000;
/// How long a queue that nobody configured has to be empty before the store forgets it. Longer than
/// a day, so that a queue with one job a day keeps its totals.
pub const QUEUE_KEPT_FOR: Span = Span::hours(48);
/// A worker takes the refusals of one kind of call for final after at least this many in a row,
/// with no other answer in between.
pub const REFUSALS_MIN: u32 = 3;
/// Such refusals must also last at least this long, or the worker's longest lease. A change of
/// permissions or a failover takes less.
pub const REFUSED_FOR: Span = Span::secs(30);
/// The same for a kind of call that was never answered for this worker: nothing shows that it ever
/// had the permission.
pub const REFUSED_AT_START_FOR: Span = Span::secs(5);
pub const DECLARE_MAX: usize = 1_000;
/// Queues that one claim may name.
pub const CLAIM_QUEUES_MAX: usize = 256;
pub const SETTLE_MAX: usize = 5_000;
/// Leases that one heartbeat may name.
pub const BEAT_LEASES_MAX: usize = 50_000;
pub const PROMOTE_MAX: usize = 1_000;
/// Expired leases that one call takes over. Recovery works in small steps so that producers are not
/// kept waiting.
pub const SEIZE_MAX: usize = 500;
/// Leases without jobs that one seizure removes on its way to leases with jobs.
pub const SEIZE_EMPTIED_MAX: usize = 12_000;
/// Expired leases that are counted for a report; more of them are reported as this many.
pub const EXPIRED_COUNTED_MAX: usize = 1_000;
/// Jobs that one call of an amendment changes, and ids that it may name; the caller continues at
/// `next`.
pub const AMEND_MAX: usize = 1_000;
/// Dead letters that one call inserts.
pub const BURY_MAX: usize = 1_000;
/// Jobs that one call reads by id. The limit is low because payloads come with them.
pub const FIND_MAX: usize = 200;
/// Unique keys that one call looks up.
pub const HOLDERS_MAX: usize = 1_000;
/// Groups of dead letters that one call returns.
pub const GROUPS_MAX: usize = 1_000;
/// Cells that one call reads, lists or changes.
pub const CELLS_MAX: usize = 1_000;
/// Bytes of a cell's value.
pub const CELL_BYTES_MAX: usize = 64 << 10;
/// Bytes of a cell's name.
pub const CELL_NAME_BYTES_MAX: usize = 512;
/// Ended jobs that one pruning removes.
pub const PRUNE_MAX: usize = 2_000;
/// Queues that one pruning checks; the next one continues behind them.
pub const PRUNE_QUEUES_MAX: usize = 500;
/// Lists, searches and pages that a server works on at once for one caller.
pub const CALLER_READS_MAX: usize = 4;
/// Reads of one caller that may wait beyond that.
pub const CALLER_READS_WAITING_MAX: usize = 16;
/// Callers whose reads a server counts at once. Beyond it, callers without a running read are
/// forgotten first.
pub const CALLERS_MAX: usize = 1_000;
/// Bodies and responses of at least this size are parsed and serialized off the serving threads.
pub const LARGE_BYTES_MIN: usize = 256 << 10;
/// Large bodies of one caller that are being received, wait to be parsed, or are being parsed.
pub const CALLER_BODIES_MAX: usize = 8;
/// Large bodies of one caller that may wait beyond that, before any of their bytes is received.
pub const CALLER_BODIES_WAITING_MAX: usize = 64;
/// Large bodies that are parsed at once; the same number of large responses is serialized at once.
pub const LARGE_AT_ONCE_MAX: usize = 2;
/// Large bodies, or large responses, that wait for their turn.
pub const LARGE_WAITING_MAX: usize = 64;
/// Audit entries that are kept whatever their age.
pub const AUDIT_ENTRIES_MAX: usize = 10_000;
/// Audit entries younger than [`AUDIT_KEPT`] are kept beyond that, up to this many in all.
pub const AUDIT_RECENT_MAX: usize = 40_000;
/// An audit entry is kept at least this long, within [`AUDIT_RECENT_MAX`].
pub const AUDIT_KEPT: Span = Span::days(30);
/// Jobs of one page of a list.
pub const PAGE_MAX: usize = 1_000;
/// Bytes of payloads and histories after which a page of a list ends. It has at least one job.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// Rows that one page, or one call of an amendment, may examine before it returns early with a
/// cursor.
pub const SCAN_MAX: usize = 50_000;
/// Time budget of one page. A page that exceeds it returns early with a cursor, so that others can
/// work meanwhile.
pub const PAGE_SCAN_TIME: Span = Span::millis(60);

/// The age after which a process compares its clock with the store's again, where it is asked for
/// the time.
pub const CLOCK_COMPARED_EVERY: Span = Span::secs(10);

/// The first wait before a file is recovered again after its disk failed; later waits grow to
/// [`FILE_RECOVERY_WAIT_MAX`].
pub const FILE_RECOVERY_WAIT_MIN: Span = Span::millis(50);
pub const FILE_RECOVERY_WAIT_MAX: Span = Span::secs(5);

/// How long an attempt to recover a file waits for running reads of it.
pub const READS_ENDED_WITHIN: Span = Span::millis(100);

/// Characters of a queue name.
pub const QUEUE_NAME_MAX: usize = 128;
pub const KIND_BYTES_MAX: usize = 256;
/// Bytes of a unique key.
pub const UNIQUE_KEY_BYTES_MAX: usize = 512;
/// Bytes of a worker's name.
pub const WORKER_NAME_BYTES_MAX: usize = 256;
/// Worker names that a server accepts from one caller within [`WORKER_NAME_KEPT`].
pub const WORKERS_OF_CALLER_MAX: usize = 1_000;
/// Worker names that a server accepts from all callers together within [`WORKER_NAME_KEPT`].
pub const WORKERS_MAX: usize = 10_000;
/// How long a worker name counts after its last call: as long as the worker is listed.
pub const WORKER_NAME_KEPT: Span = Span::hours(1);
/// A worker without a heartbeat for longer is forgotten: as long as the longest lease lasts.
pub const WORKER_KEPT_FOR: Span = Span::days(1);
/// Characters of the host name that a worker reports; the rest is cut.
pub const HOST_CHARS_MAX: usize = 128;
/// Characters of the version that a worker reports; the rest is cut.
pub const VERSION_CHARS_MAX: usize = 64;

/// Failures that a job's history keeps: the first and the latest ones.
pub const HISTORY_MAX: usize = 20;
/// Characters of an error's text.
pub const ERROR_CHARS_MAX: usize = 2_048;
/// Characters of a stack trace.
pub const STACK_CHARS_MAX: usize = 4_096;
/// Characters of a response body.
pub const RESPONSE_CHARS_MAX: usize = 2_048;

/// How long a job is released for when its handler's program cannot be started. The program may be
/// on its way, with a deployment.
pub const UNSTARTED_WAIT: Span = Span::secs(10);
/// How often a worker logs that a handler's program cannot be started.
pub const UNSTARTED_LOG_EVERY: Span = Span::minutes(1);
/// The longest wait of a retry policy, and how far ahead a job may be scheduled.
pub const DELAY_MAX: Span = Span::days(3_660);
/// Delays, or bands, of a retry policy; a job's own policy is stored with the job.
pub const RETRY_STEPS_MAX: usize = 100;
/// The shortest lease: below it a heartbeat that is one network round trip late would cost the job.
pub const LEASE_MIN: Span = Span::millis(500);
/// The longest lease, and so the longest time that a dead worker can hold a job.
pub const LEASE_MAX: Span = Span::hours(24);
/// The longest lease that a store grants: an hour more, for a caller whose clock is ahead. A lease
/// beyond it was granted before a clock was set back.
pub const LEASE_REQUEST_MAX: Span = LEASE_MAX.plus(Span::hours(1));
/// A worker whose last heartbeat is further ahead than this sent it before the clock was set back.
/// Clocks of one deployment are never so far apart for long.
pub const SET_BACK_MIN: Span = Span::minutes(1);
/// A job that is charged with this many lost leases within [`LOST_WITHIN`] becomes dead, because it
/// seems to kill its workers.
pub const LOST_LEASES_UNTIL_DEAD: usize = 3;
pub const LOST_WITHIN: Span = Span::hours(72);

/// Letters of a stream's name: as many as a queue's, less the prefix of the queue that holds its
/// dead letters.
pub const STREAM_NAME_MAX: usize = QUEUE_NAME_MAX - "streams.".len();
/// The largest `count` of a rate limit.
pub const RATE_COUNT_MAX: u32 = 10_000_000;
/// The shortest period of a rate limit.
pub const RATE_PER_MIN: Span = Span::millis(1);
/// The longest period of a rate limit.
pub const RATE_PER_MAX: Span = Span::hours(24);
/// Overlapping runs that are listed; the newest ones.
pub const OVERLAPS_MAX: usize = 1_000;

/// Bytes of a stream's key.
pub const STREAM_KEY_BYTES_MAX: usize = 512;
/// Bytes of a record's tenant.
pub const TENANT_BYTES_MAX: usize = 256;
/// The furthest a position may be from 0. Every JSON reader and every store represents whole
/// numbers up to here exactly.
pub const POSITION_MAX: i64 = (1 << 53) - 1;
/// Records that one offer may bring.
pub const OFFER_MAX: usize = 5_000;
/// Keys that one take may name, and keys that one advance may change.
pub const STREAM_KEYS_MAX: usize = 5_000;
/// Due keys that one take leases.
pub const DUE_KEYS_MAX: usize = 1_000;
/// Records of one key that a take returns: those with the lowest positions.
pub const WINDOW_RECORDS_MAX: usize = 256;
/// Records that the store keeps of one key; beyond it an offer is refused. Only a halted key, or
/// one that nobody works on, gets there.
pub const KEY_RECORDS_MAX: u64 = 20_000;
/// Bytes of records after which a take leases no further key.
pub const TAKE_BYTES_MAX: usize = 32 << 20;
/// Bytes of the state that the stream rules remember of a key.
pub const KEY_STATE_BYTES_MAX: usize = 64 << 10;
/// Ranges of misses remembered for each key; a record that arrives for an older miss counts as a
/// duplicate.
pub const MISSED_RUNS_MAX: usize = 100;
/// Out-of-order records of a key that are handled at once while the store does not answer.
pub const OFFLINE_RANGES_MAX: usize = 50;
/// Late records remembered for each key.
pub const LATE_MAX: usize = 20;
/// Records off the grid remembered for each key.
pub const OFF_STEP_MAX: usize = 20;
/// Waits that a stream's rules may list.
pub const WAITS_MAX: usize = 100;
/// The most records of one key that the rules may hold.
pub const HELD_MAX: u32 = 10_000;
/// The most misses of one gap that may be reported one by one.
pub const MISSES_MAX: u32 = 10_000;

/// The longest window in which a schedule looks for missing runs.
pub const LOOK_BACK_MAX: Span = Span::days(31);
/// The shortest such window: a smaller one is over before anybody looks.
pub const LOOK_BACK_MIN: Span = Span::minutes(1);
/// The shortest grace of an instant: with less, an ordinary firing could count as missing.
pub const GRACE_MIN: Span = Span::secs(1);
/// Missing runs of a schedule that may be caught up at once.
pub const CATCH_UP_MAX: u32 = 10_000;
/// How long a schedule's ledger keeps an entry at least: it has the last run of a monthly schedule.
pub const LEDGER_KEPT: Span = Span::days(32);
/// Manual firings that one day's page of a ledger holds. With one instant a minute the page then
/// still fits into a cell.
pub const TRIGGERED_MAX: usize = 200;
/// Pauses a schedule remembers; the oldest are forgotten first.
pub const PAUSES_MAX: usize = 500;
/// Earlier rules (cron and time zone) that a schedule remembers.
pub const RULES_MAX: usize = 8;
/// Bytes of a schedule's payload.
pub const SCHEDULE_PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Characters of a cron expression.
pub const CRON_CHARS_MAX: usize = 256;
/// Instants of a schedule that are fired at once; the others follow immediately.
pub const FIRE_MAX: usize = 500;
/// Clock changes of a time zone that are searched for the next instant: two centuries of summer
/// times.
pub const CLOCK_CHANGES_MAX: usize = 400;

/// Phase changes that a breaker remembers.
pub const BREAKER_EVENTS_MAX: usize = 20;
/// Characters of the reason for a phase change.
pub const EVENT_REASON_CHARS_MAX: usize = 256;
/// Characters of the reason that an operator gives for a change.
pub const REASON_CHARS_MAX: usize = 200;
/// Characters of a text to search for in payloads.
pub const SEARCH_CHARS_MAX: usize = 200;
/// Probes that a breaker may admit.
pub const BREAKER_CALLS_MAX: u32 = 1_000;
/// The longest time that a breaker may wait before its first probe.
pub const RECOVERY_TIMEOUT_MAX: Span = Span::hours(24);
/// The shortest window over which a gate counts deaths.
pub const DEATHS_WITHIN_MIN: Span = Span::secs(1);
/// The longest window over which a gate counts deaths.
pub const DEATHS_WITHIN_MAX: Span = Span::hours(24);
/// Buckets into which a gate divides that window. A death is forgotten with its bucket.
pub const DEATHS_PARTS: i64 = 60;

/// Rows that one run of a sweep may find.
pub const SWEEP_ROWS_MAX: usize = 10_000;
/// The shortest time between two runs of a sweep.
pub const SWEEP_EVERY_MIN: Span = Span::secs(1);
/// The longest time that the query of a sweep may take.
pub const SWEEP_QUERY_MAX: Span = Span::minutes(10);
/// The longest time of one run of a sweep; after that its runner counts as dead.
pub const SWEEP_RUN_MAX: Span = Span::minutes(30);
/// Runs of a sweep that are remembered.
pub const SWEEP_RUNS_MAX: usize = 50;
/// Findings whose recoveries a sweep counts at once; further ones are recovered without being
/// counted.
pub const SWEEP_RECOVERED_MAX: usize = 50_000;
/// Bytes that one search of a sweep returns: unique keys, row ids, and the payloads that the query
/// selects.
pub const SWEEP_BYTES_MAX: usize = 32 << 20;
/// The most recoveries of one finding.
pub const SWEEP_RECOVERIES_MAX: u32 = 1_000;
/// Rows, and live jobs, that one reconciliation of a sweep compares.
pub const RECONCILE_MAX: usize = 100_000;

/// Letters of a table's name: as many as a queue's, less the prefix of the queue that holds its
/// dead letters.
pub const TABLE_NAME_MAX: usize = QUEUE_NAME_MAX - "tables.".len();
/// Rows that one pass over a table may take.
pub const TABLE_RECORDS_MAX: usize = 10_000;
/// The shortest time between two passes over a table.
pub const TABLE_EVERY_MIN: Span = Span::secs(1);
/// Handlers that one pass over a table may run at once.
pub const TABLE_CONCURRENCY_MAX: usize = 1_000;
/// Failures of a row up to which its waits may differ; after that the last wait repeats.
pub const TABLE_WAITS_MAX: u32 = 256;
/// Bands of a table's progressive strategy.
pub const TABLE_BANDS_MAX: usize = 100;
/// How long a runner that sends no heartbeat keeps its rows.
pub const TABLE_LEASE: Span = Span::secs(15);
/// How far apart the clocks of a table's runners may be. A lease that ends more than this beyond
/// its longest term was granted before the clock was set back.
pub const TABLE_SKEW_MAX: Span = Span::minutes(5);
/// Rows that a runner takes from a table at once. If the runner is killed, only rows among these
/// run twice.
pub const TABLE_CLAIM_MAX: usize = 200;
/// Bytes of the keys of all claimed rows of a table: they share one cell.
pub const TABLE_CLAIMED_BYTES_MAX: usize = 42 << 10;
/// Bytes of a row's key. A row with a longer key is reported and never taken.
pub const TABLE_KEY_BYTES_MAX: usize = 512;
/// Bytes of the ranges of a table that is tried by age, whose rows were last tried at different
/// times.
pub const TABLE_SCAN_BYTES_MAX: usize = 2 << 10;
/// Bytes of the rows of such a table that were tried out of their turn.
pub const TABLE_EXTRA_ROWS_BYTES_MAX: usize = 6 << 10;
/// Bytes of the rows of such a table that their owner had locked when their turn came. They count
/// towards the bytes of claimed rows.
pub const TABLE_LOCKED_BYTES_MAX: usize = 6 << 10;
/// How often all open rows of a table are searched for rows that no query for due rows can see.
pub const TABLE_SURVEY_EVERY: Span = Span::hours(1);
/// How long after its start a scan over the expired rows of a table starts over.
pub const TABLE_EXPIRED_SCAN_EVERY: Span = Span::hours(1);
/// Expired rows of a table that one cell remembers as copied to the dead letters.
pub const TABLE_BURIED_CELL_MAX: usize = 4_000;
/// Cells of such rows. A row that no longer fits is copied again if its dead letter was removed
/// meanwhile.
pub const TABLE_BURIED_CELLS_MAX: usize = 250;
/// Distinct values of a status column that a check reports.
pub const TABLE_WORDS_MAX: usize = 20;
/// Expired rows, and failures of a pass, that are reported one by one.
pub const TABLE_LISTED_MAX: usize = 1_000;
/// Characters of the error of a failed pass: it shares a cell with the claimed rows.
pub const TABLE_ERROR_CHARS_MAX: usize = 512;
/// The longest time that one statement on a user's table may take.
pub const TABLE_STATEMENT_MAX: Span = Span::minutes(1);
/// Rows that are sampled to find out how a table writes its dates.
pub const TABLE_SAMPLE: usize = 100;

/// Events that one simulation may process: arrivals, ends of calls and ends of waits.
pub const SIMULATED_EVENTS_MAX: u64 = 5_000_000;
/// Buckets of a simulation's report.
pub const SIMULATED_BUCKETS_MAX: i64 = 10_000;
