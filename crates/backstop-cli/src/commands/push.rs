//! `backstop push`: one job, or a file of them.

mod id_conflicts;
mod job_line;
pub(super) mod lines;
mod load;
pub(super) mod source;

use super::policy;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::core::port::EnqueueOutcome;
use backstop::core::unique::UniqueBy;
use backstop::{Backstop, JobDraft, JobState, Kind, Priority, QueueName, RetryPolicy, Span, Time};
use backstop_server::wire::push::PushedJobShape;
use clap::{Args, ValueEnum};
use id_conflicts::IntendedJob;
use job_line::PushDefaults;
use source::InputSource;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// A store answers once for each job.
const NO_ANSWER: &str = "the store gave no answer for the job; push it again with the same --id";

/// What to push, and how.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop push emails '{\"to\":\"ada@example.org\"}'
  backstop push emails '{\"to\":\"ada\"}' --delay 10m --unique-key welcome:ada
  backstop push emails --file jobs.ndjson --batch monday    safe to repeat
  zcat jobs.gz | backstop push emails -
  backstop push mail '{\"user\":7}' --unique-by /user       one for each user
  backstop push orders '{\"order\":17}' --id order-17       one for this id
  backstop push mail 1 --unique-key ada --unique-for 1d --unique-in ready,done

An id stands for its job as long as the store has that job: live and dead
ones, and done ones for `keep_done` (1h, at most 100,000 a queue). If that job
has another payload, a warning says that nothing was pushed; of a file, it
also exits 1. If it is in another queue, that is a conflict: nothing is pushed
for it, and it exits 1.

A job without --retry has its queue's policy. A policy that names no kind, such as {\"max_attempts\":5},
is put over the usual one: exponential from 1s to 1h, 20 runs in about 9 hours. One that names its kind
has 3 runs unless it says otherwise; see `backstop policy preview`.

A line of a file is a payload; or, if it is an object with a \"payload\" and otherwise only keys of
  {\"queue\",\"kind\",\"payload\",\"run_at\",\"delay\",\"unique_key\",\"priority\",\"retry\",\"id\"}
a job. Flags hold for lines that do not say otherwise. Bad lines are named and left out; the others go in.")]
pub(crate) struct PushArgs {
    /// The queue
    queue: QueueName,
    /// The payload as JSON, or - for lines from stdin
    #[arg(
        value_name = "JSON",
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    payload: Option<String>,
    /// Push every line of this file
    #[arg(long, value_name = "FILE.ndjson")]
    file: Option<PathBuf>,
    /// Which handler it is for [default: default]
    #[arg(long, value_name = "K")]
    kind: Option<Kind>,
    /// The job's id: a UUID, or any name that stands for the same job every time
    #[arg(long, value_name = "ID", conflicts_with_all = ["file", "batch"])]
    id: Option<String>,
    /// critical, high, normal or low
    #[arg(long, value_name = "P")]
    priority: Option<Priority>,
    /// Not before this long from now, such as 10m
    #[arg(long, value_name = "D", conflicts_with = "at")]
    delay: Option<Span>,
    /// Not before this, such as 2026-11-15T08:30:00Z
    #[arg(long, value_name = "T")]
    at: Option<Time>,
    /// Only if no other live job of the queue has this key
    #[arg(long, value_name = "KEY", conflicts_with = "file")]
    unique_key: Option<String>,
    /// Only if no other live job of the queue and kind has the same payload, or the same values at
    /// these JSON pointers
    #[arg(long, value_name = "payload|/FIELD,…", value_parser = sameness, conflicts_with = "unique_key")]
    unique_by: Option<UniqueBy>,
    /// Hold the unique key no longer than this; name `done` in --unique-in to hold it after the
    /// job has ended
    #[arg(long, value_name = "D")]
    unique_for: Option<Span>,
    /// Hold the unique key in these states [default: scheduled,ready,running,retrying]
    #[arg(long, value_name = "STATES", value_delimiter = ',')]
    unique_in: Vec<JobState>,
    /// A retry policy of its own, as JSON [default: the queue's]
    #[arg(long, value_name = "JSON")]
    retry: Option<String>,
    /// All runs it may have, the first included; the rest is as --retry or the usual policy says
    #[arg(long, value_name = "N")]
    max_attempts: Option<NonZeroU32>,
    /// Give lines without an id one made of this name and the line's number, so that the load can
    /// be repeated
    #[arg(long, value_name = "NAME")]
    batch: Option<String>,
    /// What a line is
    #[arg(long, value_enum, default_value_t = LineFormat::Auto)]
    lines: LineFormat,
    /// Check the whole input first, and push nothing if a line is bad
    #[arg(long)]
    strict: bool,
}

/// What a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LineFormat {
    /// A job if it looks like one, else a payload
    Auto,
    /// Always a job
    Jobs,
    /// Always a payload
    Payloads,
}

/// Pushes; exits 1 if any line was bad.
pub(crate) async fn run(args: &PushArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let defaults = defaults(args)?;
    let source = match (&args.file, args.payload.as_deref()) {
        (Some(file), _) => InputSource::at(file),
        (None, Some("-")) => InputSource::Stdin,
        (None, payload) => {
            return push_one(args, payload.unwrap_or_default(), &defaults, context).await;
        }
    };
    if args.id.is_some() || args.unique_key.is_some() {
        return Err(
            CliError::misuse("--id and --unique-key name one job; lines bring their own")
                .advise("\"id\" and \"unique_key\" in the lines, or --batch NAME"),
        );
    }
    load::run(source, defaults, args.strict, context).await
}

