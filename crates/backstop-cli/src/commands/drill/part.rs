//! What the processes of a drill do until they are killed, or until whoever started them lets go of
//! their stdin.
//!
//! | part | says |
//! |---|---|
//! | victim | `ready BOUND_MS`, then `began JOB`, and never ends that job |
//! | rescuer | `ready BOUND_MS`, then `began JOB` |
//! | writer | `acknowledged JOB` for each job that the store has taken |

use super::QUEUE;
use crate::context::Context;
use crate::output::Output;
use crate::trouble::{Trouble, Verdict};
use backstop::{Backstop, Fail, QueueSettings, Run, Span};
use backstop_core::port::Enqueued;
use backstop_core::{Kind, NewJob, Payload, QueueName};
use clap::ValueEnum;
use std::io;
use tokio::sync::oneshot;

/// Jobs of one push of the writer.
const BATCH: usize = 20;

/// A part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Part {
    /// Is killed in the middle of a job.
    Victim,
    /// Runs that job again.
    Rescuer,
    /// Is killed in the middle of a write.
    Writer,
}

/// Plays a part.
pub(super) async fn play(part: Part, lease: Span, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.open().await?;
    match part {
        Part::Victim | Part::Rescuer => work(part, &backstop, lease, context.output).await,
        Part::Writer => write(&backstop, context.output).await,
    }
}

async fn work(
    part: Part,
    backstop: &Backstop,
    lease: Span,
    output: Output,
) -> Result<Verdict, Trouble> {
    let handler = move |run: Run| async move {
        output
            .line(format!("began {}", run.id()))
            .map_err(|_| Fail::retry("nobody listens"))?;
        if part == Part::Victim {
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
    let_go().await;
    worker.force();
    worker.stopped().await;
    Ok(Verdict::Fine)
}

async fn write(backstop: &Backstop, output: Output) -> Result<Verdict, Trouble> {
    let queue = QueueName::new(QUEUE).map_err(Trouble::new)?;
    let payload = Payload::json(&b"\"drill\""[..]).map_err(Trouble::new)?;
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
                .filter(|(_, answer)| *answer == Enqueued::Inserted)
            {
                output.line(format!("acknowledged {}", job.id))?;
            }
        }
    };
    tokio::select! {
        failed = push => failed,
        () = let_go() => Ok(Verdict::Fine),
    }
}

/// Returns when whoever leads the drill has closed our stdin, or is gone. Read on a thread of its
/// own: it never ends by itself, and must not keep the program from ending.
async fn let_go() {
    let (told, heard) = oneshot::channel();
    std::thread::spawn(move || {
        // Nothing is ever said; an error is as good as the end.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = told.send(());
    });
    let _ = heard.await;
}
