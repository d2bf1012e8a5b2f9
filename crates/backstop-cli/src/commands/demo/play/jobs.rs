//! Jobs of three queues, pushed as if by a service that never sleeps, and what runs them.

use super::outages::DemoOutages;
use crate::commands::demo::workload::{DemoBehaviour, DemoQueue, behaviour_of, vary_duration};
use backstop::core::failure::ErrorReport;
use backstop::core::verdict::FailureAdvice;
use backstop::{Backstop, Run, RunError, Span};
use std::time::Duration;

/// How often each queue gets its jobs.
const EVERY: Duration = Duration::from_millis(500);
/// How long a report takes.
const REPORT: Duration = Duration::from_millis(300);

pub(super) async fn produce(backstop: Backstop, queue: &'static DemoQueue) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut number = 0;
    loop {
        ticks.tick().await;
        for _ in 0..queue.burst() {
            number += 1;
            let draft = queue.draft(&backstop, number);
            if let Err(error) = draft.push().await {
                tracing::warn!(%error, queue = queue.name, "the demo could not push");
            }
        }
    }
}

/// Runs one job of the three queues.
pub(super) async fn handle(
    queue: &'static DemoQueue,
    outages: DemoOutages,
    run: Run,
) -> Result<(), RunError> {
    tokio::time::sleep(vary_duration(queue.work, run.id())).await;
    if queue.name == "webhooks" && outages.is_down() {
        return Err(RunError::with_advice(unavailable(), FailureAdvice::Retry));
    }
    match behaviour_of(queue, &run)? {
        DemoBehaviour::FailsAlways if outages.is_mended() => Ok(()),
        behaviour => behaviour.ends(queue, &run),
    }
}

fn unavailable() -> ErrorReport {
    ErrorReport {
        message: "hooks.example.org answered 503 Service Unavailable".to_owned(),
        error_type: Some("HttpError".to_owned()),
        http_status: Some(503),
        response_body: Some("{\"error\":\"upstream is restarting\"}".to_owned()),
        ..ErrorReport::default()
    }
}

/// A report is quick, now and then not there yet, and never wrong.
pub(super) async fn report(run: Run) -> Result<(), RunError> {
    tokio::time::sleep(REPORT).await;
    let is_early = run.attempt() == 1 && run.id().as_bytes()[15].is_multiple_of(4);
    if is_early {
        Err(RunError::retry_after(
            Span::secs(2),
            "the figures are not in yet",
        ))
    } else {
        Ok(())
    }
}