/// The policy that the flags name, if they do.
fn retry(args: &PushArgs) -> Result<Option<RetryPolicy>, CliError> {
    let named = args.retry.as_deref().map(policy::read).transpose()?;
    Ok(match args.max_attempts {
        Some(max) => Some(
            named
                .unwrap_or_else(RetryPolicy::of_queues)
                .with_max_attempts(max),
        ),
        None => named,
    })
}

fn sameness(text: &str) -> Result<UniqueBy, String> {
    UniqueBy::parse(text).map_err(|error| error.to_string())
}

fn defaults(args: &PushArgs) -> Result<PushDefaults, CliError> {
    Ok(PushDefaults {
        queue: args.queue.clone(),
        kind: args.kind.clone(),
        priority: args.priority,
        delay: args.delay,
        at: args.at,
        unique_by: args.unique_by.clone(),
        unique_for: args.unique_for,
        unique_in: args.unique_in.clone(),
        retry: retry(args)?,
        // As shells and build tools hand it on, and as our own commands get it: what they push
        // belongs to their run.
        trace: std::env::var("TRACEPARENT")
            .ok()
            .and_then(|text| text.parse().ok()),
        batch: args.batch.clone(),
        lines: args.lines,
    })
}

async fn push_one(
    args: &PushArgs,
    payload: &str,
    defaults: &PushDefaults,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    if args.batch.is_some() || args.strict {
        return Err(CliError::misuse("--batch and --strict are for many lines")
            .advise("--file FILE.ndjson, or -"));
    }
    let has_key = args.unique_key.is_some() || args.unique_by.is_some();
    if !has_key && (args.unique_for.is_some() || !args.unique_in.is_empty()) {
        return Err(CliError::misuse(
            "--unique-for and --unique-in say how a unique key is held, and there is none",
        )
        .advise("--unique-key KEY, or --unique-by payload"));
    }
    let backstop = open_bounded(&args.queue, context).await?;
    let job = draft(args, payload, defaults, &backstop).build().await?;
    let intended = IntendedJob::new(&job);
    let result = backstop
        .push_jobs(vec![job])
        .await?
        .pop()
        .ok_or_else(|| CliError::new(NO_ANSWER))?;
    let shape = PushedJobShape::new(intended.id, result);
    if context.output.is_json() {
        context.output.json(&shape)?;
    } else if result != EnqueueOutcome::Full {
        let why = if shape.holder.is_some() {
            ": it holds the unique key"
        } else {
            ""
        };
        context
            .output
            .line(format!("{} {}{why}", shape.id, shape.result))?;
    }
    if result == EnqueueOutcome::Same {
        let others = id_conflicts::find(&backstop, &[intended]).await?;
        id_conflicts::warn(&others, others.len() as u64, context);
    }
    if result == EnqueueOutcome::Conflict {
        context.output.warn(format!(
            "a job of another queue has the id {}, so {} did not take it; push it under another id",
            shape.id, args.queue
        ));
        return Ok(ExitStatus::Failure);
    }
    if result == EnqueueOutcome::Full {
        context.output.warn(format!(
            "{} is full and did not take it; push it again when there is room, or raise max_size",
            args.queue
        ));
        return Ok(ExitStatus::Failure);
    }
    Ok(ExitStatus::Success)
}

/// The store, told of the queue if the configuration has it, and with a warning if as much as it
/// holds is nearly reached.
pub(super) async fn open_bounded(
    queue: &QueueName,
    context: &CliContext,
) -> Result<Backstop, CliError> {
    let backstop = context.open().await?;
    let Some(entry) = context.config.queues.get(queue) else {
        return Ok(backstop);
    };
    backstop.declare_queues(vec![queue.clone()]).await?;
    let Some(bounds) = entry.settings.bounds else {
        return Ok(backstop);
    };
    backstop
        .store()
        .set_bounds(queue.clone(), bounds, backstop.now())
        .await?;
    let queues = backstop.store().queues(backstop.now()).await?;
    let status = queues.iter().find(|status| status.name == *queue);
    if let Some(live) = status
        .map(|status| status.counts.live())
        .filter(|live| bounds.is_under_pressure(*live))
    {
        let max = bounds.max_size.unwrap_or_default();
        context.output.warn(format!(
            "{queue} holds {live} of at most {max} jobs; then {}",
            bounds.overflow
        ));
    }
    Ok(backstop)
}

fn draft(args: &PushArgs, payload: &str, defaults: &PushDefaults, backstop: &Backstop) -> JobDraft {
    let mut draft = backstop
        .draft(args.queue.as_str())
        .payload(payload.as_bytes().to_vec());
    if let Some(kind) = &defaults.kind {
        draft = draft.kind(kind.as_str());
    }
    if let Some(id) = &args.id {
        draft = draft.id(id);
    }
    if let Some(priority) = defaults.priority {
        draft = draft.priority(priority);
    }
    if let Some(delay) = defaults.delay {
        draft = draft.after(delay);
    }
    if let Some(at) = defaults.at {
        draft = draft.at(at);
    }
    if let Some(key) = &args.unique_key {
        draft = draft.unique_key(key);
    }
    if let Some(sameness) = &defaults.unique_by {
        draft = draft.unique_by(sameness.clone());
    }
    if let Some(period) = defaults.unique_for {
        draft = draft.unique_for(period);
    }
    if !defaults.unique_in.is_empty() {
        draft = draft.unique_in(&defaults.unique_in);
    }
    if let Some(trace) = defaults.trace {
        draft = draft.trace(trace);
    }
    if let Some(retry) = defaults.retry.clone() {
        draft = draft.retry(retry);
    }
    draft
}
