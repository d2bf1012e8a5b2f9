//! The whole engine in one thread on virtual time: producers, workers, crashes, pauses, lost
//! messages, a clock that jumps.
//!
//! First the safety phase, in which anything may go wrong; then the liveness phase, in which
//! nothing does any more and everything must come to its end; then the history is checked against
//! the store. The seed decides it all: the same seed is the same run.

mod faults;
mod process;
mod witness;
mod worker;

use crate::flaky::Odds;
use crate::history::{FinalState, Recorder, Violation, check};
use backstop::testing::VirtualClock;
use backstop::{Clock, JobId, Priority, Span};
use backstop_core::port::OperatorStore;
use backstop_memory::MemoryStore;
use faults::Faults;
pub use faults::{FAULTS, Fired};
use process::Life;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use witness::Witness;
use worker::{Ground, QUEUES, Simulated, Worker};

/// After the faults have ended, everything is over within this: the longest clock jump and the
/// longest delay of a job are minutes.
const LIVENESS_MAX: Duration = Duration::from_hours(1);

/// What one seed came to.
#[derive(Debug)]
pub struct Simulation {
    /// What was decided from the seed, for whoever reads a failure.
    pub options: String,
    /// The jobs that were taken in.
    pub jobs: usize,
    /// What must not be, and was.
    pub violations: Vec<Violation>,
    /// The faults that came.
    pub fired: Fired,
    /// Everything that was recorded, as text: equal for equal seeds.
    pub history: String,
}

/// Runs one seed.
pub fn simulate(seed: u64) -> Simulation {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread needs nothing");
    runtime.block_on(run(seed))
}

async fn run(seed: u64) -> Simulation {
    let mut dice = StdRng::seed_from_u64(seed);
    let faults = Faults::from_seed(&mut dice);
    let (workers, jobs) = (dice.random_range(1..=4), dice.random_range(20..=150));
    let steps = dice.random_range(20..=120);
    let options = format!("{workers} workers, {jobs} jobs, {steps} steps, {faults:?}");
    let memory = Arc::new(MemoryStore::new());
    let recorder = Recorder::default();
    let ground = Ground {
        store: Arc::new(Witness::new(
            Arc::<MemoryStore>::clone(&memory),
            recorder.clone(),
        )),
        clock: Arc::new(VirtualClock::start()),
        recorder,
        fired: Fired::default(),
    };
    let mut world = World {
        ground,
        faults,
        workers: Vec::new(),
        started: 0,
        dice,
    };
    let producer = world.produce(jobs);
    for _ in 0..workers {
        world.start_worker();
    }
    for _ in 0..steps {
        world.step().await;
    }
    world.heal();
    drop(producer.await);
    world.drain(&memory).await;
    world.judge(&memory, options).await
}

/// Everything there is, while it goes wrong.
struct World {
    ground: Ground,
    faults: Faults,
    workers: Vec<Worker>,
    started: usize,
    dice: StdRng,
}

impl World {
    fn start_worker(&mut self) {
        self.started += 1;
        let name = format!("worker-{}", self.started);
        self.workers.push(Worker::start(
            &self.ground,
            self.faults,
            &name,
            &mut self.dice,
        ));
    }

    /// A producer that pushes all jobs, gives up on some, and comes back to others.
    fn produce(&mut self, jobs: usize) -> tokio::task::JoinHandle<()> {
        let process = Simulated::start(&self.ground, &self.faults, &mut self.dice);
        let (recorder, mut dice) = (
            self.ground.recorder.clone(),
            StdRng::seed_from_u64(self.dice.random()),
        );
        tokio::spawn(async move {
            for n in 0..jobs {
                let name = format!("job-{n}");
                let mut draft = process
                    .backstop
                    .draft(QUEUES[dice.random_range(0..2)])
                    .id(&name);
                draft = draft.priority(Priority::ALL[dice.random_range(0..4)]);
                if dice.random_bool(0.3) {
                    draft = draft.after(Span::millis(dice.random_range(0..30_000)));
                }
                if dice.random_bool(0.2) {
                    draft = draft.unique_key(&format!("key-{}", dice.random_range(0..5)));
                }
                let tries = dice.random_range(1..4);
                for _ in 0..tries {
                    let pushed = draft.clone().push().await;
                    recorder.pushed(JobId::named(&name), pushed.ok().map(|pushed| pushed.result));
                }
                tokio::time::sleep(Duration::from_millis(dice.random_range(0..400))).await;
            }
        })
    }

