//! `backstop job why`: the one gate a job stands before, and what opens it.

use crate::context::Context;
use crate::trouble::{Trouble, Verdict};
use backstop::JobId;
use backstop::why::{Facts, LIVE_WITHIN, Why, why};
use backstop_core::Job;
use backstop_core::gate::Shut;
use serde_json::json;

/// Answers; exits 1 if there is no such job.
pub(crate) async fn run(id: JobId, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let (store, now) = (backstop.store(), backstop.now());
    let job = store.job(id, now).await?;
    let queues = store.queues(now).await?;
    let workers = store.workers(LIVE_WITHIN, now).await?;
    let queue = job.as_ref().and_then(|job| queues.iter().find(|queue| queue.name == job.queue));
    let max_attempts = job.as_ref().and_then(|job| context.max_attempts(job));
    let (guards, rate) = match &job {
        Some(job) => {
            let guards = backstop.breakers().before(&job.queue, &job.kind).await?;
            (guards, backstop.rate_of(&job.queue).await?)
        }
        None => (Vec::new(), None),
    };
    let (guards, rate) = (guards.as_slice(), rate.as_ref());
    let answer = why(Facts { job: job.as_ref(), queue, workers: &workers, guards, rate, max_attempts, now });
    let next = next_step(&answer, job.as_ref());
    if context.output.is_json() {
        let state = job.as_ref().map(|job| job.state);
        let shape = json!({ "id": id, "state": state, "gate": answer.gate(), "why": answer.to_string(), "try": next });
        context.output.json(&shape)?;
    } else {
        context.output.line(&answer)?;
        if let Some(next) = next {
            context.output.line(format!("  try: {}", context.output.paint().command(next)))?;
        }
    }
    Ok(if answer == Why::NotFound { Verdict::FallsShort } else { Verdict::Fine })
}

/// The command that opens the gate, where one does.
fn next_step(answer: &Why, job: Option<&Job>) -> Option<String> {
    let Some(job) = job else { return Some("backstop job list".to_owned()) };
    match answer {
        Why::NotFound => Some("backstop job list".to_owned()),
        Why::Paused { .. } => Some(format!("backstop queue resume {}", job.queue)),
        Why::BreakerOpen { .. } => {
            Some(format!("backstop breaker reset {}, once the service is well", job.queue))
        }
        Why::GateShut { shut: Shut::Full, .. } => Some(format!(
            "backstop dead requeue, move, export or delete letters of --queue {}; the kind then goes on by itself",
            job.queue
        )),
        Why::GateShut { gate, .. } => {
            Some(format!("backstop dead groups --queue {}, then backstop breaker reset {gate}", job.queue))
        }
        Why::RateLimited { .. } => {
            Some(format!("a higher rate_limit for {}, if what is behind it can take more", job.queue))
        }
        Why::NotDue { .. } | Why::Retrying { .. } => {
            Some(format!("backstop job retry {}, to run it now", job.id))
        }
        Why::NoWorker | Why::Lost { .. } => Some(format!("backstop work {} --exec COMMAND", job.queue)),
        Why::Waiting { .. } => Some(format!("another worker, or a higher --concurrency, for {}", job.queue)),
        Why::Dead { .. } | Why::Cancelled { .. } => Some(format!("backstop job retry {}", job.id)),
        Why::Running { .. } | Why::Done { .. } => None,
    }
}
