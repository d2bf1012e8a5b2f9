//! Pushes many lines: one thread reads and checks, a few calls of the store are under way at any
//! time, and memory is bounded by them. Of a pipe, what was read goes out before the reader waits
//! for more: a slow pipe has its lines in the store at once, and a fast one fills its batches. Its
//! calls go one after another, since calls that overlap would mix up the order of its lines.

mod report;

use super::id_conflicts::{self, IntendedJob};
use super::job_line::{self, PushDefaults};
use super::lines::{InputLine, LineReader};
use super::open_bounded;
use super::source::{InputReader, InputSource};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::progress;
use crate::output::words::count;
use backstop::core::limits::PAYLOAD_BYTES_MAX;
use backstop::core::port::{EnqueueOutcome, StoreResult};
use backstop::{Backstop, JobId, NewJob, Time};
use indicatif::ProgressBar;
use report::{BadPushLine, PushReport};
use std::io::{BufReader, Read};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const BATCH_JOBS: usize = 1_000;
/// Payload bytes of one call; well below what a store takes.
const BATCH_BYTES: usize = 4 << 20;
/// Calls under way at once for a file: while one is made durable, the next is on its way.
const IN_FLIGHT: usize = 4;
const READ_AHEAD: usize = 2;

const BAR: &str = "{bar:32.cyan/dim} {percent:>3}%  {msg}  {eta} left";
const SPINNER: &str = "{spinner} {msg}";

#[derive(Default)]
struct PushBatch {
    jobs: Vec<NewJob>,
    bad: Vec<BadPushLine>,
    payload_bytes: usize,
    /// How far into the input it reaches.
    read_to: u64,
}

/// Pushes all good lines; with `is_strict` only if there is no other.
pub(super) async fn run(
    source: InputSource,
    defaults: PushDefaults,
    is_strict: bool,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = open_bounded(&defaults.queue, context).await?;
    let source = if is_strict {
        source.into_repeatable()?
    } else {
        source
    };
    let mut report = PushReport::default();
    if is_strict {
        check_all(&source, &defaults, &backstop, &mut report)?;
    }
    if !is_strict || report.is_clean() {
        load(&source, defaults, &backstop, &mut report, context).await?;
    }
    report.print(context)
}

/// Reads everything and pushes nothing.
fn check_all(
    source: &InputSource,
    defaults: &PushDefaults,
    backstop: &Backstop,
    report: &mut PushReport,
) -> Result<(), CliError> {
    let mut reader = LineReader::new(source.reader()?);
    let now = || backstop.now();
    while let Some(batch) = read_batch(&mut reader, defaults, false, now, || backstop.new_id())? {
        report.add_bad_lines(batch.bad);
    }
    Ok(())
}

async fn load(
    source: &InputSource,
    defaults: PushDefaults,
    backstop: &Backstop,
    report: &mut PushReport,
    context: &CliContext,
) -> Result<(), CliError> {
    let is_shown = context.output.shows_progress();
    let bar = match source.size() {
        Some(size) => progress::bar(is_shown, size, BAR),
        None => progress::spinner(is_shown, SPINNER),
    };
    let is_repeatable = defaults.batch.is_some();
    let may_wait = source.size().is_none();
    let batches = read_in_background(source.reader()?, defaults, may_wait, backstop.clone());
    let loaded = push_batches(batches, may_wait, backstop, report, &bar).await;
    bar.finish_and_clear();
    loaded.map_err(|error| explain(error, report, is_repeatable))
}

/// What went in before the store failed is in; says how to get the rest in as well.
fn explain(error: CliError, report: &PushReport, is_repeatable: bool) -> CliError {
    let CliError::Message { cause, kind, .. } = error else {
        return error;
    };
    let cause = format!(
        "{cause}; at least {} lines went in before that",
        count(report.pushed())
    );
    let advice = if is_repeatable {
        "the same command again: lines that went in are recognised"
    } else {
        "the same command again if the lines have ids; --batch NAME gives them some"
    };
    CliError::Message {
        cause,
        advice: Some(advice.to_owned()),
        kind,
    }
}

type PushBatchReceiver = mpsc::Receiver<Result<PushBatch, CliError>>;

