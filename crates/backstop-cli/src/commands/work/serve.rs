//! Watches a worker from its start to its end.

use crate::context::CliContext;
use crate::error::CliError;
use crate::output::progress;
use crate::output::words::count;
use backstop::{Backstop, JobState, LastSignal, QueueName, RunningWorker, WorkerProgress};
use backstop_core::port::{QueueState, StoreError, StoreResult};
use indicatif::ProgressBar;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often the line of progress moves, and how often an empty queue is looked for.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// The rate shown is that of the last so many looks.
const RATE_LOOKS: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopCondition {
    /// When a signal says so.
    Signal,
    /// When no queue has live jobs.
    Empty,
}

/// Waits until the worker has stopped: told to once by a signal or for lack of work, forced by a
/// second signal. What the store said, if it stopped because of that.
pub(super) async fn serve(
    mut running: RunningWorker,
    mut signals: StopSignals,
    backstop: &Backstop,
    queues: &[QueueName],
    until: StopCondition,
    context: &CliContext,
) -> (WorkerProgress, Option<StoreError>) {
    let mut progress_line = WorkProgressLine::new(context);
    let mut ticks = tokio::time::interval(POLL_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut stage = WorkStage::Working;
    loop {
        tokio::select! {
            () = running.ended() => break,
            () = signals.next() => stage = stage.on_signal(&running, context),
            _ = ticks.tick() => {
                progress_line.show(running.progress());
                if until == StopCondition::Empty && stage == WorkStage::Working && progress_line.is_empty(backstop, queues).await {
                    running.stop();
                    stage = WorkStage::Ending;
                }
            }
        }
    }
    progress_line.line.finish_and_clear();
    if running.was_stopped_by_operator() {
        context.output.announce("stopped: an operator asked for it");
    }
    (running.progress(), running.permission_error())
}

/// How far a worker is on its way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WorkStage {
    Working,
    Ending,
    Forced,
}

impl WorkStage {
    /// What a signal makes of it.
    fn on_signal(self, running: &RunningWorker, context: &CliContext) -> Self {
        match self {
            Self::Working => {
                context.output.announce(format!(
                    "stopping: waiting for running jobs ({} at most); Ctrl-C again to give them back now",
                    context.config.grace
                ));
                running.stop();
                Self::Ending
            }
            Self::Ending | Self::Forced => {
                context
                    .output
                    .announce("stopping at once: running jobs are called off and given back");
                running.force();
                Self::Forced
            }
        }
    }
}

/// The signals that ask for an end, as far as they count.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    last: LastSignal,
}

impl StopSignals {
    /// Listens from now on. A signal that comes before would end the process, and every run with
    /// it.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let (interrupt, terminate) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        Ok(Self {
            interrupt,
            terminate,
            last: LastSignal::default(),
        })
    }

    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            if self.last.counts(Instant::now()) {
                return;
            }
        }
    }
}

/// What is seen of a worker.
struct WorkProgressLine<'a> {
    line: ProgressBar,
    context: &'a CliContext,
    seen: std::collections::VecDeque<(Instant, u64)>,
    has_noted_pause: bool,
}

impl<'a> WorkProgressLine<'a> {
    fn new(context: &'a CliContext) -> Self {
        let line = progress::spinner(context.output.shows_progress(), "{spinner} {msg}");
        Self {
            line,
            context,
            seen: std::collections::VecDeque::new(),
            has_noted_pause: false,
        }
    }

    fn show(&mut self, progress: WorkerProgress) {
        let rate = self.rate(progress.done);
        let running = progress
            .started
            .saturating_sub(progress.settled() + progress.lost);
        self.line.set_message(format!(
            "{} running · {} done ({}/s) · {} retried · {} dead",
            count(running),
            count(progress.done),
            count(rate),
            count(progress.retried),
            count(progress.dead)
        ));
    }

    fn rate(&mut self, done: u64) -> u64 {
        let now = Instant::now();
        self.seen.push_back((now, done));
        if self.seen.len() > RATE_LOOKS {
            self.seen.pop_front();
        }
        let (since, before) = self.seen.front().copied().unwrap_or((now, done));
        let secs = now.duration_since(since).as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a rate to look at"
        )]
        let rate = (done.saturating_sub(before) as f64 / secs.max(0.001)) as u64;
        rate
    }

    /// Whether none of the queues has live jobs. While the store does not answer, nobody knows: no.
    async fn is_empty(&mut self, backstop: &Backstop, queues: &[QueueName]) -> bool {
        match self.live(backstop, queues).await {
            Ok(live) => live == 0,
            Err(error) => {
                tracing::warn!(%error, "whether the queues are empty is unknown");
                false
            }
        }
    }

    async fn live(&mut self, backstop: &Backstop, queues: &[QueueName]) -> StoreResult<u64> {
        let all = backstop.store().queues(backstop.now()).await?;
        let mut live = 0;
        for queue in all.iter().filter(|queue| queues.contains(&queue.name)) {
            live += queue.counts.live();
            let waits = queue.counts.live() > queue.counts.of(JobState::Running);
            if queue.state == QueueState::Paused && waits && !self.has_noted_pause {
                self.has_noted_pause = true;
                let resume = format!("backstop queue resume {}", queue.name);
                self.context.output.note(format!(
                    "queue {} is paused and not empty; try: {resume}",
                    queue.name
                ));
            }
        }
        Ok(live)
    }
}
