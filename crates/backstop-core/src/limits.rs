//! Every bound in one place. A queue, batch, text or loop without an entry here is unbounded by
//! mistake.

use crate::time::Span;

/// Bytes of one job's payload.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of all payloads of one enqueue.
pub const ENQUEUE_BYTES_MAX: usize = 8 << 20;
pub const ENQUEUE_JOBS_MAX: usize = 5_000;
/// Nesting of a JSON payload.
pub const PAYLOAD_DEPTH_MAX: usize = 128;
/// Jobs one claim may take, over all its queues.
pub const CLAIM_JOBS_MAX: usize = 2_000;
/// Bytes of payloads after which a claim hands out no further job. It hands out one job at least.
pub const CLAIM_BYTES_MAX: usize = 4 << 20;
/// Queues of a store, unless its configuration says otherwise. Beyond them a push to a new queue is
/// refused.
pub const QUEUES_MAX: usize = 10_000;
/// Streams of a store, configured ones aside. Beyond them a server refuses records for a new
/// stream.
pub const STREAMS_MAX: usize = 1_000;
/// New queues and streams that one token may name in pushes to one server process.
pub const TOKEN_QUEUES_MAX: usize = 1_000;
/// The store forgets a queue that has been empty for so long and that nobody configured. Longer
/// than a day, so that a queue with one job a day keeps its totals.
pub const QUEUE_KEPT_FOR: Span = Span::hours(48);
/// Refusals in a row of one kind of call, with no answer in between, that a worker takes for the
/// store's last word: at least so many.
pub const REFUSALS_MIN: u32 = 3;
/// And for at least so long, or its longest lease. Rights are changed and servers take over within
/// less.
pub const REFUSED_FOR: Span = Span::secs(30);
/// The same for a kind of call that this worker has never had an answer to: nothing says that it
/// ever had the right to it.
pub const REFUSED_AT_START_FOR: Span = Span::secs(5);
pub const DECLARE_MAX: usize = 1_000;
/// Queues one claim may name.
pub const CLAIM_QUEUES_MAX: usize = 256;
pub const SETTLE_MAX: usize = 5_000;
/// Leases one beat may name.
pub const BEAT_LEASES_MAX: usize = 50_000;
pub const PROMOTE_MAX: usize = 1_000;
/// Expired leases taken over in one call: recovery is paced so that producers keep their place.
pub const SEIZE_MAX: usize = 500;
/// Leases without jobs that one seizure removes on its way to those that have some.
pub const SEIZE_EMPTIED_MAX: usize = 12_000;
/// Expired leases that are counted for whoever asks; more of them are told as so many.
pub const EXPIRED_COUNTED_MAX: usize = 1_000;
/// Jobs one call of an amendment touches, and ids it may name; the caller goes on at `next`.
pub const AMEND_MAX: usize = 1_000;
/// Dead letters one burial takes in.
pub const BURY_MAX: usize = 1_000;
/// Jobs that one call finds by their ids: payloads come with them.
pub const FIND_MAX: usize = 200;
/// Unique keys whose holders one call answers.
pub const HOLDERS_MAX: usize = 1_000;
/// Groups of deaths one call answers with.
pub const GROUPS_MAX: usize = 1_000;
/// Cells one call reads, lists or changes.
pub const CELLS_MAX: usize = 1_000;
/// Bytes of a cell's value.
pub const CELL_BYTES_MAX: usize = 64 << 10;
/// Bytes of a cell's name.
pub const CELL_NAME_BYTES_MAX: usize = 512;
/// Finished jobs one pruning removes.
pub const PRUNE_MAX: usize = 2_000;
/// Queues one pruning looks at; the next one goes on behind them.
pub const PRUNE_QUEUES_MAX: usize = 500;
/// Lists, searches and pages that one caller of a server may have under way at once.
pub const CALLER_READS_MAX: usize = 4;
/// And so many more may wait for their turn.
pub const CALLER_READS_WAITING_MAX: usize = 16;
/// Callers whose reads are counted at once; beyond them, those with none under way are forgotten
/// first.
pub const CALLERS_MAX: usize = 1_000;
/// Bodies and answers of this size and more are parsed and written off the serving threads.
pub const LARGE_BYTES_MIN: usize = 256 << 10;
/// Large bodies of one caller that are received, wait to be parsed, or are parsed.
pub const CALLER_BODIES_MAX: usize = 8;
/// And so many more may wait before any of their bytes is received.
pub const CALLER_BODIES_WAITING_MAX: usize = 64;
/// Large bodies parsed at once; the same number of large answers is written at once.
pub const LARGE_AT_ONCE_MAX: usize = 2;
/// Large bodies, or answers, that wait for their turn.
pub const LARGE_WAITING_MAX: usize = 64;
/// Audit entries that are kept whatever their age.
pub const AUDIT_ENTRIES_MAX: usize = 10_000;
/// Audit entries younger than [`AUDIT_KEPT`] are kept beyond that, up to so many in all.
pub const AUDIT_RECENT_MAX: usize = 40_000;
/// How long an audit entry is kept at least, within [`AUDIT_RECENT_MAX`].
pub const AUDIT_KEPT: Span = Span::days(30);
/// Jobs of one page of a list.
pub const PAGE_MAX: usize = 1_000;
/// Bytes of payloads and histories after which a page of a list ends. It has one job at least.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// Rows one page, or one call of an amendment, may look at before it answers short, with a cursor
/// to go on.
pub const SCAN_MAX: usize = 50_000;
/// A page takes no further look after this time: whoever reads on says so, and others work
/// meanwhile.
pub const PAGE_SCAN_TIME: Span = Span::millis(60);

