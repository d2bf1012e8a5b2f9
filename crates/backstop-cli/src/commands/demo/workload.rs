//! The demo's jobs, and the handlers that make something of them.

use crate::error::CliError;
use backstop::{
    Backstop, JobDraft, QueueName, QueueSettings, RetryPolicy, Run, RunError, RunningWorker, Span,
};
use backstop_core::JobId;
use serde_json::{Value, json};
use std::time::Duration;

/// One queue of the demo.
pub(super) struct DemoQueue {
    pub(super) name: &'static str,
    kind: &'static str,
    /// Its share of all jobs, in percent.
    pub(super) share: u64,
    /// How long one of its jobs takes.
    pub(super) work: Duration,
}

pub(super) const QUEUES: [DemoQueue; 3] = [
    DemoQueue {
        name: "emails",
        kind: "welcome",
        share: 50,
        work: Duration::from_millis(60),
    },
    DemoQueue {
        name: "images",
        kind: "resize",
        share: 20,
        work: Duration::from_millis(140),
    },
    DemoQueue {
        name: "webhooks",
        kind: "deliver",
        share: 30,
        work: Duration::from_millis(95),
    },
];

/// The names of the queues.
pub(super) fn names() -> Result<Vec<QueueName>, CliError> {
    QUEUES
        .iter()
        .map(|queue| QueueName::new(queue.name).map_err(CliError::new))
        .collect()
}

const AT_ONCE: usize = 16;
/// Soon enough for somebody who watches.
const RETRY: &str = r#"{"kind":"exponential","base":"500ms","factor":2.0,"cap":"4s","jitter":0.25,"max_attempts":3}"#;

/// What a job does to its handler: decided by its number, so that every demo is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DemoBehaviour {
    Works,
    FailsOnce,
    FailsAlways,
    IsRejected,
    IsDueLater,
}

impl DemoQueue {
    /// How many of `jobs` are its own.
    pub(super) const fn jobs(&self, jobs: u64) -> u64 {
        jobs * self.share / 100
    }

    /// How many jobs it gets at once, where it gets them for ever.
    pub(super) const fn burst(&self) -> u64 {
        self.share / 10
    }

    fn behaviour(&self, number: u64) -> DemoBehaviour {
        match (self.name, number % 100) {
            (_, 7 | 47) | ("webhooks", 3 | 13 | 63) => DemoBehaviour::FailsOnce,
            ("webhooks", 31) => DemoBehaviour::FailsAlways,
            ("webhooks", 77) | ("images", 5) => DemoBehaviour::IsRejected,
            ("emails", 20..=24) => DemoBehaviour::IsDueLater,
            _ => DemoBehaviour::Works,
        }
    }

    fn payload(&self, number: u64) -> Value {
        match self.kind {
            "welcome" => json!({ "n": number, "to": format!("user{number}@example.org") }),
            "resize" => json!({ "n": number, "file": format!("photo-{number}.jpg"), "width": 640 }),
            _ => json!({ "n": number, "url": format!("https://hooks.example.org/{number}") }),
        }
    }

    pub(super) fn draft(&self, backstop: &Backstop, number: u64) -> JobDraft {
        let draft = backstop
            .draft(self.name)
            .kind(self.kind)
            .json(&self.payload(number));
        match self.behaviour(number) {
            // One to four seconds from now.
            DemoBehaviour::IsDueLater => {
                draft.after(Span::millis(1_000 + (number.cast_signed() * 37) % 3_000))
            }
            _ => draft,
        }
    }
}

/// Pushes the jobs of all queues; answers how many there are.
pub(super) async fn push(backstop: &Backstop, jobs: u64) -> Result<u64, CliError> {
    let mut all = Vec::new();
    for queue in &QUEUES {
        for number in 1..=queue.jobs(jobs) {
            all.push(queue.draft(backstop, number).build().await?);
        }
    }
    let pushed = all.len() as u64;
    backstop.push_jobs(all).await?;
    Ok(pushed)
}

/// Starts one worker for all queues.
pub(super) fn start(backstop: &Backstop) -> Result<RunningWorker, CliError> {
    let retry = RetryPolicy::from_json(RETRY.as_bytes()).map_err(CliError::new)?;
    let mut worker = backstop.worker();
    for queue in &QUEUES {
        let settings = QueueSettings {
            concurrency: AT_ONCE,
            retry: retry.clone(),
            ..QueueSettings::default()
        };
        worker = worker
            .queue(queue.name, settings)
            .handle_raw(queue.name, move |run| handle(queue, run));
    }
    Ok(worker.start()?)
}

async fn handle(queue: &'static DemoQueue, run: Run) -> Result<(), RunError> {
    tokio::time::sleep(vary_duration(queue.work, run.id())).await;
    behaviour_of(queue, &run)?.ends(queue, &run)
}

/// What this job does to its handler.
pub(super) fn behaviour_of(queue: &DemoQueue, run: &Run) -> Result<DemoBehaviour, RunError> {
    let payload: Value = serde_json::from_slice(run.payload())?;
    Ok(queue.behaviour(payload["n"].as_u64().unwrap_or_default()))
}

impl DemoBehaviour {
    pub(super) fn ends(self, queue: &DemoQueue, run: &Run) -> Result<(), RunError> {
        match self {
            Self::FailsOnce if run.attempt() == 1 => {
                Err(RunError::retry("connection reset by peer"))
            }
            Self::FailsAlways => Err(RunError::retry(format!(
                "hooks.example.org answered 503 to attempt {}",
                run.attempt()
            ))),
            Self::IsRejected if queue.kind == "resize" => {
                Err(RunError::dead("not an image: unexpected end of file"))
            }
            Self::IsRejected => Err(RunError::dead("hooks.example.org answered 410 Gone")),
            Self::Works | Self::FailsOnce | Self::IsDueLater => Ok(()),
        }
    }
}

/// From half to one and a half times as long: real work is never even.
pub(super) fn vary_duration(work: Duration, id: JobId) -> Duration {
    let share = f64::from(id.as_bytes()[15]) / 255.0;
    work.mul_f64(0.5 + share)
}
