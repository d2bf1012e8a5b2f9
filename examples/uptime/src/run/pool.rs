//! The worker processes of a run.

use super::message::{Answer, Batch};
use crate::mode::Setup;
use crate::sequencer::Hold;
use crate::world::Arrival;
use anyhow::{Context, Result, bail};
use serde_json::value::RawValue;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The variable that has the store's address.
pub const STORE_VARIABLE: &str = "UPTIME_STORE";

/// Worker processes. They end when their input does, so none is left behind, however a run ends.
pub(super) struct Pool {
    workers: Vec<Worker>,
    told: Receiver<Told>,
}

struct Worker {
    process: Child,
    input: ChildStdin,
}

/// What a worker said; nothing more comes from one that said nothing.
pub(super) struct Told {
    pub(super) worker: usize,
    pub(super) answer: Option<Answer>,
}

impl Pool {
    pub(super) fn start(program: &Path, setup: &Setup, workers: usize) -> Result<Self> {
        let (sender, told) = channel();
        let workers = (0..workers).map(|nth| start(program, setup, nth, &sender));
        Ok(Self {
            workers: workers.collect::<Result<_>>()?,
            told,
        })
    }

    /// Gives a worker a batch.
    pub(super) fn send<'a>(
        &mut self,
        worker: usize,
        batch: u64,
        arrivals: impl Iterator<Item = &'a Arrival>,
    ) -> Result<()> {
        let arrivals = arrivals.map(|arrival| RawValue::from_string(arrival.to_line()));
        let mut line = serde_json::to_string(&Batch {
            batch,
            arrivals: arrivals.collect::<Result<_, _>>()?,
        })?;
        line.push('\n');
        let sent = self.workers[worker].input.write_all(line.as_bytes());
        sent.with_context(|| format!("worker {worker} takes no more results"))
    }

    /// What a worker says next; nothing if none says anything for so long.
    pub(super) fn hear(&self, patience: Duration) -> Option<Told> {
        self.told.recv_timeout(patience).ok()
    }

    /// Lets all of them end, and says what the hold went through. They share it, so whoever tells
    /// tells for all.
    pub(super) fn finish(self, patience: Duration) -> Result<Option<Hold>> {
        let mut processes = Vec::new();
        for Worker { process, input } in self.workers {
            drop(input);
            processes.push(process);
        }
        let (deadline, mut left, mut hold) = (Instant::now() + patience, processes.len(), None);
        while left > 0 {
            let told = self
                .told
                .recv_timeout(deadline.saturating_duration_since(Instant::now()));
            match told.context("the workers do not end")? {
                Told {
                    answer: Some(Answer::Finished { hold: of_worker }),
                    ..
                } => hold = of_worker.or(hold),
                Told {
                    answer: Some(Answer::Taken { .. }),
                    worker,
                } => {
                    bail!("worker {worker} answered for a batch that nobody gave it")
                }
                Told { answer: None, .. } => left -= 1,
            }
        }
        for (nth, mut process) in processes.into_iter().enumerate() {
            let status = process.wait()?;
            if !status.success() {
                bail!("worker {nth} failed ({status}); see above for its reason");
            }
        }
        Ok(hold)
    }
}

fn start(program: &Path, setup: &Setup, nth: usize, sender: &Sender<Told>) -> Result<Worker> {
    let mut process = Command::new(program)
        .arg("worker")
        .args([
            "--mode",
            &setup.mode.to_string(),
            "--clock",
            &setup.clock.to_string(),
        ])
        .arg("--directory")
        .arg(&setup.directory)
        .arg("--memory")
        .arg(&setup.memory)
        .args(["--stream", &setup.stream])
        // Addresses may have passwords in them, and everybody sees arguments.
        .env(STORE_VARIABLE, &setup.store)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    let input = process.stdin.take().context("a worker without input")?;
    let output = process.stdout.take().context("a worker without output")?;
    let sender = sender.clone();
    thread::spawn(move || relay(nth, output, &sender));
    Ok(Worker { process, input })
}

/// Passes on what a worker says, and that it says no more.
fn relay(worker: usize, output: ChildStdout, sender: &Sender<Told>) {
    for line in BufReader::new(output).lines() {
        let answer = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        let is_last = answer.is_none();
        if sender.send(Told { worker, answer }).is_err() || is_last {
            return;
        }
    }
    let _ = sender.send(Told {
        worker,
        answer: None,
    });
}
