//! `backstop worker`: look at workers, quiet, resume or stop them.

use crate::commands::confirm;
use crate::commands::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{bytes, count, counted, relative};
use backstop::core::WorkerName;
use backstop::core::worker_command::{CommandOutcome, WorkerCommand};
use backstop::operate::AuditedChanges;
use backstop::workers::{LISTED, NOT_LISTENING, WorkerHealth, WorkerInfo};
use backstop::{QueueName, Time};
use backstop_core::terminal::shell_argument;
use backstop_server::wire::worker::{WorkerCommandShape, WorkerShape, WorkersShape};
use clap::{Args, Subcommand};

/// Look at workers, quiet, resume or stop them.
#[derive(Subcommand, Debug)]
pub(crate) enum WorkerSubcommand {
    /// All workers that were heard of within the hour
    #[command(after_help = "\
Examples:
  backstop worker list
  backstop worker list --json | jq '.workers[] | select(.state != \"live\")'

A worker is live, quiet (takes no new jobs), stopping, not heard (and holds jobs, which are taken over once its leases are
over) or stopped. Workers over HTTP tell host, process and the like if they choose to.")]
    List,
    /// Have a worker take no new jobs; what it runs may end
    #[command(after_help = "\
Examples:
  backstop worker quiet web-1/4711/a3f09c

It heeds that within seconds: what it claimed ahead goes back for others, tables are left to others. Schedules, sweeps and
housekeeping go on, and so do the streams of a `backstop serve`. `backstop worker resume` has it go on; a worker that is started
again under the same name, as on a SIGHUP, was not asked.")]
    Quiet(WorkerNameArgs),
    /// Take back what a worker was asked for
    #[command(after_help = "\
Examples:
  backstop worker resume web-1/4711/a3f09c

One that has begun to stop does not go back to work.")]
    Resume(WorkerNameArgs),
    /// Have a worker end what it runs, within its grace, and then itself
    #[command(after_help = "\
Examples:
  backstop worker stop web-1/4711/a3f09c --reason 'the machine is taken down'
  backstop worker stop web-1/4711/a3f09c --yes --json

As SIGTERM does. The worker of a `backstop serve` stops, with its tables and streams, and the server goes on, keeps house and fires
schedules and sweeps; a SIGHUP has it work again. A worker over HTTP is told so in the answers to its requests, and gets no more jobs.")]
    Stop(WorkerStopArgs),
}

/// Which worker.
#[derive(Args, Debug)]
pub(crate) struct WorkerNameArgs {
    /// The worker, as `backstop worker list` names it
    worker: String,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Which worker, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct WorkerStopArgs {
    /// The worker, as `backstop worker list` names it
    worker: String,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

impl WorkerSubcommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self, Self::List)
    }
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &WorkerSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        WorkerSubcommand::List => list(context).await,
        WorkerSubcommand::Quiet(args) => {
            let changes = args.reason.changes(&context.open_for_reading().await?);
            send_command(
                &changes,
                &WorkerName::new(&args.worker),
                WorkerCommand::Quiet,
                context,
            )
            .await
        }
        WorkerSubcommand::Resume(args) => {
            let changes = args.reason.changes(&context.open_for_reading().await?);
            send_command(
                &changes,
                &WorkerName::new(&args.worker),
                WorkerCommand::Resume,
                context,
            )
            .await
        }
        WorkerSubcommand::Stop(args) => stop(args, context).await,
    }
}

async fn list(context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let workers = backstop.workers(LISTED).await?;
    let now = backstop.now();
    if context.output.is_json() {
        let shapes = workers
            .iter()
            .map(|worker| WorkerShape::new(worker, now))
            .collect();
        context.output.json(&WorkersShape { workers: shapes })?;
    } else if workers.is_empty() {
        context.output.note(
            "no worker was heard of within the hour; try: backstop work emails --exec ./send-mail",
        );
    } else {
        let (servers, workers): (Vec<_>, Vec<_>) = workers
            .into_iter()
            .partition(|worker| worker.serves_nothing(now));
        if !workers.is_empty() {
            context.output.table(&table(&workers, now))?;
        }
        if !servers.is_empty() {
            let servers = count(servers.len() as u64);
            context.output.note(format!(
                "not listed: {servers} without queues, such as a server without handlers"
            ));
        }
    }
    Ok(ExitStatus::Success)
}