/// How old a comparison of a process's clock with the store's may be where it is asked for the
/// time.
pub const CLOCK_COMPARED_EVERY: Span = Span::secs(10);

/// How long a file whose disk failed stays closed before it is recovered once more, at first …
pub const FILE_RECOVERY_WAIT_MIN: Span = Span::millis(50);
pub const FILE_RECOVERY_WAIT_MAX: Span = Span::secs(5);

/// How long an attempt to recover a file waits for the reads of it that run.
pub const READS_ENDED_WITHIN: Span = Span::millis(100);

/// Characters of a queue name.
pub const QUEUE_NAME_MAX: usize = 128;
pub const KIND_BYTES_MAX: usize = 256;
/// Bytes of a unique key.
pub const UNIQUE_KEY_BYTES_MAX: usize = 512;
/// Bytes of a worker's name.
pub const WORKER_NAME_BYTES_MAX: usize = 256;
/// Worker names that one caller of a server may use within [`WORKER_NAME_KEPT`].
pub const WORKERS_OF_CALLER_MAX: usize = 1_000;
/// Worker names that all callers of a server together may use within [`WORKER_NAME_KEPT`].
pub const WORKERS_MAX: usize = 10_000;
/// How long a worker name counts after its last call: as long as the worker is listed.
pub const WORKER_NAME_KEPT: Span = Span::hours(1);
/// A worker that was silent for longer is forgotten: as long as its longest lease lasts.
pub const WORKER_KEPT_FOR: Span = Span::days(1);
/// What a worker says its host is called is cut here.
pub const HOST_CHARS_MAX: usize = 128;
/// And what it calls its version here.
pub const VERSION_CHARS_MAX: usize = 64;

/// Failures remembered with a job: the first and the latest ones.
pub const HISTORY_MAX: usize = 20;
/// Characters of an error's text.
pub const ERROR_CHARS_MAX: usize = 2_048;
/// Characters of a stack trace.
pub const STACK_CHARS_MAX: usize = 4_096;
/// Characters of a response body.
pub const RESPONSE_CHARS_MAX: usize = 2_048;

/// How long a job goes back for whose handler's program could not be started: it may be on its way,
/// with a deployment.
pub const UNSTARTED_WAIT: Span = Span::secs(10);
/// How often it is said that a handler's program cannot be started.
pub const UNSTARTED_LOG_EVERY: Span = Span::minutes(1);
/// The longest wait a policy may ask for, and how far ahead a job may be scheduled.
pub const DELAY_MAX: Span = Span::days(3_660);
/// Delays, or bands, of a retry policy: it travels with every job that carries one.
pub const RETRY_STEPS_MAX: usize = 100;
/// The shortest lease: below it a beat that is one network round trip late would cost the job.
pub const LEASE_MIN: Span = Span::millis(500);
/// The longest lease: it is also the longest a dead worker can hold a job.
pub const LEASE_MAX: Span = Span::hours(24);
/// The longest lease a store grants: an hour for a caller whose clock is ahead. Nobody can have
/// asked for more.
pub const LEASE_REQUEST_MAX: Span = LEASE_MAX.plus(Span::hours(1));
/// A worker that was heard of last further ahead than this was heard of before the clock was set
/// back. Clocks of one deployment are never so far apart for long.
pub const SET_BACK_MIN: Span = Span::minutes(1);
/// Lost leases within [`LOST_WITHIN`] after which a job is held to kill its workers.
pub const LOST_LEASES_MAX: usize = 3;
pub const LOST_WITHIN: Span = Span::hours(72);

/// Letters of a stream's name: as many as a queue's, less the prefix of the queue that its dead
/// letters lie in.
pub const STREAM_NAME_MAX: usize = QUEUE_NAME_MAX - "streams.".len();
/// The most a rate limit counts.
pub const RATE_COUNT_MAX: u32 = 10_000_000;
/// The shortest time over which a rate limit counts.
pub const RATE_PER_MIN: Span = Span::millis(1);
/// The longest time over which a rate limit counts.
pub const RATE_PER_MAX: Span = Span::hours(24);
/// Overlaps of runs that are listed; the newest ones.
pub const OVERLAPS_MAX: usize = 1_000;

