//! `backstop job`: look at jobs, retry, cancel or delete them, ask why one does not run.

pub(crate) mod amend;
pub(crate) mod list;
mod overlaps;
mod show;
mod why;

use super::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::search::{JobSearch, SearchText};
use backstop::{Backstop, JobId, JobState, Kind, QueueName};
use backstop_core::amend::{AmendAction, Filter};
use backstop_core::{Job, WorkerName};
use clap::{Args, Subcommand};

/// Look at jobs, retry, cancel or delete them, ask why one does not run.
#[derive(Subcommand, Debug)]
pub(crate) enum JobSubcommand {
    /// List jobs
    #[command(after_help = "\
Examples:
  backstop job list --queue emails --state dead
  backstop job list --limit 1000 --json
  backstop job list --queue emails --text ada@example.org
  backstop job list --all --json | jq -r '.jobs[].id'

With --state waiting jobs come by their time, ready ones in the order they run, ended ones newest first; without it the newest come first.")]
    List(list::JobListArgs),
    /// Show one job with its payload and errors
    #[command(after_help = "\
Examples:
  backstop job show 019a8c2e-7d11-7c3e-9a55-0d6c1f0a2b3c
  backstop job show order-17        a name given with `push --id` works as well")]
    Show(JobIdArgs),
    /// Run jobs now: waiting ones at once, dead and cancelled ones with all attempts again
    #[command(after_help = "\
Examples:
  backstop job retry 019a8c2e-7d11-7c3e-9a55-0d6c1f0a2b3c
  backstop job retry --queue emails --state dead
  backstop job retry --all

Of dead letters it is the same as `backstop dead requeue`, which also selects by cause and by age.")]
    Retry(JobSelectionArgs),
    /// Call jobs off; a running one is told to stop
    #[command(after_help = "\
Examples:
  backstop job cancel order-17 order-18
  backstop job cancel --queue emails --kind newsletter --reason 'sent twice, ticket 4711'

The reason is entered in the audit, which `backstop dead audit` shows.")]
    Cancel(JobSelectionArgs),
    /// Remove jobs with their history; running ones stay
    #[command(after_help = "\
Examples:
  backstop job delete order-17
  backstop job delete order-17 --queue emails      on Redis, where several queues have a job of that id
  backstop job delete --queue emails --state done --yes

What is removed cannot be brought back: whoever names no ids is asked first, or says --yes.")]
    Delete(amend::JobDeleteArgs),
    /// Say in one sentence why a job does not run, and what to do
    #[command(after_help = "\
Examples:
  backstop job why order-17
  backstop job why 019a8c2e-7d11-7c3e-9a55-0d6c1f0a2b3c --json")]
    Why(JobIdArgs),
    /// List runs that went on after their lease was lost, while another worker could have had their
    /// job
    #[command(after_help = "\
Examples:
  backstop job overlaps
  backstop job overlaps --limit 1000 --json

A handler that blocks its thread, a process that was stopped and went on, a machine that slept: the job may have run twice at
the same time then. The outcome of the run that is listed did not count.")]
    Overlaps(overlaps::JobOverlapsArgs),
}

/// Which job.
#[derive(Args, Debug)]
pub(crate) struct JobIdArgs {
    /// Its id, or the name it was pushed under
    #[arg(value_name = "ID")]
    id: String,
    /// Its queue: on Redis several may have a job of one id
    #[arg(long)]
    queue: Option<QueueName>,
}

/// Which jobs, by what they are.
#[derive(Args, Debug)]
pub(crate) struct JobFilterArgs {
    /// Of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// Of this kind
    #[arg(long)]
    kind: Option<Kind>,
    /// In this state: scheduled, ready, running, retrying, done, dead or cancelled
    #[arg(long)]
    state: Option<JobState>,
    /// With this in the payload as lists show it, in whatever case; hidden secrets are not found
    #[arg(long)]
    text: Option<SearchText>,
    /// Running, and held by the worker of this name
    #[arg(long, value_name = "NAME", value_parser = worker)]
    worker: Option<WorkerName>,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "clap's own shape; a name is cut, never refused"
)]
fn worker(text: &str) -> Result<WorkerName, std::convert::Infallible> {
    Ok(WorkerName::new(text))
}

/// Which jobs: these, those that fit, or all in so many words.
#[derive(Args, Debug)]
pub(crate) struct JobSelectionArgs {
    /// Their ids, or the names they were pushed under
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: JobFilterArgs,
    /// Every job there is
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

impl JobSubcommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::List(_) | Self::Show(_) | Self::Why(_) | Self::Overlaps(_)
        )
    }
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &JobSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        JobSubcommand::List(args) => list::run(args, context).await,
        JobSubcommand::Show(args) => show::run(args, context).await,
        JobSubcommand::Retry(args) => amend::run(args, AmendAction::Retry, context).await,
        JobSubcommand::Cancel(args) => amend::run(args, AmendAction::Cancel, context).await,
        JobSubcommand::Delete(args) => amend::delete(args, context).await,
        JobSubcommand::Why(args) => why::run(args, context).await,
        JobSubcommand::Overlaps(args) => overlaps::run(args, context).await,
    }
}

impl JobIdArgs {
    /// Its id as it was written.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The job that is meant.
    pub(super) async fn job(&self, backstop: &Backstop) -> Result<Option<Job>, CliError> {
        let id = JobId::from_text(&self.id);
        if let Some(queue) = &self.queue {
            return Ok(backstop.job_in(queue, id).await?);
        }
        let mut found = backstop.namesakes(id).await?;
        if found.len() > 1 {
            return Err(ambiguous(&found));
        }
        Ok(found.pop())
    }
}

impl JobFilterArgs {
    fn search(&self) -> JobSearch {
        let (queue, kind, state) = (self.queue.clone(), self.kind.clone(), self.state);
        let filter = Filter {
            queue,
            kind,
            state,
            fingerprint: None,
        };
        JobSearch {
            filter,
            text: self.text.clone(),
            worker: self.worker.clone(),
        }
    }
}

/// Several queues have a job of one id.
fn ambiguous(found: &[Job]) -> CliError {
    let queues: Vec<&str> = found.iter().map(|job| job.queue.as_str()).collect();
    let first = queues.first().copied().unwrap_or_default();
    CliError::new(format!(
        "several queues have a job of this id: {}",
        queues.join(", ")
    ))
    .advise(format!("--queue {first}"))
}

/// There is no such job.
fn not_found(typed: &str) -> CliError {
    let job = describe_id(typed);
    CliError::new(format!(
        "there is no job {job}; it may have been deleted, or pruned after it ended"
    ))
    .advise("backstop job list")
}

/// A job as it was asked for, with the id that this means where that is another text.
pub(crate) fn describe_id(typed: &str) -> String {
    let id = JobId::from_text(typed).to_string();
    if id.eq_ignore_ascii_case(typed) {
        id
    } else {
        format!("{typed} ({id})")
    }
}
