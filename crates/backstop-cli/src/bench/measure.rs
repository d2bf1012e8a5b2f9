//! What backstop itself does, with everything on.

use super::figures::BenchRate;
use anyhow::{Result, ensure};
use backstop::core::port::{EnqueueOutcome, Retention};
use backstop::{Backstop, Kind, NewJob, Payload, QueueName, QueueSettings, Run, RunningWorker};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The queue measured in; nobody else's.
pub(super) const QUEUE: &str = "backstop-bench";
/// The one whose done jobs are not kept: in the other they are there to stay.
pub(super) const QUEUE_GONE: &str = "backstop-bench-gone";
/// Jobs of one push when a batch is measured.
const BATCH: usize = 1_000;

/// A hundred bytes of JSON, as a small job has them.
pub(super) fn payload(n: usize) -> Vec<u8> {
    format!(r#"{{"n":"{n:012}","to":"somebody@example.org","subject":"about a hundred bytes of payload","x":"yyyyyyyy"}}"#)
        .into_bytes()
}

pub(super) fn job(backstop: &Backstop, queue: &str, n: usize) -> Result<NewJob> {
    let (queue, kind) = (QueueName::new(queue)?, Kind::new("noop")?);
    Ok(NewJob::new(
        backstop.new_id(),
        queue,
        kind,
        Payload::json(payload(n))?,
    ))
}

pub(super) fn jobs(backstop: &Backstop, queue: &str, count: usize) -> Result<Vec<NewJob>> {
    (0..count).map(|n| job(backstop, queue, n)).collect()
}

pub(super) async fn bulk(
    backstop: &Backstop,
    count: usize,
    done: DoneJobRetention,
) -> Result<BenchRate> {
    let batches: Vec<Vec<NewJob>> = (0..count.div_ceil(BATCH))
        .map(|_| jobs(backstop, done.queue(), BATCH))
        .collect::<Result<_>>()?;
    let pushed = batches.len() * BATCH;
    let started = Instant::now();
    // Two batches are under way at a time: one is prepared while the other is written.
    let mut before: Option<tokio::task::JoinHandle<_>> = None;
    for batch in batches {
        let backstop = backstop.clone();
        let push = tokio::spawn(async move { backstop.push_jobs(batch).await });
        if let Some(before) = before.replace(push) {
            check_inserted(&before.await??)?;
        }
    }
    if let Some(last) = before {
        check_inserted(&last.await??)?;
    }
    Ok(BenchRate::of(pushed, started.elapsed()))
}

fn check_inserted(answers: &[EnqueueOutcome]) -> Result<()> {
    ensure!(
        answers
            .iter()
            .all(|answer| *answer == EnqueueOutcome::Inserted),
        "a new job was not taken in"
    );
    Ok(())
}

/// Pushes one by one, from callers that each wait for their own answer. A job is made when it is
/// pushed, as callers make theirs: ids that were all made beforehand would come to the store in
/// another order than that of time.
pub(super) async fn callers(
    backstop: &Backstop,
    count: usize,
    callers: usize,
) -> Result<BenchRate> {
    let per_caller = count / callers;
    let started = Instant::now();
    let pushing = (0..callers).map(|caller| {
        let backstop = backstop.clone();
        tokio::spawn(async move {
            for n in caller * per_caller..(caller + 1) * per_caller {
                backstop.push_jobs(vec![job(&backstop, QUEUE, n)?]).await?;
            }
            anyhow::Ok(())
        })
    });
    for caller in pushing.collect::<Vec<_>>() {
        caller.await??;
    }
    Ok(BenchRate::of(per_caller * callers, started.elapsed()))
}

/// What becomes of jobs that are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DoneJobRetention {
    /// They stay listed, as they usually do.
    Kept,
    /// They are gone at once, as those of the raw loops are.
    Gone,
}

impl DoneJobRetention {
    const fn queue(self) -> &'static str {
        match self {
            Self::Kept => QUEUE,
            Self::Gone => QUEUE_GONE,
        }
    }
}

