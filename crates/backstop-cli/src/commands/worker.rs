//! `backstop worker`: look at workers, quiet, resume or stop them.

use crate::commands::because::Because;
use crate::commands::confirm;
use crate::context::Context;
use crate::output::table::{Table, Tone};
use crate::output::words::{bytes, count, counted, relative};
use crate::trouble::{Trouble, Verdict};
use backstop::core::WorkerName;
use backstop::core::order::{Order, Ordered};
use backstop::operate::Changes;
use backstop::workers::{Health, LISTED, UNHEARD, WorkerInfo};
use backstop::{QueueName, Time};
use backstop_core::terminal::shell_argument;
use backstop_server::wire::worker::{OrderedShape, WorkerShape, WorkersShape};
use clap::{Args, Subcommand};

/// Look at workers, quiet, resume or stop them.
#[derive(Subcommand, Debug)]
pub(crate) enum WorkerCommand {
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
    Quiet(WorkerArg),
    /// Take back what a worker was asked for
    #[command(after_help = "\
Examples:
  backstop worker resume web-1/4711/a3f09c

One that has begun to stop does not go back to work.")]
    Resume(WorkerArg),
    /// Have a worker end what it runs, within its grace, and then itself
    #[command(after_help = "\
Examples:
  backstop worker stop web-1/4711/a3f09c --reason 'the machine is taken down'
  backstop worker stop web-1/4711/a3f09c --yes --json

As SIGTERM does. The worker of a `backstop serve` stops, with its tables and streams, and the server goes on, keeps house and fires
schedules and sweeps; a SIGHUP has it work again. A worker over HTTP is told so in the answers to its requests, and gets no more jobs.")]
    Stop(StopArgs),
}

/// Which worker.
#[derive(Args, Debug)]
pub(crate) struct WorkerArg {
    /// The worker, as `backstop worker list` names it
    worker: String,
    #[command(flatten)]
    because: Because,
}

/// Which worker, and whether that was meant.
#[derive(Args, Debug)]
pub(crate) struct StopArgs {
    /// The worker, as `backstop worker list` names it
    worker: String,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    because: Because,
}

impl WorkerCommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn only_looks(&self) -> bool {
        matches!(self, Self::List)
    }
}

/// Does what was asked for.
pub(crate) async fn run(command: &WorkerCommand, context: &Context) -> Result<Verdict, Trouble> {
    match command {
        WorkerCommand::List => list(context).await,
        WorkerCommand::Quiet(args) => {
            let changes = args.because.changes(&context.look().await?);
            order(
                &changes,
                &WorkerName::new(&args.worker),
                Order::Quiet,
                context,
            )
            .await
        }
        WorkerCommand::Resume(args) => {
            let changes = args.because.changes(&context.look().await?);
            order(
                &changes,
                &WorkerName::new(&args.worker),
                Order::Resume,
                context,
            )
            .await
        }
        WorkerCommand::Stop(args) => stop(args, context).await,
    }
}

async fn list(context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
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
    Ok(Verdict::Fine)
}

/// How it stands, with its tone.
pub(super) const fn toned(health: Health) -> Tone {
    match health {
        Health::Silent => Tone::Bad,
        Health::Stopping | Health::Quiet => Tone::Warning,
        Health::Live => Tone::Good,
        Health::Stopped => Tone::Plain,
    }
}

fn table(workers: &[WorkerInfo], now: Time) -> Table {
    let mut table = Table::new(&[
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
    let mut sorted: Vec<(Health, &WorkerInfo)> = workers
        .iter()
        .map(|worker| (worker.health(now), worker))
        .collect();
    sorted.sort_by_key(|(health, _)| *health);
    for (health, worker) in sorted {
        let (status, about) = (&worker.status, &worker.about);
        let plain = |text: String| (text, Tone::Plain);
        let places = about.places.filter(|places| *places > 0);
        table.toned([
            plain(status.name.to_string()),
            (health.as_str().to_owned(), toned(health)),
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

async fn stop(args: &StopArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
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
        if !confirm::ask(
            &question,
            refusal,
            &format!(
                "backstop worker stop --yes {}",
                shell_argument(name.as_str())
            ),
        )? {
            context.output.note("nothing was stopped");
            return Ok(Verdict::FallsShort);
        }
    }
    order(
        &args.because.changes(&backstop),
        &name,
        Order::Stop,
        context,
    )
    .await
}

async fn order(
    changes: &Changes,
    name: &WorkerName,
    order: Order,
    context: &Context,
) -> Result<Verdict, Trouble> {
    let Some(given) = changes.order(name, order).await? else {
        return Err(
            Trouble::new(format!("there is no worker {name} to be asked"))
                .advise("backstop worker list"),
        );
    };
    if given.ordered == Ordered::TooLate {
        return Err(Trouble::new(format!(
            "worker {name} has begun to stop and does not go back to work"
        ))
        .advise("start another one"));
    }
    if context.output.is_json() {
        context
            .output
            .json(&OrderedShape::new(name.as_str(), given))?;
    } else {
        let then = match order {
            Order::Quiet => "takes no new jobs within seconds; what it runs may end",
            Order::Resume => "goes on within seconds, unless it has begun to stop",
            Order::Stop => "ends what it runs, within its grace, and then itself",
        };
        let same = if given.ordered == Ordered::Same {
            "as it was: "
        } else {
            ""
        };
        context.output.line(format!("{name}: {same}{then}"))?;
        if !given.listens {
            context.output.warn(format!("{name}: {UNHEARD}"));
        }
    }
    Ok(Verdict::Fine)
}