    /// Some time passes, and something may go wrong.
    async fn step(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.dice.random_range(100..2_000))).await;
        if self.dice.random_bool(self.faults.crash) {
            self.crash();
        }
        if self.dice.random_bool(self.faults.shutdown) {
            self.shut_down();
        }
        if self.dice.random_bool(self.faults.pause) {
            self.pause();
        }
        if self.dice.random_bool(self.faults.clock_jump) {
            self.ground.fired.note("clock jumped");
            self.ground
                .clock
                .jump(self.dice.random_range(-60_000_000..60_000_000));
        }
        if self.dice.random_bool(self.faults.store_down) {
            self.take_store_down();
        }
    }

    fn some_worker(&mut self) -> Option<usize> {
        (!self.workers.is_empty()).then(|| self.dice.random_range(0..self.workers.len()))
    }

    /// `kill -9`, and a new process in its place.
    fn crash(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let victim = self.workers.swap_remove(at);
        self.ground.fired.note("crash");
        self.ground
            .fired
            .add("lease lost", victim.running.progress().lost);
        victim.process.pulse.set(Life::Dead);
        drop(victim.running);
        self.start_worker();
    }

    /// A polite end, and a new process in its place.
    fn shut_down(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker = self.workers.swap_remove(at);
        self.ground.fired.note("shutdown");
        worker.running.stop();
        tokio::spawn(async move {
            let Worker { process, running } = worker;
            running.stopped().await;
            drop(process);
        });
        self.start_worker();
    }

    /// `SIGSTOP`, and `SIGCONT` up to three leases later.
    fn pause(&mut self) {
        let Some(at) = self.some_worker() else { return };
        self.ground.fired.note("pause");
        let pulse = self.workers[at].process.pulse.clone();
        let length = Duration::from_millis(self.dice.random_range(100..15_000));
        pulse.set(Life::Paused);
        tokio::spawn(async move {
            tokio::time::sleep(length).await;
            pulse.resume();
        });
    }

    fn take_store_down(&mut self) {
        let flaky: Vec<_> = self
            .workers
            .iter()
            .map(|worker| Arc::clone(&worker.process.flaky))
            .collect();
        let length = Duration::from_millis(self.dice.random_range(100..20_000));
        tokio::spawn(async move {
            for flaky in &flaky {
                flaky.set_down(true);
            }
            tokio::time::sleep(length).await;
            for flaky in &flaky {
                flaky.set_down(false);
            }
        });
    }

    /// From here on nothing goes wrong but handlers, and one worker has never known anything else.
    fn heal(&mut self) {
        for worker in &self.workers {
            worker.process.heal();
        }
        self.faults = Faults {
            calls: Odds::default(),
            twice: 0.0,
            ..self.faults
        };
        self.start_worker();
    }

    /// Waits until everything has come to its end, or should have.
    async fn drain(&mut self, memory: &MemoryStore) {
        let step = Duration::from_millis(500);
        for _ in 0..LIVENESS_MAX.as_millis() / step.as_millis() {
            let queues = memory
                .queues(self.ground.clock.now())
                .await
                .expect("memory answers");
            if queues.iter().all(|queue| queue.counts.live() == 0) {
                return;
            }
            tokio::time::sleep(step).await;
        }
    }

    async fn judge(mut self, memory: &MemoryStore, options: String) -> Simulation {
        for worker in self.workers.drain(..) {
            worker.running.stop();
            let progress = worker.running.stopped().await;
            self.ground.fired.add("lease lost", progress.lost);
        }
        let state = FinalState::read(memory, self.ground.clock.now())
            .await
            .expect("memory answers");
        let violations = check(&self.ground.recorder.history(), &state);
        let lines = self
            .ground
            .recorder
            .events()
            .into_iter()
            .map(|event| format!("{event}\n"));
        Simulation {
            options,
            jobs: state.jobs.len(),
            violations,
            fired: self.ground.fired,
            history: lines.collect(),
        }
    }
}
