//! What the processes of a drill do until they are killed, or until whoever started them lets go of
//! their stdin.
//!
//! | part | says |
//! |---|---|
//! | victim | `ready BOUND_MS`, then `began JOB`, and never ends that job |
//! | rescuer | `ready BOUND_MS`, then `began JOB` |
//! | writer | `acknowledged JOB` for each job that the store has taken |

use super::QUEUE;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::CliOutput;
use backstop::{Backstop, QueueSettings, Run, RunError, Span};
use backstop_core::port::EnqueueOutcome;
use backstop_core::{Kind, NewJob, Payload, QueueName};
use clap::ValueEnum;
use std::io;
use tokio::sync::oneshot;

/// Jobs of one push of the writer.
const BATCH: usize = 20;

/// A part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum DrillPart {
    /// Is killed in the middle of a job.
    Victim,
    /// Runs that job again.
    Rescuer,
    /// Is killed in the middle of a write.
    Writer,
}

pub(super) async fn run_part(
    part: DrillPart,
    lease: Span,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open().await?;
    match part {
        DrillPart::Victim | DrillPart::Rescuer => {
            work(part, &backstop, lease, context.output).await
        }
        DrillPart::Writer => write(&backstop, context.output).await,
    }
}

async fn work(
    part: DrillPart,
    backstop: &Backstop,
    lease: Span,
    output: CliOutput,
) -> Result<ExitStatus, CliError> {
    let handler = move |run: Run| async move {
        output
            .line(format!("began {}", run.id()))
            .map_err(|_| RunError::retry("nobody listens"))?;
        if part == DrillPart::Victim {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let settings = QueueSettings {
        concurrency: 1,
        prefetch: Some(0),
        lease,
        ..QueueSettings::default()
    };
    let worker = backstop
        .worker()
        .handle_raw(QUEUE, handler)
        .queue(QUEUE, settings)
        .start()?;
    output.line(format!("ready {}", worker.recovery_bound().as_millis()))?;
    wait_for_stdin_end().await;
    worker.force();
    worker.stopped().await;
    Ok(ExitStatus::Success)
}

async fn write(backstop: &Backstop, output: CliOutput) -> Result<ExitStatus, CliError> {
    let queue = QueueName::new(QUEUE).map_err(CliError::new)?;
    let payload = Payload::json(&b"\"drill\""[..]).map_err(CliError::new)?;
    let job = || {
        NewJob::new(
            backstop.new_id(),
            queue.clone(),
            Kind::default(),
            payload.clone(),
        )
    };
    let push = async {
        loop {
            let jobs: Vec<NewJob> = (0..BATCH).map(|_| job()).collect();
            let answers = backstop.push_jobs(jobs.clone()).await?;
            for (job, _) in jobs
                .iter()
                .zip(answers)
                .filter(|(_, answer)| *answer == EnqueueOutcome::Inserted)
            {
                output.line(format!("acknowledged {}", job.id))?;
            }
        }
    };
    tokio::select! {
        failed = push => failed,
        () = wait_for_stdin_end() => Ok(ExitStatus::Success),
    }
}

/// Returns when whoever leads the drill has closed our stdin, or is gone. Read on a thread of its
/// own: it never ends by itself, and must not keep the program from ending.
async fn wait_for_stdin_end() {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // Nothing is ever said; an error is as good as the end.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = sender.send(());
    });
    let _ = receiver.await;
}