/// Bytes of a stream's key.
pub const STREAM_KEY_BYTES_MAX: usize = 512;
/// Bytes of a record's tenant.
pub const TENANT_BYTES_MAX: usize = 256;
/// The furthest a position is from 0: every JSON reader and every store keeps whole numbers up to
/// here exactly.
pub const POSITION_MAX: i64 = (1 << 53) - 1;
/// Records one offer takes in.
pub const OFFER_MAX: usize = 5_000;
/// Keys one take may name, and keys one advance may change.
pub const STREAM_KEYS_MAX: usize = 5_000;
/// Keys one take of what is due hands out.
pub const DUE_KEYS_MAX: usize = 1_000;
/// Records of one key that a take brings along; those of the lowest positions.
pub const WINDOW_RECORDS_MAX: usize = 256;
/// Records a key holds: past it an offer is refused. Only a halted key, or one that nobody works
/// on, gets there.
pub const KEY_RECORDS_MAX: u64 = 20_000;
/// Bytes of records after which a take hands out no further key.
pub const TAKE_BYTES_MAX: usize = 32 << 20;
/// Bytes of what the rules remember of a key.
pub const KEY_STATE_BYTES_MAX: usize = 64 << 10;
/// Runs of misses remembered for each key; a record that comes for an older one counts as a
/// duplicate.
pub const MISSED_RUNS_MAX: usize = 100;
/// Records that come for a key out of order while the store does not answer, and are handled at
/// once all the same.
pub const OFFLINE_RANGES_MAX: usize = 50;
/// Late records remembered for each key.
pub const LATE_MAX: usize = 20;
/// Records off the grid remembered for each key.
pub const OFF_STEP_MAX: usize = 20;
/// Waits of a stream's rules.
pub const WAITS_MAX: usize = 100;
/// The most records of a key that the rules may let wait.
pub const HELD_MAX: u32 = 10_000;
/// The most misses of a gap that may be told one by one.
pub const MISSES_MAX: u32 = 10_000;

/// The longest time back over which a schedule looks for missing runs.
pub const LOOK_BACK_MAX: Span = Span::days(31);
/// The shortest time back: a window smaller than this is over before anybody looks.
pub const LOOK_BACK_MIN: Span = Span::minutes(1);
/// The shortest grace of an instant: with less, an ordinary firing could count as a missing one.
pub const GRACE_MIN: Span = Span::secs(1);
/// Missing runs of a schedule that may be made up at once.
pub const CATCH_UP_MAX: u32 = 10_000;
/// How long a schedule's ledger is kept at least: the last run of a monthly schedule is in it.
pub const LEDGER_KEPT: Span = Span::days(32);
/// Firings by hand that a day's page of a ledger holds. With one instant a minute the page then
/// still fits into a cell.
pub const TRIGGERED_MAX: usize = 200;
/// Pauses a schedule remembers; the oldest are forgotten first.
pub const PAUSES_MAX: usize = 500;
/// Rules (cron and time zone) a schedule remembers to have been under.
pub const RULES_MAX: usize = 8;
/// Bytes of a schedule's payload.
pub const SCHEDULE_PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Characters of a cron expression.
pub const CRON_CHARS_MAX: usize = 256;
/// Instants fired in one look at a schedule; the others follow at once.
pub const FIRE_MAX: usize = 500;
/// Changes of a zone's clock that are looked through for the next instant: two centuries of summer
/// times.
pub const CLOCK_CHANGES_MAX: usize = 400;

/// Changes of phase a breaker remembers.
pub const BREAKER_EVENTS_MAX: usize = 20;
/// Characters of the reason for a change of phase.
pub const EVENT_REASON_CHARS_MAX: usize = 256;
/// Characters of the reason that somebody gives for a change by hand.
pub const REASON_CHARS_MAX: usize = 200;
/// Characters of a text that is looked for in payloads.
pub const SEARCH_CHARS_MAX: usize = 200;
/// Probes a breaker may let through.
pub const BREAKER_CALLS_MAX: u32 = 1_000;
/// The longest a breaker may wait for its first probe.
pub const RECOVERY_TIMEOUT_MAX: Span = Span::hours(24);
/// The shortest time over which a gate counts deaths.
pub const DEATHS_WITHIN_MIN: Span = Span::secs(1);
/// The longest time over which a gate counts deaths.
pub const DEATHS_WITHIN_MAX: Span = Span::hours(24);
/// Parts into which a gate divides that time. A death is forgotten with the part it fell into.
pub const DEATHS_PARTS: i64 = 60;

