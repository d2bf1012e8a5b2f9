//! Producers that push all the time, a worker that works all the time, and what they saw.

use backstop::core::port::{QueueStatus, Retention, WorkerStatus};
use backstop::{
    Backstop, JobDraft, JobId, JobState, QueueSettings, RetryPolicy, Run, RunError, RunningWorker,
    Span, WorkerProgress, WorkerTiming,
};
use backstop_testkit::history::{Event, FinalState, Ran, Recorder, Violation, check};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The queue that faults are about.
pub(crate) const QUEUE: &str = "stream";

/// For each queue.
const PRODUCERS: usize = 4;
const LEASE: Span = Span::secs(3);
const PROBE_DUE: Span = Span::millis(100);
/// Between two pushes of one producer.
const PUSH_EVERY: Duration = Duration::from_millis(10);
/// So many jobs, worked one after another, are a stream that flows; a fault that meets less shows
/// nothing.
const JOBS_FLOWING: usize = 50;
/// So many show that a queue goes on.
const JOBS_GOING: usize = 10;
/// What no test waits longer for, whatever it waits for.
const PATIENCE: Duration = Duration::from_mins(1);
/// The rule: so long after the store answers again.
const AT_WORK_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running stream.
pub(crate) struct Stream {
    backstop: Backstop,
    workers: Vec<RunningWorker>,
    flows: Vec<Flow>,
    producers: JoinSet<()>,
    enough: Arc<AtomicBool>,
    recorder: Recorder,
    probes: usize,
}

/// A queue, and how many handlers of its jobs came back.
#[derive(Clone)]
struct Flow {
    queue: &'static str,
    ended: Arc<AtomicUsize>,
}

/// What a stream came to.
pub(crate) struct Outcome {
    /// Promises that were broken.
    pub(crate) violations: Vec<Violation>,
    /// What the store ended up with.
    pub(crate) state: FinalState,
}

impl Stream {
    /// Starts pushing and working, and returns when both go well.
    pub(crate) async fn start(store: &str) -> Self {
        Self::start_with(store, &[QUEUE], 1).await
    }

