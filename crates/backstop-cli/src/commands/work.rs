//! `backstop work`: run the jobs of queues with a command or a web service.

pub(crate) mod serve;

use super::policy;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus, worker_refused};
use crate::output::words::count;
use crate::services::{self, HandledQueue};
use backstop::config::{Config, DEFAULT_FILE, HandlerConfig};
use backstop::sweeps::Sweep;
use backstop::workers::LISTED;
use backstop::{
    Backstop, Exec, ExecOutput, Http, QueueName, QueueSettings, RetryPolicy, RunningWorker,
    Schedule, Span, WorkerProgress,
};
use backstop_core::limits::REFUSED_AT_START_FOR;
use backstop_core::port::StoreError;
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// How often a store that refuses is asked again while a worker starts.
const REFUSED_LOOK: Duration = Duration::from_millis(500);

/// Which queues, with what, and how.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop work emails --exec 'jq -r .to | xargs ./send-mail'
  backstop work emails sms --concurrency 16 --timeout 30s -- python3 send.py
  backstop work emails --exec ./send --until-empty --json
  backstop work emails --http http://127.0.0.1:9000/send --timeout 10s
  backstop work                                   the queues that have a handler in backstop.toml

The schedules in backstop.toml are fired as well, by every worker and once for each instant; see `backstop schedule list --help`.
Its sweeps look for lost work, and its tables with a handler are worked off; see `backstop sweep --help`, `backstop table check --help`.
All of that also where queues are named or --exec says how they are served; only --until-empty leaves sweeps and tables out.

The command gets the payload on stdin and BACKSTOP_JOB_ID, _QUEUE, _KIND, _ATTEMPT and _LEASE in its environment.
It decides by its exit code: 0 done; 65 dead at once; 75 try again soon, the attempt is not spent; anything else, or
a signal, failed: tried again as the retry policy says, with the end of its stderr as the error. A command that is not
there when the worker starts is refused; one that cannot be started later spends no attempt, and its jobs wait for it.

The service behind --http gets the payload as the JSON body of a POST, the same as X-Backstop-Job-Id, -Queue, -Kind,
-Attempt and -Lease, and the job's id as Idempotency-Key. It decides by its status: 2xx done; 410 or 422 dead at once;
429 or 503 failed, tried again when Retry-After says; anything else, or no answer in time, failed: tried again as the
retry policy says, with the status and the beginning of the body on record. Redirects are not followed, proxies of the
environment are not used, and link-local addresses need `allow_link_local = true` in the configuration.

A run that failed is one line on stderr, with its error and the time of the next try; --quiet leaves these out.

Ctrl-C or SIGTERM lets running jobs end, for `grace` (30s) at most; a second one, at least a second
later, calls them off and gives them back.

A job without a policy has its queue's `retry`; a queue without one tries exponentially from 1s to 1h,
20 runs in about 9 hours. A policy that names its kind has 3 runs unless it says otherwise.")]
pub(crate) struct WorkArgs {
    /// The queues [default: those with a handler in the configuration]
    #[arg(value_name = "QUEUE")]
    queues: Vec<QueueName>,
    /// The command, as a line for the shell
    #[arg(long, value_name = "CMD", conflicts_with = "argv")]
    exec: Option<OsString>,
    /// The command, as a program and its arguments, without a shell
    #[arg(last = true, value_name = "PROGRAM")]
    argv: Vec<OsString>,
    /// The web service that gets each job as a POST
    #[arg(long, value_name = "URL", conflicts_with_all = ["exec", "argv"])]
    http: Option<String>,
    /// How many jobs of a queue run at once [default: 8]
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// How long one run may take [default: no limit; 30s for a web service]
    #[arg(long, value_name = "D")]
    timeout: Option<Span>,
    /// When a failed job is tried again, as JSON; see `backstop policy preview` [default: the
    /// configuration's]
    #[arg(long, value_name = "JSON")]
    retry: Option<String>,
    /// All runs a job may have, the first included [default: the policy's, or 20]
    #[arg(long, value_name = "N")]
    max_attempts: Option<NonZeroU32>,
    /// How long a job stays with a worker that gives no sign of life [default: 15s]
    #[arg(long, value_name = "D")]
    lease: Option<Span>,
    /// Stop when the queues have no live jobs; exit 1 if a job died
    #[arg(long)]
    until_empty: bool,
    /// Show what the command writes to its stdout, on stderr
    #[arg(long)]
    show_output: bool,
}