/// Rows one run of a sweep may find.
pub const SWEEP_ROWS_MAX: usize = 10_000;
/// The shortest time between two runs of a sweep.
pub const SWEEP_EVERY_MIN: Span = Span::secs(1);
/// The longest that the query of a sweep may take.
pub const SWEEP_QUERY_MAX: Span = Span::minutes(10);
/// The longest one run of a sweep takes; then its runner is held to be dead.
pub const SWEEP_RUN_MAX: Span = Span::minutes(30);
/// Runs of a sweep that are remembered.
pub const SWEEP_RUNS_MAX: usize = 50;
/// Findings of a sweep whose recoveries are counted at one time; those beyond it are recovered
/// without being counted.
pub const SWEEP_RECOVERED_MAX: usize = 50_000;
/// Bytes of what one search of a sweep gives: keys, what rows are known by, and the payloads that
/// are asked for.
pub const SWEEP_BYTES_MAX: usize = 32 << 20;
/// The most recoveries of one finding.
pub const SWEEP_RECOVERIES_MAX: u32 = 1_000;
/// Rows, and live jobs, that are compared with each other for one sweep.
pub const RECONCILE_MAX: usize = 100_000;

/// Letters of a table's name: as many as a queue's, less the prefix of the queue that its dead
/// letters lie in.
pub const TABLE_NAME_MAX: usize = QUEUE_NAME_MAX - "tables.".len();
/// Rows one pass over a table may take.
pub const TABLE_RECORDS_MAX: usize = 10_000;
/// The shortest time between two passes over a table.
pub const TABLE_EVERY_MIN: Span = Span::secs(1);
/// Handlers one pass over a table may have at work.
pub const TABLE_CONCURRENCY_MAX: usize = 1_000;
/// Failures of a row up to which its waits differ; past it the last wait repeats.
pub const TABLE_WAITS_MAX: u32 = 256;
/// Bands of a table's progressive strategy.
pub const TABLE_BANDS_MAX: usize = 100;
/// How long a row stays with a runner that gives no sign of life.
pub const TABLE_LEASE: Span = Span::secs(15);
/// How far the clocks of a table's runners may be apart: a lease that ends later than that was
/// given before the clock was set back.
pub const TABLE_SKEW_MAX: Span = Span::minutes(5);
/// Rows taken from a table at a time: those that run twice when their runner is killed are among
/// them.
pub const TABLE_CLAIM_MAX: usize = 200;
/// Bytes of the keys of all rows of a table that are in somebody's hands: they share one cell.
pub const TABLE_CLAIMED_BYTES_MAX: usize = 42 << 10;
/// Bytes of a row's key. A row with a longer one is told of, and never taken.
pub const TABLE_KEY_BYTES_MAX: usize = 512;
/// Bytes of the places between which rows of a table that are tried by their age were last tried at
/// different times.
pub const TABLE_SCAN_BYTES_MAX: usize = 2 << 10;
/// Bytes of the rows of such a table that were tried out of their turn.
pub const TABLE_EXTRA_ROWS_BYTES_MAX: usize = 6 << 10;
/// Bytes of the rows of such a table that their owner had locked when their turn came; out of the
/// bytes of rows in hand.
pub const TABLE_LOCKED_BYTES_MAX: usize = 6 << 10;
/// How often all open rows of a table are looked at for those that no query for due rows can see.
pub const TABLE_SURVEY_EVERY: Span = Span::hours(1);
/// How long after its beginning a walk over the expired rows of a table begins anew.
pub const TABLE_EXPIRED_SCAN_EVERY: Span = Span::hours(1);
/// Expired rows of a table that are remembered as copied to the dead letters, in one cell.
pub const TABLE_BURIED_CELL_MAX: usize = 4_000;
/// Cells of such rows. What no longer fits is copied again if its letter was removed meanwhile.
pub const TABLE_BURIED_CELLS_MAX: usize = 250;
/// Words of a status column that a check tells.
pub const TABLE_WORDS_MAX: usize = 20;
/// Expired rows, and failures of a pass, that are told one by one.
pub const TABLE_LISTED_MAX: usize = 1_000;
/// Characters of what is noted of a pass that failed: it shares a cell with the rows in somebody's
/// hands.
pub const TABLE_ERROR_CHARS_MAX: usize = 512;
/// The longest that one statement on a user's table may take.
pub const TABLE_STATEMENT_MAX: Span = Span::minutes(1);
/// Rows that are looked at to find out how a table writes its dates.
pub const TABLE_SAMPLE: usize = 100;

/// Arrivals, ends of calls and ends of waits one simulation may go through.
pub const SIMULATED_EVENTS_MAX: u64 = 5_000_000;
/// Buckets in which a simulation may report.
pub const SIMULATED_BUCKETS_MAX: i64 = 10_000;
