//! Worker processes on one store, each with a history of its own.

use backstop::core::Payload;
use backstop::core::port::{EnqueueOutcome, QueueTotals};
use backstop::{Backstop, JobId, JobState, Kind, NewJob, QueueName};
use backstop_testkit::history::{Event, FinalState, Heard, History, HistoryLog, check};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A backlog that is not worked off by then never will be.
const DRAIN_TIME_MAX: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The processes, and the store as the test itself sees it.
pub(crate) struct Fleet {
    pub(crate) backstop: Backstop,
    store: String,
    logs: TempDir,
    pushed: Vec<JobId>,
    workers: Vec<Worker>,
}

/// One process, alive or not.
struct Worker {
    process: Child,
    log: PathBuf,
    is_killed: bool,
}

impl Fleet {
    /// A store with `count` jobs, and no worker yet.
    pub(crate) async fn with_jobs(store: &str, count: usize) -> Self {
        let backstop = Backstop::open(store).await.expect("the store opens");
        let jobs = jobs(count);
        let pushed = jobs.iter().map(|job| job.id).collect();
        let answers = backstop.push_jobs(jobs).await.expect("pushed");
        assert!(
            answers
                .iter()
                .all(|answer| *answer == EnqueueOutcome::Inserted)
        );
        let logs = tempfile::tempdir().expect("a folder");
        Self {
            backstop,
            store: store.to_owned(),
            logs,
            pushed,
            workers: Vec::new(),
        }
    }

    /// Starts a process; answers its place in the fleet.
    pub(crate) fn start_worker(&mut self) -> usize {
        let at = self.workers.len();
        let log = self.logs.path().join(format!("history-{at}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_crash_worker"));
        command
            .arg(&self.store)
            .arg(&log)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let process = command.spawn().expect("the worker starts");
        self.workers.push(Worker {
            process,
            log,
            is_killed: false,
        });
        at
    }

    /// What a process that has just been started says: within what time a dead worker's job runs
    /// again.
    pub(crate) fn recovery_bound(&mut self, at: usize) -> Duration {
        let mut line = String::new();
        let stdout = self.workers[at].process.stdout.take().expect("asked once");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it says something");
        Duration::from_millis(line.trim().parse().expect("a number of milliseconds"))
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        worker.process.kill().expect("killed");
        worker.process.wait().expect("gone");
        worker.is_killed = true;
    }

    /// Pushes the job that kills whoever runs it.
    pub(crate) async fn push_poison(&mut self) -> JobId {
        let pushed = self
            .backstop
            .draft("crash")
            .id("poison")
            .push()
            .await
            .expect("pushed");
        self.pushed.push(pushed.id);
        pushed.id
    }

    /// Whether a process has died, of itself and not by its own will.
    pub(crate) fn has_died(&mut self, at: usize) -> bool {
        let worker = &mut self.workers[at];
        let ended = worker.process.try_wait().expect("asked");
        worker.is_killed |= ended.is_some_and(|status| !status.success());
        worker.is_killed
    }

    /// What a process has written down so far.
    pub(crate) fn events(&self, at: usize) -> Vec<Event> {
        let log = &self.workers[at].log;
        // A process killed early may not have come to open it.
        if log.exists() {
            HistoryLog::read(log).expect("the log can be read")
        } else {
            Vec::new()
        }
    }

    /// How many jobs have not ended.
    pub(crate) async fn live(&self) -> u64 {
        let queues = self
            .backstop
            .store()
            .queues(self.backstop.now())
            .await
            .expect("listed");
        queues.iter().map(|queue| queue.counts.live()).sum()
    }

    /// Waits until all processes have ended by themselves, which they do when nothing is left.
    pub(crate) async fn until_ended(&mut self) {
        let deadline = Instant::now() + DRAIN_TIME_MAX;
        for worker in &mut self.workers {
            while worker.process.try_wait().expect("asked").is_none() {
                assert!(
                    Instant::now() < deadline,
                    "the backlog did not drain within {DRAIN_TIME_MAX:?}"
                );
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    /// Nothing is lost, nothing was accepted twice; answers what the store ended up with.
    pub(crate) async fn assert_sound(&self) -> FinalState {
        let heard = |job: &JobId| Event::Enqueued {
            job: *job,
            heard: Heard::Ok,
        };
        let mut history = History::of(self.pushed.iter().map(heard).collect());
        for (at, worker) in self.workers.iter().enumerate() {
            if worker.is_killed {
                history.add_cut_log(self.events(at));
            } else {
                history.add_log(self.events(at));
            }
        }
        let state = FinalState::read(&**self.backstop.store(), self.backstop.now())
            .await
            .expect("read");
        let violations = check(&history, &state);
        assert!(violations.is_empty(), "{violations:#?}");
        let count = |wanted| state.jobs.iter().filter(|job| job.state == wanted).count() as u64;
        let QueueTotals { done, dead, .. } = state.queues[0].totals;
        assert_eq!(
            done,
            count(JobState::Done),
            "every success was accepted once"
        );
        assert_eq!(dead, count(JobState::Dead));
        assert_eq!(done + dead, self.pushed.len() as u64);
        state
    }
}

impl Drop for Fleet {
    /// A test that failed leaves no workers behind.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
    }
}

fn jobs(count: usize) -> Vec<NewJob> {
    let queue = QueueName::new("crash").expect("a name");
    let payload = Payload::json(&b"{}"[..]).expect("JSON");
    let job = |n| {
        NewJob::new(
            JobId::named(&format!("crash-{n}")),
            queue.clone(),
            Kind::default(),
            payload.clone(),
        )
    };
    (0..count).map(job).collect()
}