/// Works until it is told to stop, or until nothing is left.
pub(crate) async fn run(args: &WorkArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let handled_queues = read_handled_queues(args, &context.config)?;
    for handled_queue in &handled_queues {
        services::programs::check(
            &format!("queue {}", handled_queue.queue),
            &handled_queue.handler,
        )?;
    }
    if !args.until_empty {
        services::programs::check_tables(&context.config)?;
    }
    let backstop = context.open().await?;
    if let Some(error) = refused_at_start(&backstop).await {
        return Err(worker_refused(&error, &context.config.store));
    }
    let started = Instant::now();
    let signals = serve::StopSignals::listen()?;
    // Who stays to the end of a queue only has no time for what is looked for every half hour.
    let sweeps: Vec<Sweep> = context
        .config
        .sweeps
        .values()
        .filter(|_| !args.until_empty)
        .cloned()
        .collect();
    let tables = if args.until_empty {
        Vec::new()
    } else {
        services::tables(&context.config)?
    };
    if args.until_empty {
        // What is due now belongs to what is to be done; the worker's own look might come after the
        // queues were found empty.
        let schedules: Vec<Schedule> = context.config.schedules.values().cloned().collect();
        backstop.schedules().look(&schedules).await?;
    }
    let running = services::worker(
        &backstop,
        &handled_queues,
        &sweeps,
        &tables,
        &context.config,
    )?
    .start()?;
    let worker = running.name().to_string();
    announce(&running, &handled_queues, args.show_output, context);
    services::announce::sweeps(&sweeps, context.output);
    services::announce::tables(&tables, &context.config, context.output);
    let queues: Vec<QueueName> = handled_queues
        .into_iter()
        .map(|handled_queue| handled_queue.queue)
        .collect();
    let until = if args.until_empty {
        serve::StopCondition::Empty
    } else {
        serve::StopCondition::Signal
    };
    let (progress, refusal) =
        serve::serve(running, signals, &backstop, &queues, until, context).await;
    summarise(&worker, progress, started.elapsed(), context)?;
    if let Some(error) = refusal {
        return Err(worker_refused(&error, &context.config.store));
    }
    let falls_short = args.until_empty && progress.dead > 0;
    Ok(if falls_short {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}

/// What the store says to a role without rights, for as long as a worker would hear it at its
/// start: one that is started all the same says so in every loop. Asks for what every worker reads,
/// and changes nothing.
async fn refused_at_start(backstop: &Backstop) -> Option<StoreError> {
    let patience = Instant::now() + Duration::from(REFUSED_AT_START_FOR);
    loop {
        let workers = backstop.store().workers(LISTED, backstop.now()).await;
        let Err(refused @ StoreError::Misuse { .. }) = workers else {
            return None;
        };
        if Instant::now() >= patience {
            return Some(refused);
        }
        tokio::time::sleep(REFUSED_LOOK).await;
    }
}

/// The queues to serve: as the flags say, else as the configuration says.
fn read_handled_queues(args: &WorkArgs, config: &Config) -> Result<Vec<HandledQueue>, CliError> {
    let flagged = handler_of_flags(args)?;
    let queues: Vec<QueueName> = match (args.queues.is_empty(), &flagged) {
        (false, _) => args.queues.clone(),
        (true, Some(_)) => {
            return Err(CliError::misuse("which queues?")
                .advise("backstop work QUEUE --exec CMD | --http URL"));
        }
        (true, None) => queues_with_handlers(config)?,
    };
    queues
        .into_iter()
        .map(|queue| handled_queue(queue, flagged.as_ref(), args, config))
        .collect()
}

/// The handler the flags name, if they name one.
fn handler_of_flags(args: &WorkArgs) -> Result<Option<HandlerConfig>, CliError> {
    if let Some(address) = &args.http {
        return Ok(Some(HandlerConfig::Http(service(address)?)));
    }
    let by_argv = || {
        args.argv
            .split_first()
            .map(|(program, rest)| Exec::new(program, rest))
    };
    Ok(args
        .exec
        .as_ref()
        .map(Exec::shell)
        .or_else(by_argv)
        .map(HandlerConfig::Exec))
}

/// The web service that a flag names.
pub(super) fn service(address: &str) -> Result<Http, CliError> {
    let http = Http::new(address).and_then(|http| http.check().map(|()| http));
    http.map_err(|problem| {
        CliError::misuse(format!("--http: {problem}")).advise("--http http://127.0.0.1:9000/detect")
    })
}

fn queues_with_handlers(config: &Config) -> Result<Vec<QueueName>, CliError> {
    let served = config
        .queues
        .iter()
        .filter(|(_, queue)| queue.handler.is_some());
    let queues: Vec<QueueName> = served.map(|(name, _)| name.clone()).collect();
    let is_idle = config.tables.values().all(|table| table.handler.is_none());
    if queues.is_empty() && config.schedules.is_empty() && config.sweeps.is_empty() && is_idle {
        return Err(CliError::misuse(
            "there is nothing to run: no queue and no table has a handler in the configuration",
        )
        .advise(format!(
            "backstop work QUEUE --exec CMD | --http URL, or a handler in {DEFAULT_FILE}"
        )));
    }
    Ok(queues)
}

fn handled_queue(
    queue: QueueName,
    flagged: Option<&HandlerConfig>,
    args: &WorkArgs,
    config: &Config,
) -> Result<HandledQueue, CliError> {
    let entry = config.queues.get(&queue).cloned().unwrap_or_default();
    let handler = flagged.cloned().or(entry.handler).ok_or_else(|| {
        CliError::misuse(format!("queue {queue} has no handler in the configuration"))
            .advise(format!("backstop work {queue} --exec CMD | --http URL"))
    })?;
    let output = if args.show_output {
        ExecOutput::Shown
    } else {
        ExecOutput::Discarded
    };
    let settings = settings(entry.settings, args)?;
    let handler = match handler.within(settings.timeout) {
        HandlerConfig::Exec(exec) => HandlerConfig::Exec(exec.stdout(output)),
        http @ HandlerConfig::Http(_) => http,
    };
    Ok(HandledQueue {
        queue,
        handler,
        settings,
    })
}

fn settings(entry: QueueSettings, args: &WorkArgs) -> Result<QueueSettings, CliError> {
    let retry: RetryPolicy = args
        .retry
        .as_deref()
        .map(policy::read)
        .transpose()?
        .unwrap_or(entry.retry);
    Ok(QueueSettings {
        concurrency: args.concurrency.unwrap_or(entry.concurrency),
        retry: match args.max_attempts {
            Some(max) => retry.with_max_attempts(max),
            None => retry,
        },
        timeout: args.timeout.or(entry.timeout),
        lease: args.lease.unwrap_or(entry.lease),
        ..entry
    })
}

/// Who works, on what, and where to see more of it.
fn announce(
    running: &RunningWorker,
    handled_queues: &[HandledQueue],
    shows_output: bool,
    context: &CliContext,
) {
    let (output, paint) = (context.output, context.output.paint_notes());
    let served = |handled_queue: &HandledQueue| {
        format!(
            "{} ({} at once)",
            handled_queue.queue, handled_queue.settings.concurrency
        )
    };
    let served: Vec<String> = handled_queues.iter().map(served).collect();
    if !served.is_empty() {
        output.announce(format!(
            "worker {} serves {}",
            paint.bold(running.name()),
            served.join(", ")
        ));
        output.announce(format!(
            "a dead worker's job runs again within {}",
            running.recovery_bound()
        ));
    }
    if !shows_output
        && handled_queues
            .iter()
            .any(|handled_queue| matches!(handled_queue.handler, HandlerConfig::Exec(_)))
    {
        output.announce("what commands write to stdout is dropped; see it with --show-output");
    }
    services::announce::schedules(running.name(), &context.config, output);
}

#[derive(Serialize)]
struct WorkSummaryShape<'a> {
    worker: &'a str,
    started: u64,
    done: u64,
    retried: u64,
    dead: u64,
    cancelled: u64,
    released: u64,
    lost: u64,
    recovered: u64,
    elapsed_ms: u64,
}

fn summarise(
    worker: &str,
    progress: WorkerProgress,
    elapsed: Duration,
    context: &CliContext,
) -> Result<(), CliError> {
    let WorkerProgress {
        started,
        done,
        retried,
        dead,
        cancelled,
        released,
        lost,
        recovered,
    } = progress;
    if context.output.is_json() {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        return context.output.json(&WorkSummaryShape {
            worker,
            started,
            done,
            retried,
            dead,
            cancelled,
            released,
            lost,
            recovered,
            elapsed_ms,
        });
    }
    let paint = context.output.paint();
    let dead_text = format!("{} dead", count(dead));
    let mut parts = vec![
        paint.good(format!("{} done", count(done))),
        format!("{} retried", count(retried)),
        if dead > 0 {
            paint.bad(dead_text)
        } else {
            dead_text
        },
    ];
    let rare = [
        ("cancelled", cancelled),
        ("released", released),
        ("leases lost", lost),
        ("recovered", recovered),
    ];
    parts.extend(
        rare.iter()
            .filter(|(_, n)| *n > 0)
            .map(|(word, n)| format!("{} {word}", count(*n))),
    );
    context.output.line(format!(
        "{} in {:.1}s",
        parts.join(", "),
        elapsed.as_secs_f64()
    ))?;
    if dead > 0 {
        context.output.note("try: backstop job list --state dead");
    }
    Ok(())
}
