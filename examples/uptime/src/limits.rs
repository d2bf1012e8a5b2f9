//! Every bound in one place.

use backstop::Span;
use std::time::Duration;

/// Bytes of one result: a failure may carry the body of the response.
pub const RESULT_BYTES_MAX: usize = 1 << 20;
/// How deep the JSON of a result may be nested: what can be read can be held.
pub const RESULT_DEPTH_MAX: usize = 128;
/// The latest time a result may name: the end of the year 9999. A clock that is off must not make a
/// key wait for ever.
pub const TIME_MS_MAX: i64 = 253_402_300_799_999;
/// Characters of a wrong value that an error shows.
pub const EXCERPT_CHARS_MAX: usize = 60;

/// Misses that immediate backfill declares in one gap; the newest of a longer gap stay holes.
pub const BACKFILL_MAX: i64 = 100;

/// Results that a worker process gets in one go.
pub const BATCH_RESULTS_MAX: usize = 100;
/// Batches that a worker process has before it answers: the next one is there when it is done.
pub const BATCHES_IN_FLIGHT_MAX: usize = 2;
/// Threads of a process that serve its stream; the work itself is done on others.
pub const STREAM_THREADS: usize = 2;
/// The shortest time between two looks for results whose wait is over, however fast a run is.
pub const STREAM_POLL_MIN: Span = Span::millis(20);
/// The longest that the hold may take to become empty.
pub const DRAIN_MAX: Duration = Duration::from_mins(10);

/// Bytes of one request.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Results of one request.
pub const BODY_RESULTS_MAX: usize = 1_000;
/// How long the body of a request may take to arrive.
pub const BODY_WAIT_MAX: Duration = Duration::from_secs(10);
/// Requests under way at once.
pub const REQUESTS_MAX: usize = 64;
/// How long requests that are under way may take to end.
pub const HTTP_STOP_MAX: Duration = Duration::from_secs(10);

/// Worker processes of one run.
pub const WORKERS_MAX: usize = 64;
/// Broken results of a run that are shown; all are counted.
pub const BROKEN_SHOWN_MAX: usize = 5;
/// The longest that nobody answers before a run is given up.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The longest that workers may take to end: what is held must go first.
pub const FINISH_MAX: Duration = Duration::from_mins(11);

/// How long a connection waits for the transaction of another process.
pub const MEMORY_WAIT_MAX: Duration = Duration::from_secs(10);
/// Prepared statements a connection keeps: more than there are.
pub const MEMORY_STATEMENTS_MAX: usize = 32;
/// Lines of output one page has.
pub const PAGE_LINES_MAX: u32 = 1_000;

/// Subscriptions of a generated world.
pub const SUBSCRIPTIONS_MAX: u32 = 100_000;
/// Minutes of a generated world.
pub const MINUTES_MAX: u32 = 24 * 60;