/// Reads on a thread of its own: input may block, and checking JSON takes time.
fn read_in_background(
    input: InputReader,
    defaults: PushDefaults,
    may_wait: bool,
    backstop: Backstop,
) -> PushBatchReceiver {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    let runtime = Handle::current();
    std::thread::spawn(move || {
        let mut reader = LineReader::new(input);
        loop {
            let now = || runtime.block_on(backstop.current_time());
            let batch =
                read_batch(&mut reader, &defaults, may_wait, now, || backstop.new_id()).transpose();
            let Some(batch) = batch else { return };
            let is_last = batch.is_err();
            // A closed channel means that the store failed: nobody wants the rest.
            if sender.blocking_send(batch).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// Names the bound that is documented, not the room for what stands around it.
fn too_long() -> String {
    format!(
        "the payload has more than {PAYLOAD_BYTES_MAX} bytes; store large data elsewhere and push its address"
    )
}

/// The next lines, enough for one call, or where the input `may_wait` those that are there; `None`
/// at the end. What a line is delayed by counts from when it was read.
fn read_batch(
    reader: &mut LineReader<BufReader<impl Read>>,
    defaults: &PushDefaults,
    may_wait: bool,
    now: impl Fn() -> Time,
    new_id: impl Fn() -> JobId,
) -> Result<Option<PushBatch>, CliError> {
    let mut batch = PushBatch::default();
    let mut buffer = Vec::new();
    while batch.jobs.len() + batch.bad.len() < BATCH_JOBS && batch.payload_bytes < BATCH_BYTES {
        let is_empty = batch.jobs.is_empty() && batch.bad.is_empty();
        if may_wait && !is_empty && !reader.has_line() {
            break;
        }
        let Some(line) = reader.next(&mut buffer)? else {
            break;
        };
        let read = match line {
            InputLine::Whole(bytes) => {
                job_line::parse(bytes, reader.number(), defaults, now(), &new_id)
            }
            InputLine::TooLong => Err(too_long()),
        };
        match read {
            Ok(job) => {
                batch.payload_bytes += job.payload.len();
                batch.jobs.push(job);
            }
            Err(error) => batch.bad.push(BadPushLine {
                line: reader.number(),
                error,
            }),
        }
    }
    batch.read_to = reader.bytes_read();
    Ok((!batch.jobs.is_empty() || !batch.bad.is_empty()).then_some(batch))
}

async fn push_batches(
    mut batches: PushBatchReceiver,
    may_wait: bool,
    backstop: &Backstop,
    report: &mut PushReport,
    bar: &ProgressBar,
) -> Result<(), CliError> {
    let calls_max = if may_wait { 1 } else { IN_FLIGHT };
    let mut under_way: JoinSet<(u64, StoreResult<PushBatchAnswers>)> = JoinSet::new();
    let mut is_open = true;
    while is_open || !under_way.is_empty() {
        tokio::select! {
            batch = batches.recv(), if is_open && under_way.len() < calls_max => match batch {
                Some(batch) => {
                    let batch = batch?;
                    report.add_bad_lines(batch.bad);
                    let (backstop, jobs, read_to) = (backstop.clone(), batch.jobs, batch.read_to);
                    under_way.spawn(async move { (read_to, push(&backstop, jobs).await) });
                }
                None => is_open = false,
            },
            Some(pushed) = under_way.join_next() => {
                let (read_to, answers) = pushed.map_err(CliError::new)?;
                let pushed = answers?;
                report.add_answers(&pushed.answers);
                report.add_id_conflicts(&pushed.others);
                bar.set_position(read_to.max(bar.position()));
                bar.set_message(message(report, bar));
            }
        }
    }
    Ok(())
}

/// What a store answered, and which ids stand for something else.
struct PushBatchAnswers {
    answers: Vec<EnqueueOutcome>,
    others: Vec<JobId>,
}

async fn push(backstop: &Backstop, jobs: Vec<NewJob>) -> StoreResult<PushBatchAnswers> {
    let intended: Vec<IntendedJob> = jobs.iter().map(IntendedJob::new).collect();
    let answers = backstop.push_jobs(jobs).await?;
    let same = intended
        .into_iter()
        .zip(&answers)
        .filter(|(_, answer)| **answer == EnqueueOutcome::Same);
    let same: Vec<IntendedJob> = same.map(|(intended, _)| intended).collect();
    Ok(PushBatchAnswers {
        others: id_conflicts::find(backstop, &same).await?,
        answers,
    })
}

fn message(report: &PushReport, bar: &ProgressBar) -> String {
    let secs = bar.elapsed().as_secs_f64().max(0.001);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a rate to look at"
    )]
    let rate = (report.pushed() as f64 / secs) as u64;
    format!("{} jobs  {}/s", count(report.pushed()), count(rate))
}

#[cfg(test)]
mod tests {
    use super::super::LineFormat;
    use super::*;
    use backstop::testing::VirtualClock;
    use backstop::{QueueName, RandomSource, Run, Span};
    use backstop_memory::MemoryStore;
    use backstop_testkit::flaky::{Fault, Flaky, Odds};
    use std::cell::Cell;
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    const DELAY: Span = Span::secs(20);

    fn defaults() -> PushDefaults {
        PushDefaults {
            queue: QueueName::new("q").unwrap(),
            kind: None,
            priority: None,
            delay: Some(DELAY),
            at: None,
            unique_by: None,
            unique_for: None,
            unique_in: Vec::new(),
            retry: None,
            trace: None,
            batch: None,
            lines: LineFormat::Auto,
        }
    }

    /// A pipe: each part arrives a minute after the one before.
    struct Pipe<'a> {
        parts: Vec<&'static str>,
        clock: &'a Cell<Time>,
    }

    impl Read for Pipe<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.parts.is_empty() {
                return Ok(0);
            }
            self.clock.set(self.clock.get().after(Span::minutes(1)));
            let part = self.parts.remove(0).as_bytes();
            buffer[..part.len()].copy_from_slice(part);
            Ok(part.len())
        }
    }

    fn check(parts: &[&'static str], may_wait: bool, expected: &[&[i64]]) {
        let clock = Cell::new(Time::default());
        let pipe = Pipe {
            parts: parts.to_vec(),
            clock: &clock,
        };
        let mut reader = LineReader::new(BufReader::new(pipe));
        let mut batches = Vec::new();
        let (defaults, id) = (defaults(), || JobId::named("any"));
        while let Some(batch) =
            read_batch(&mut reader, &defaults, may_wait, || clock.get(), id).unwrap()
        {
            let minutes = |job: &NewJob| job.run_at.unwrap().before(DELAY).as_millis() / 60_000;
            batches.push(batch.jobs.iter().map(minutes).collect::<Vec<_>>());
        }
        assert_eq!(batches, expected, "{parts:?}");
    }

    #[test]
    fn a_delay_counts_from_when_the_line_was_read() {
        check(&["1\n", "2\n"], false, &[&[1, 2]]);
    }

    #[test]
    fn what_a_pipe_has_goes_out_before_the_reader_waits_for_more() {
        check(
            &["1\n2\n", "3\n", "4", "4\n5\n"],
            true,
            &[&[1, 1], &[2], &[4, 4]],
        );
        check(&["1\n2\n3", "3\n", "4"], true, &[&[1, 1], &[2], &[3]]);
        check(&["1\n\n", "2\n"], true, &[&[1], &[2]]);
        check(&["1\n\r\n \n2", "\n"], true, &[&[1], &[2]]);
    }

    #[tokio::test(start_paused = true)]
    async fn lines_of_a_pipe_keep_their_order_also_where_the_store_is_slow() {
        const LINES: usize = 20;
        let defaults = PushDefaults {
            delay: None,
            ..defaults()
        };
        let delays = Odds {
            delay_before: 1.0,
            delay_max: Duration::from_secs(1),
            ..Odds::default()
        };
        let store = Arc::new(Flaky::with_odds(Arc::new(MemoryStore::new()), 7, delays));
        let clock = Arc::new(VirtualClock::start());
        let backstop = Backstop::on(Arc::<Flaky>::clone(&store), clock, RandomSource::seeded(7));
        let (sender, batches) = mpsc::channel(LINES);
        for number in 1..=LINES {
            let (line, id) = (number.to_string(), || backstop.new_id());
            let job = job_line::parse(line.as_bytes(), 1, &defaults, backstop.now(), id);
            let batch = PushBatch {
                jobs: vec![job.unwrap()],
                ..PushBatch::default()
            };
            sender.send(Ok(batch)).await.ok().unwrap();
        }
        drop(sender);
        let (mut report, bar) = (PushReport::default(), ProgressBar::hidden());
        push_batches(batches, true, &backstop, &mut report, &bar)
            .await
            .unwrap();
        assert!(store.injected(Fault::DelayBefore) >= LINES as u64);
        store.set_faults(false);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        let handler = move |run: Run| {
            let line = String::from_utf8(run.payload().to_vec()).unwrap();
            seen.lock().unwrap().push(line.parse::<usize>().unwrap());
            async { Ok(()) }
        };
        let worker = backstop.worker().handle_raw("q", handler);
        worker.drain().await.unwrap();
        assert_eq!(*lines.lock().unwrap(), (1..=LINES).collect::<Vec<_>>());
    }
}