/// How it stands, with its tone.
pub(super) const fn health_tone(health: WorkerHealth) -> CellTone {
    match health {
        WorkerHealth::Silent => CellTone::Bad,
        WorkerHealth::Stopping | WorkerHealth::Quiet => CellTone::Warning,
        WorkerHealth::Live => CellTone::Good,
        WorkerHealth::Stopped => CellTone::Plain,
    }
}

fn table(workers: &[WorkerInfo], now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "WORKER",
        "STATE",
        "HOST",
        "PID",
        "VERSION",
        "STARTED",
        "HOLDS",
        "PLACES",
        "MEMORY",
        "LAST BEAT",
        "QUEUES",
    ]);
    let mut sorted: Vec<(WorkerHealth, &WorkerInfo)> = workers
        .iter()
        .map(|worker| (worker.health(now), worker))
        .collect();
    sorted.sort_by_key(|(health, _)| *health);
    for (health, worker) in sorted {
        let (status, about) = (&worker.status, &worker.about);
        let plain = |text: String| (text, CellTone::Plain);
        let places = about.places.filter(|places| *places > 0);
        table.styled_row([
            plain(status.name.to_string()),
            (health.as_str().to_owned(), health_tone(health)),
            plain(about.host.clone().unwrap_or_default()),
            plain(about.pid.map(|pid| pid.to_string()).unwrap_or_default()),
            plain(about.version.clone().unwrap_or_default()),
            plain(
                about
                    .since
                    .map(|since| relative(since, now))
                    .unwrap_or_default(),
            ),
            plain(count(status.running)),
            // Of one moment with what it holds: what it says of itself is as old as its last beat.
            plain(
                places
                    .map(|places| format!("{} of {places}", status.running.min(places.into())))
                    .unwrap_or_default(),
            ),
            plain(about.memory.map(bytes).unwrap_or_default()),
            plain(relative(status.seen_at, now)),
            plain(
                status
                    .queues
                    .iter()
                    .map(QueueName::as_str)
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        ]);
    }
    table
}

async fn stop(args: &WorkerStopArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let name = WorkerName::new(&args.worker);
    if !args.yes {
        let workers = backstop.store().workers(LISTED, backstop.now()).await?;
        let held = workers
            .iter()
            .find(|worker| worker.name == name)
            .map_or(0, |worker| worker.running);
        let jobs = counted(held, "job");
        let question = format!("Stop {name}, which holds {jobs}?");
        let refusal =
            format!("stopping {name} ends a worker with {jobs}, and nobody can be asked here");
        if !confirm::confirm(
            &question,
            refusal,
            &format!(
                "backstop worker stop --yes {}",
                shell_argument(name.as_str())
            ),
        )? {
            context.output.note("nothing was stopped");
            return Ok(ExitStatus::Failure);
        }
    }
    send_command(
        &args.reason.changes(&backstop),
        &name,
        WorkerCommand::Stop,
        context,
    )
    .await
}

async fn send_command(
    changes: &AuditedChanges,
    name: &WorkerName,
    order: WorkerCommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let Some(given) = changes.command_worker(name, order).await? else {
        return Err(
            CliError::new(format!("there is no worker {name} to be asked"))
                .advise("backstop worker list"),
        );
    };
    if given.outcome == CommandOutcome::TooLate {
        return Err(CliError::new(format!(
            "worker {name} has begun to stop and does not go back to work"
        ))
        .advise("start another one"));
    }
    if context.output.is_json() {
        context
            .output
            .json(&WorkerCommandShape::new(name.as_str(), given))?;
    } else {
        let then = match order {
            WorkerCommand::Quiet => "takes no new jobs within seconds; what it runs may end",
            WorkerCommand::Resume => "goes on within seconds, unless it has begun to stop",
            WorkerCommand::Stop => "ends what it runs, within its grace, and then itself",
        };
        let same = if given.outcome == CommandOutcome::Same {
            "as it was: "
        } else {
            ""
        };
        context.output.line(format!("{name}: {same}{then}"))?;
        if !given.listens {
            context.output.warn(format!("{name}: {NOT_LISTENING}"));
        }
    }
    Ok(ExitStatus::Success)
}
