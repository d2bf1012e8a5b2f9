//! Simulated workers: the real engine, with handlers that are slow, fail and panic.

use super::faults::{Faults, Fired};
use super::process::{Process, Pulse};
use crate::flaky::{Fault, Flaky};
use crate::history::Ran;
use crate::history::Recorder;
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, QueueSettings, RandomSource, RetryPolicy, Run, RunError, RunningWorker,
    ServicePlacement, Span, WorkerTiming,
};
use backstop_core::port::{Retention, Store};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::Duration;

/// The queues of the simulated world.
pub(super) const QUEUES: [&str; 2] = ["fast", "slow"];

/// What every simulated process stands on.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) recorder: Recorder,
    pub(super) fired: Fired,
}

/// A process of the simulated world.
pub(super) struct Simulated {
    pub(super) pulse: Pulse,
    pub(super) flaky: Arc<Flaky>,
    pub(super) backstop: Backstop,
    ground: Ground,
}

impl Simulated {
    pub(super) fn start(ground: &Ground, faults: &Faults, dice: &mut StdRng) -> Self {
        let pulse = Pulse::beating();
        let flaky = Arc::new(Flaky::with_odds(
            Arc::clone(&ground.store),
            dice.random(),
            faults.calls,
        ));
        let way: Arc<dyn Store> = Arc::<Flaky>::clone(&flaky);
        let process = Process::new(
            way,
            pulse.clone(),
            faults.twice,
            dice.random(),
            ground.fired.clone(),
        );
        let clock = Arc::<VirtualClock>::clone(&ground.clock);
        let backstop = Backstop::on(
            Arc::new(process),
            clock,
            RandomSource::seeded(dice.random()),
        );
        Self {
            pulse,
            flaky,
            backstop,
            ground: ground.clone(),
        }
    }

    /// From now on nothing goes wrong between this process and the store.
    pub(super) fn heal(&self) {
        self.flaky.set_faults(false);
        self.flaky.set_down(false);
        self.pulse.resume();
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        let fired = &self.ground.fired;
        fired.add("request lost", self.flaky.injected(Fault::Refused));
        fired.add("reply lost", self.flaky.injected(Fault::LostReply));
        fired.add("hint lost", self.flaky.injected(Fault::LostHint));
        fired.add("store down", self.flaky.injected(Fault::Down));
    }
}

/// A worker process.
pub(super) struct Worker {
    pub(super) process: Simulated,
    pub(super) running: RunningWorker,
}

impl Worker {
    pub(super) fn start(ground: &Ground, faults: Faults, name: &str, dice: &mut StdRng) -> Self {
        let process = Simulated::start(ground, &faults, dice);
        let timing = WorkerTiming {
            poll: Span::millis(500),
            grace: Span::secs(5),
            ..WorkerTiming::default()
        };
        let mut builder = process
            .backstop
            .worker()
            .name(name)
            .services(ServicePlacement::CallersRuntime)
            .timing(timing);
        for queue in QUEUES {
            let hand = Hand {
                name: name.to_owned(),
                pulse: process.pulse.clone(),
                ground: ground.clone(),
                faults,
                seed: dice.random(),
            };
            let handler = move |run: Run| hand.clone().handle(run);
            builder = builder
                .handle_raw(queue, handler)
                .queue(queue, settings(dice));
        }
        let running = builder
            .start()
            .expect("the simulated worker's settings are sound");
        Self { process, running }
    }
}

fn settings(dice: &mut StdRng) -> QueueSettings {
    let retry = br#"{"kind":"exponential","base":"1s","cap":"8s","max_attempts":4}"#;
    QueueSettings {
        concurrency: dice.random_range(1..5),
        prefetch: Some(dice.random_range(0..4)),
        retry: RetryPolicy::from_json(retry).expect("a policy"),
        timeout: Some(Span::secs(20)),
        lease: Span::secs(5),
        // Everything stays to be checked.
        retention: Retention {
            done_for: Span::days(1_000),
            done_max: u64::MAX,
            ..Retention::default()
        },
        ..QueueSettings::default()
    }
}

/// What a handler needs to know.
#[derive(Clone)]
struct Hand {
    name: String,
    pulse: Pulse,
    ground: Ground,
    faults: Faults,
    seed: u64,
}

impl Hand {
    async fn handle(self, run: Run) -> Result<(), RunError> {
        let mut dice =
            StdRng::seed_from_u64(self.seed ^ run.lease().number.as_i64().unsigned_abs());
        self.pulse.running().await;
        self.ground.recorder.started(&run, &self.name);
        let long = if run.queue().as_str() == "slow" {
            12_000
        } else {
            300
        };
        tokio::time::sleep(Duration::from_millis(dice.random_range(0..long))).await;
        // A process that was killed or stopped meanwhile does not go on.
        self.pulse.running().await;
        if dice.random_bool(self.faults.handler_panics) {
            self.ground.fired.note("handler panicked");
            self.ground.recorder.ended(&run, Ran::Failed);
            std::panic::resume_unwind(Box::new("simulated panic".to_owned()));
        }
        let failed = dice.random_bool(self.faults.handler_fails);
        self.ground
            .recorder
            .ended(&run, if failed { Ran::Failed } else { Ran::Done });
        if failed {
            self.ground.fired.note("handler failed");
            return Err(RunError::retry("simulated failure"));
        }
        Ok(())
    }
}
