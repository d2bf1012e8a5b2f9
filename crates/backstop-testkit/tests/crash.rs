//! Real processes, real files, `kill -9`: worker processes on one SQLite file are killed at random moments, and what
//! they wrote down outside the store is checked against what the store ended up with.

use backstop::core::Payload;
use backstop::core::port::Enqueued;
use backstop::{Backstop, JobId, Kind, NewJob, QueueName, State};
use backstop_testkit::history::{Event, FinalState, Heard, History, HistoryLog, check};
use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const JOBS: usize = 10_000;
const KILLS: usize = 50;
const WORKERS: usize = 2;

struct Scene {
    folder: tempfile::TempDir,
    logs: usize,
}

impl Scene {
    fn store(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("crash.db").display())
    }

    fn log(&self, n: usize) -> PathBuf {
        self.folder.path().join(format!("history-{n}.log"))
    }

    /// A new process with a log of its own.
    fn start_worker(&mut self) -> Child {
        self.logs += 1;
        let worker = env!("CARGO_BIN_EXE_crash_worker");
        let mut command = Command::new(worker);
        command.arg(self.store()).arg(self.log(self.logs)).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the worker starts")
    }

    fn history(&self, pushed: Vec<Event>) -> History {
        let mut history = History::of(pushed);
        for n in (1..=self.logs).map(|n| self.log(n)).filter(|path| Path::exists(path)) {
            history.add_log(HistoryLog::read(n).expect("the log can be read"));
        }
        history
    }
}

fn jobs() -> Vec<NewJob> {
    let queue = QueueName::new("crash").expect("a name");
    let payload = Payload::json(&b"{}"[..]).expect("JSON");
    (0..JOBS)
        .map(|n| {
            NewJob::new(JobId::named(&format!("crash-{n}")), queue.clone(), Kind::default(), payload.clone())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_lose_nothing_and_accept_nothing_twice() {
    let seed: u64 = rand::random();
    let mut dice = StdRng::seed_from_u64(seed);
    let mut scene = Scene { folder: tempfile::tempdir().expect("a folder"), logs: 0 };
    let backstop = Backstop::open(&scene.store()).await.expect("opened");
    let answers = backstop.push_jobs(jobs()).await.expect("pushed");
    assert!(answers.iter().all(|answer| *answer == Enqueued::Inserted));
    let pushed = jobs().into_iter().map(|job| Event::Enqueued { job: job.id, heard: Heard::Ok }).collect();

    let mut workers: Vec<Child> = (0..WORKERS).map(|_| scene.start_worker()).collect();
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(dice.random_range(20..250))).await;
        let victim = dice.random_range(0..WORKERS);
        workers[victim].kill().expect("killed");
        workers[victim].wait().expect("gone");
        workers[victim] = scene.start_worker();
    }
    let queues = backstop.store().queues(backstop.now()).await.expect("listed");
    assert!(queues[0].counts.live() > 0, "the last kill must have met work, or it showed nothing");
    until_ended(&mut workers).await;

    let state = FinalState::read(&**backstop.store(), backstop.now()).await.expect("read");
    let violations = check(&scene.history(pushed), &state);
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    let totals = state.queues[0].totals;
    let count = |wanted| state.jobs.iter().filter(|job| job.state == wanted).count() as u64;
    assert_eq!(totals.done, count(State::Done), "every success was accepted once");
    assert_eq!(totals.dead, count(State::Dead));
    assert_eq!(totals.done + totals.dead, JOBS as u64);
    let lost: u32 = state.jobs.iter().map(|job| job.lost_leases).sum();
    assert!(lost > 0, "fifty kills must have cost leases, or nothing was shown");
    println!("seed {seed}: {KILLS} kills, {lost} lease(s) lost, {} done, {} dead", totals.done, totals.dead);
}

async fn until_ended(workers: &mut [Child]) {
    let deadline = Instant::now() + Duration::from_mins(2);
    for worker in workers {
        while worker.try_wait().expect("asked").is_none() {
            assert!(Instant::now() < deadline, "the backlog did not drain within two minutes");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