    /// The same, with several queues that so many workers work: the first on the connections of the
    /// producers, the others on their own.
    pub(crate) async fn start_with(store: &str, queues: &[&'static str], workers: usize) -> Self {
        let backstop = Backstop::open(store).await.expect("the store opens");
        let (recorder, enough) = (Recorder::default(), Arc::<AtomicBool>::default());
        let flows = queues
            .iter()
            .map(|queue| Flow {
                queue,
                ended: Arc::default(),
            })
            .collect::<Vec<_>>();
        let mut running = vec![start_worker(&backstop, &flows, &recorder)];
        for _ in 1..workers {
            let own = Backstop::open(store).await.expect("the store opens");
            running.push(start_worker(&own, &flows, &recorder));
        }
        let mut producers = JoinSet::new();
        for (queue, producer) in queues
            .iter()
            .flat_map(|queue| (0..PRODUCERS).map(move |n| (*queue, n)))
        {
            let (backstop, recorder, enough) =
                (backstop.clone(), recorder.clone(), Arc::clone(&enough));
            producers.spawn(produce(backstop, queue, producer, recorder, enough));
        }
        let stream = Self {
            backstop,
            workers: running,
            flows,
            producers,
            enough,
            recorder,
            probes: 0,
        };
        for queue in queues {
            stream.assert_flows(queue).await;
        }
        stream
    }

    /// Waits until a few more jobs of a queue are worked: it goes on beside another that does not.
    pub(crate) async fn assert_goes_on(&self, queue: &str) {
        let since = Instant::now();
        let going = self.ended_of(queue) + JOBS_GOING;
        self.until(&format!("{queue} goes on"), |stream| {
            stream.ended_of(queue) >= going
        })
        .await;
        let took = since.elapsed();
        assert!(
            took < AT_WORK_MAX,
            "{queue}: {JOBS_GOING} jobs took {took:?}"
        );
    }

    /// Waits until so many more jobs of a queue are worked as a stream that flows has.
    pub(crate) async fn assert_flows(&self, queue: &str) {
        let flowing = self.ended_of(queue) + JOBS_FLOWING;
        self.until(&format!("{queue} flows"), |stream| {
            stream.ended_of(queue) >= flowing
        })
        .await;
    }

    /// Sees to it that all parts of the worker are at work in time: a job that is due in a moment,
    /// pushed from now on, is made ready and worked, and the worker beats.
    pub(crate) async fn assert_at_work_again(&mut self, after: &str) {
        let since = Instant::now();
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        let probe = self.backstop.draft(QUEUE).id(&name).after(PROBE_DUE);
        while !push(probe.clone(), &self.recorder).await {
            assert!(
                since.elapsed() < PATIENCE,
                "no push gets through: {:?}",
                self.progress()
            );
        }
        let probe = JobId::named(&name);
        let has_ended = |event: &Event| matches!(event, Event::Ended { job, .. } if *job == probe);
        self.until("the probe is worked", |stream| {
            stream.recorder.events().iter().any(has_ended)
        })
        .await;
        while !self.is_beating(Span::from(since.elapsed())).await {
            assert!(
                since.elapsed() < PATIENCE,
                "no beat gets through: {:?}",
                self.progress()
            );
        }
        let took = since.elapsed();
        println!("{after}: at work again after {took:?}");
        assert!(
            took < AT_WORK_MAX,
            "{after}: at work again only after {took:?}"
        );
        self.assert_flows(QUEUE).await;
    }

    /// Whether every worker has given a sign of life within this time.
    async fn is_beating(&self, within: Span) -> bool {
        let workers = self
            .backstop
            .store()
            .workers(within, self.backstop.now())
            .await;
        let is_among = |worker: &RunningWorker, beating: &[WorkerStatus]| {
            beating.iter().any(|seen| seen.name == *worker.name())
        };
        workers.is_ok_and(|beating| self.workers.iter().all(|worker| is_among(worker, &beating)))
    }

    fn progress(&self) -> Vec<WorkerProgress> {
        self.workers.iter().map(RunningWorker::progress).collect()
    }

    /// Handlers of a queue's jobs that came back so far.
    pub(crate) fn ended_of(&self, queue: &str) -> usize {
        let flow = self
            .flows
            .iter()
            .find(|flow| flow.queue == queue)
            .expect("it is a queue of the stream");
        flow.ended.load(Ordering::Relaxed)
    }

    /// Handlers that came back so far.
    pub(crate) fn ended(&self) -> usize {
        self.recorder
            .events()
            .iter()
            .filter(|event| matches!(event, Event::Ended { .. }))
            .count()
    }

    /// Ends the pushing, waits until all is worked, and looks for broken promises.
    pub(crate) async fn finish(mut self) -> Outcome {
        self.enough.store(true, Ordering::Relaxed);
        while self.producers.join_next().await.is_some() {}
        let since = Instant::now();
        while self.is_any_live().await {
            assert!(
                since.elapsed() < PATIENCE,
                "the rest is not worked off: {:?}",
                self.progress()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
        for worker in self.workers {
            worker.stop();
            worker.stopped().await;
        }
        let state = FinalState::read(&**self.backstop.store(), self.backstop.now())
            .await
            .expect("read");
        Outcome {
            violations: check(&self.recorder.history(), &state),
            state,
        }
    }

    /// As long as the store does not answer, something may be.
    async fn is_any_live(&self) -> bool {
        let queues = self.backstop.store().queues(self.backstop.now()).await;
        queues.map_or(true, |queues| {
            queues.iter().any(|queue| queue.counts.live() > 0)
        })
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !holds(self) {
            let progress = self.progress();
            assert!(
                since.elapsed() < PATIENCE,
                "waited {PATIENCE:?} until {what}: {progress:?}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Outcome {
    /// The same, but for runs that the store knows nothing of: a server that crashes may forget the
    /// last claims and, where a replica takes over, the last settlements. Those jobs run again.
    pub(crate) fn excusing_forgotten_runs(mut self) -> Self {
        self.violations
            .retain(|violation| !matches!(violation, Violation::Overrun { .. }));
        self
    }

    /// Nothing acknowledged is lost, nothing is accepted twice, nothing is left behind.
    pub(crate) fn assert_sound(&self) {
        assert!(self.violations.is_empty(), "{:#?}", self.violations);
        let totals = |of: fn(&QueueStatus) -> u64| self.state.queues.iter().map(of).sum::<u64>();
        let done = self
            .state
            .jobs
            .iter()
            .filter(|job| job.state == JobState::Done)
            .count() as u64;
        assert_eq!(
            done,
            self.state.jobs.len() as u64,
            "every job of the stream can be done"
        );
        assert_eq!(
            totals(|queue| queue.totals.done),
            done,
            "every success was accepted once"
        );
        assert_eq!(
            totals(|queue| queue.totals.enqueued),
            done,
            "every job was taken in once"
        );
    }
}

fn start_worker(backstop: &Backstop, flows: &[Flow], recorder: &Recorder) -> RunningWorker {
    let settings = QueueSettings {
        concurrency: 8,
        retry: RetryPolicy::from_json(br#"{"kind":"constant","every":"10ms","max_attempts":20}"#)
            .expect("a policy"),
        lease: LEASE,
        // Everything stays to be checked.
        retention: Retention {
            done_max: u64::MAX,
            ..Retention::default()
        },
        ..QueueSettings::default()
    };
    let timing = WorkerTiming {
        maintenance_interval: Span::millis(300),
        poll: Span::millis(200),
        ..WorkerTiming::default()
    };
    let mut worker = backstop.worker().timing(timing);
    for Flow { queue, ended } in flows.iter().cloned() {
        let recorder = recorder.clone();
        let handler = move |run: Run| handle(run, recorder.clone(), Arc::clone(&ended));
        worker = worker
            .handle_raw(queue, handler)
            .queue(queue, settings.clone());
    }
    worker.start().expect("the worker starts")
}

async fn handle(run: Run, recorder: Recorder, ended: Arc<AtomicUsize>) -> Result<(), RunError> {
    recorder.started(&run, "the worker");
    tokio::time::sleep(Duration::from_millis(u64::from(
        run.id().as_bytes()[15] % 16,
    )))
    .await;
    recorder.ended(&run, Ran::Done);
    ended.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

async fn produce(
    backstop: Backstop,
    queue: &'static str,
    producer: usize,
    recorder: Recorder,
    enough: Arc<AtomicBool>,
) {
    for n in 0.. {
        if enough.load(Ordering::Relaxed) {
            return;
        }
        push(
            backstop.draft(queue).id(&format!("{queue}-{producer}-{n}")),
            &recorder,
        )
        .await;
        tokio::time::sleep(PUSH_EVERY).await;
    }
}

/// Whether the push was acknowledged.
async fn push(draft: JobDraft, recorder: &Recorder) -> bool {
    let job = draft.clone().build().await.expect("a sound draft").id;
    let pushed = draft.push().await;
    recorder.pushed(job, pushed.as_ref().ok().map(|pushed| pushed.result));
    pushed.is_ok()
}