/// The usual settings, but nothing is pruned: the jobs present are there to stay.
fn served(done: DoneJobRetention) -> QueueSettings {
    let done_max = match done {
        DoneJobRetention::Kept => u64::MAX,
        DoneJobRetention::Gone => 0,
    };
    QueueSettings {
        retention: Retention {
            done_max,
            ..Retention::default()
        },
        ..QueueSettings::default()
    }
}

/// Runs `count` ready jobs that do nothing: claim, run, done, each end accepted by the store.
pub(super) async fn drain(
    backstop: &Backstop,
    count: usize,
    handlers: usize,
    done: DoneJobRetention,
) -> Result<BenchRate> {
    let settings = QueueSettings {
        concurrency: handlers,
        prefetch: Some(1_000),
        ..served(done)
    };
    let started = Instant::now();
    let worker = backstop
        .worker()
        .handle_raw(done.queue(), |_: Run| async { Ok(()) })
        .queue(done.queue(), settings)
        .start()?;
    let rate = until_done(&worker, count, started).await;
    worker.stop();
    worker.stopped().await;
    rate
}

async fn until_done(worker: &RunningWorker, count: usize, started: Instant) -> Result<BenchRate> {
    let (mut done, mut moved_at) = (0, Instant::now());
    while done < count as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now_done = worker.progress().done;
        if now_done > done {
            (done, moved_at) = (now_done, Instant::now());
        }
        ensure!(
            moved_at.elapsed() < Duration::from_mins(1),
            "no job was done for a minute; {done} of {count} were"
        );
    }
    Ok(BenchRate::of(count, started.elapsed()))
}

/// Pushes single jobs and runs each before the next, until then and so many at least: every one is
/// a claim of its own, which finds no more.
pub(super) async fn single(
    backstop: &Backstop,
    at_least: usize,
    until: Instant,
) -> Result<BenchRate> {
    let (ran_in, mut ran_out) = tokio::sync::mpsc::channel(1);
    let handler = move |_: Run| {
        let ran_in = ran_in.clone();
        async move {
            let _ = ran_in.send(()).await;
            Ok(())
        }
    };
    let worker = backstop
        .worker()
        .handle_raw(QUEUE, handler)
        .queue(QUEUE, served(DoneJobRetention::Kept))
        .start()?;
    let (started, mut count) = (Instant::now(), 0);
    while count < at_least || Instant::now() < until {
        check_inserted(
            &backstop
                .push_jobs(vec![job(backstop, QUEUE, count)?])
                .await?,
        )?;
        ensure!(
            matches!(
                tokio::time::timeout(Duration::from_secs(10), ran_out.recv()).await,
                Ok(Some(()))
            ),
            "a single job did not run within 10 s"
        );
        count += 1;
    }
    let rate = BenchRate::of(count, started.elapsed());
    worker.stop();
    worker.stopped().await;
    Ok(rate)
}

/// From the push of a single job to the start of its handler, on a system that does nothing else.
pub(super) async fn pickup(backstop: &Backstop, samples: usize) -> Result<Vec<Duration>> {
    let starts: Arc<Mutex<Option<Instant>>> = Arc::default();
    let (started_in, mut started_out) = tokio::sync::mpsc::channel(1);
    let seen = Arc::clone(&starts);
    let handler = move |_: Run| {
        let picked_up = Instant::now();
        let (seen, started_in) = (Arc::clone(&seen), started_in.clone());
        async move {
            *seen
                .lock()
                .map_err(|_| backstop::RunError::retry("poisoned"))? = Some(picked_up);
            let _ = started_in.send(()).await;
            Ok(())
        }
    };
    let worker = backstop
        .worker()
        .handle_raw(QUEUE, handler)
        .queue(QUEUE, served(DoneJobRetention::Kept))
        .start()?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut times = Vec::with_capacity(samples);
    for n in 0..samples {
        let job = job(backstop, QUEUE, n)?;
        let pushed_at = Instant::now();
        backstop.push_jobs(vec![job]).await?;
        let _ = tokio::time::timeout(Duration::from_secs(10), started_out.recv()).await?;
        let picked_up = starts.lock().ok().and_then(|mut start| start.take());
        times.extend(picked_up.map(|picked_up| picked_up.saturating_duration_since(pushed_at)));
        // Idle again: the settlement of this job must not ride along with the next push.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    worker.stop();
    worker.stopped().await;
    Ok(times)
}
