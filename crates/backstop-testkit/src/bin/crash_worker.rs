//! A worker made to be killed: `crash_worker STORE HISTORY_FILE`. Works until its queue is empty or
//! somebody ends it.
//!
//! It says first within how many milliseconds a dead worker's job runs again. It writes what its
//! handlers do into a file of its own, outside the store, before anybody tells the store.

use backstop::core::port::Retention;
use backstop::{Backstop, JobId, QueueSettings, RetryPolicy, Run, RunError, Span, WorkerTiming};
use backstop_testkit::history::{Event, HistoryLog, Ran};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The queue of the crash test.
const QUEUE: &str = "crash";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, history] = &arguments[..] else {
        return ExitCode::from(2);
    };
    match work(store, history).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the crash worker failed");
            ExitCode::FAILURE
        }
    }
}

async fn work(store: &str, history: &str) -> Result<(), Box<dyn std::error::Error>> {
    let backstop = Backstop::open(store).await?;
    let log = Arc::new(HistoryLog::open(history)?);
    let settings = QueueSettings {
        concurrency: 8,
        prefetch: Some(8),
        retry: RetryPolicy::from_json(br#"{"kind":"constant","every":"10ms","max_attempts":20}"#)?,
        lease: Span::millis(1_500),
        // Everything stays to be checked.
        retention: Retention {
            done_max: u64::MAX,
            ..Retention::default()
        },
        ..QueueSettings::default()
    };
    let timing = WorkerTiming {
        maintenance_interval: Span::millis(200),
        poll: Span::millis(100),
        ..WorkerTiming::default()
    };
    let handler = move |run: Run| handle(run, Arc::clone(&log));
    let worker = backstop
        .worker()
        .handle_raw(QUEUE, handler)
        .queue(QUEUE, settings)
        .timing(timing)
        .start()?;
    say(worker.recovery_bound().as_millis());
    while backstop
        .store()
        .queues(backstop.now())
        .await?
        .iter()
        .any(|queue| queue.counts.live() > 0)
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.stop();
    worker.stopped().await;
    Ok(())
}

/// Some milliseconds of work, enough for the backlog to outlast the kills; one job in ten fails the
/// first time. The job named poison takes the whole process along.
async fn handle(run: Run, log: Arc<HistoryLog>) -> Result<(), RunError> {
    let (job, lease) = (run.id(), run.lease().number);
    let worker = backstop::core::WorkerName::new(&std::process::id().to_string());
    log.append(&Event::Started {
        job,
        attempt: run.attempt(),
        lease,
        worker,
    })?;
    if job == JobId::named("poison") {
        std::process::abort();
    }
    let byte = job.as_bytes()[15];
    tokio::time::sleep(Duration::from_millis(u64::from(byte % 64))).await;
    let failed = byte < 26 && run.attempt() == 1;
    let ran = if failed { Ran::Failed } else { Ran::Done };
    log.append(&Event::Ended { job, lease, ran })?;
    if failed {
        Err(RunError::retry("fails the first time"))
    } else {
        Ok(())
    }
}

#[expect(clippy::print_stdout, reason = "whoever started it reads this")]
fn say(bound_ms: i64) {
    println!("{bound_ms}");
}
