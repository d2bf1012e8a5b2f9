//! What can be asked for, and how `--help` teaches it.

use crate::bench::BenchArgs;
use crate::commands::{
    alerts, breaker, completions, config, dead, demo, drill, job, policy, push, queue, schedule,
    serve, stream, sweep, table, token, top, work, worker,
};
use backstop::{Durability, StoreAddress};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  backstop serve                                       the server, with its dashboard on http://127.0.0.1:7007/
  backstop demo                                        see it work, live on its dashboard
  backstop push emails '{\"to\":\"ada@example.org\"}'      one job
  backstop push emails --file jobs.ndjson --batch b1   many; repeat it if it was cut off
  backstop work emails --exec ./send-mail              run them: payload on stdin, exit code decides
  backstop stream serve uptime --exec ./handle         records in order, however they arrive
  backstop sweep --dry-run                             what was never enqueued, by your own tables
  backstop table check invoices                        work off a backlog table you have already
  backstop schedule missed                             runs that should have been
  backstop dead groups                                 what was given up, by its cause
  backstop job why ID                                  why a job does not run
  backstop top                                         all of it, live in the terminal

Stores, for --store (BACKSTOP_STORE keeps a password out of the list of processes):
  sqlite:FILE                                  one file, one machine, nothing to set up
  postgres://USER:PASSWORD@HOST:PORT/DATABASE  many machines; ?schema=NAME if it is not backstop
  redis://USER:PASSWORD@HOST:PORT/NUMBER       many machines; rediss:// for TLS
  redis+cluster://HOST:PORT,HOST:PORT          a Redis Cluster; rediss+cluster:// for TLS
  redis+sentinel://HOST:PORT,HOST:PORT/NAME    the master that the sentinels call NAME
  memory:                                      gone with the process, for tests

Configuration: backstop.toml (or --config), then BACKSTOP_STORE and BACKSTOP_DURABILITY, then flags; later wins.

Exit codes: 0 done, 1 failed or falls short, 2 wrong use.";

const STORE_HELP: &str = "The store: sqlite:FILE, postgres://…, redis://…, redis+cluster://…, redis+sentinel://… or \
memory:; `backstop --help` shows their forms [default: sqlite:backstop.db] [env: BACKSTOP_STORE]";
const DURABILITY_HELP: &str = "What an acknowledged write survives: full (a power cut) or relaxed (a crash of the \
process); on Redis its own settings decide [default: full] [env: BACKSTOP_DURABILITY]";

/// The backlog engine that never drops work.
#[derive(Parser, Debug)]
#[command(name = "backstop", version, after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// What every command takes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct GlobalArgs {
    /// The address of the store.
    #[arg(long, global = true, value_name = "URL", help = STORE_HELP)]
    pub(crate) store: Option<StoreAddress>,
    /// What an acknowledged write survives.
    #[arg(long, global = true, value_name = "full|relaxed", help = DURABILITY_HELP)]
    pub(crate) durability: Option<Durability>,
    /// The configuration file [default: backstop.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Results and errors as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How logs are written
    #[arg(
        long,
        global = true,
        value_name = "text|json",
        env = "BACKSTOP_LOG",
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,
    /// No progress and no notes, only results and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// How logs are written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line, with the job it is about.
    Json,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum CliCommand {
    /// Run everything: the HTTP API, the dashboard, and the handlers of the configuration
    Serve(serve::ServeArgs),
    /// Tokens that let people and programs in from elsewhere: make, list, revoke
    #[command(subcommand)]
    Token(token::TokenSubcommand),
    /// The configuration, as it would be used
    #[command(subcommand)]
    Config(config::ConfigSubcommand),
    /// Put jobs into a queue: one, or a file of them
    Push(Box<push::PushArgs>),
    /// Run the jobs of queues with a command
    Work(Box<work::WorkArgs>),
    /// Look at jobs, retry, cancel or delete them, ask why one does not run
    #[command(subcommand)]
    Job(job::JobSubcommand),
    /// Look at queues, pause, resume or clear them
    #[command(subcommand)]
    Queue(queue::QueueSubcommand),
    /// Look at workers, quiet, resume or stop them
    #[command(subcommand)]
    Worker(worker::WorkerSubcommand),
    /// Records that are handled in order: look at them, put them in, serve them, play them through
    #[command(subcommand)]
    Stream(Box<stream::StreamSubcommand>),
    /// Look for work that was lost before it reached the queue, and give it jobs
    Sweep(sweep::SweepArgs),
    /// A backlog table of yours, as it is: check it, see what is due, work it off
    #[command(subcommand)]
    Table(table::TableSubcommand),
    /// Compare rows and jobs of all sweeps: rows without jobs, jobs without rows
    #[command(after_help = "\
Examples:
  backstop reconcile
  backstop reconcile --json | jq '.sweeps[] | select(.matches | not)'

For every sweep of the configuration, in both directions: rows past its `older_than` without a live job (those whose job
is dead included), and live jobs of its queue and kind whose row the query no longer finds, whatever its age. Changes
nothing. Exits 1 if anything older than its sweep's `older_than` does not match, or if a sweep cannot be looked at.")]
    Reconcile,
    /// What is due when, and what became of it: look, trigger, pause, resume
    #[command(subcommand)]
    Schedule(schedule::ScheduleSubcommand),
    /// Look at breakers and gates, open and reset them
    #[command(subcommand)]
    Breaker(breaker::BreakerSubcommand),
    /// Look at what was given up, bring it back, remove it, carry it elsewhere
    #[command(subcommand)]
    Dead(Box<dead::DeadSubcommand>),
    /// See what a retry policy does
    #[command(subcommand)]
    Policy(policy::PolicySubcommand),
    /// Examine the store: what can be relied on, and what should be mended
    #[command(after_help = "\
Examples:
  backstop doctor
  backstop doctor --store sqlite:/var/lib/app/backstop.db --json
  backstop doctor --store postgres://app@db.example.org/shop

Reads the store's live settings and its clock, and says in words what can be relied on. Exits 1 if something falls
short of the promise, or if the store cannot be reached. Changes nothing.")]
    Doctor,
    /// Make or update the store's tables, for roles that may not do it themselves
    #[command(after_help = "\
Examples:
  backstop migrate --store sqlite:/var/lib/app/backstop.db
  backstop migrate --store postgres://owner@db.example.org/shop

The first command that writes to a store makes its tables by itself, if its role may. `migrate` does the same and nothing else: run it
with a role that may, where the others may not. It can be killed at any step and run again.

On PostgreSQL it makes a schema and the tables in it: the role needs CREATE on the database the first time
  GRANT CREATE ON DATABASE shop TO owner;
and owns the schema from then on. Roles that only push and work need no such right: migrate with the owner before
they start a new version, and they find nothing to do. On Redis there is nothing to make, only a version to note.")]
    Migrate,
    /// Measure what this machine does with a store
    #[command(after_help = "\
Examples:
  backstop bench --quick
  backstop bench streams
  backstop bench pages --jobs 1000000
  backstop bench pages --store postgres://app@localhost/shop
  backstop bench tables --url postgres://app@localhost/shop
  backstop bench --jobs 50000 --json
  backstop bench --store postgres://app@localhost/shop --held-snapshot
  backstop bench --store redis://localhost

Beside backstop it measures, in the same run, what a bare loop does on the same store. On a server all of it happens
in schemas, or under keys, of its own, which are removed at the end.")]
    Bench(BenchArgs),
    /// Watch queues, rates, workers, dead letters and streams in the terminal
    Top(top::TopArgs),
    /// Kill a worker, or the process behind a store, on purpose, and see whether the promise holds
    Drill(drill::DrillArgs),
    /// Everything at work, live on the dashboard, until Ctrl-C
    Demo(demo::DemoArgs),
    /// Alert rules and a dashboard for what /metrics tells
    #[command(after_help = alerts::EXAMPLES)]
    Alerts(alerts::AlertsArgs),
    /// Write the completions of a shell to stdout
    Completions(completions::CompletionsArgs),
}

/// What a command needs of the configuration file: whether it goes on where that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConfigFileNeed {
    Whole,
    /// The store's address, which may be named elsewhere.
    Address,
    Nothing,
}

/// The command line, with texts that are wrapped once, for the terminal they are read on.
pub(crate) fn command() -> clap::Command {
    unwrap_help_lines(Cli::command())
}

fn unwrap_help_lines(command: clap::Command) -> clap::Command {
    let text = command
        .get_after_help()
        .map(|text| join_lines(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, unwrap_help_lines)
    })
}

/// The text with each paragraph on one line. Lines that are set in are examples and stay as they
/// are.
fn join_lines(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut goes_on = false;
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if !joined.is_empty() {
            joined.push(if goes_on && is_prose { ' ' } else { '\n' });
        }
        joined.push_str(line);
        goes_on = is_prose;
    }
    joined
}

impl CliCommand {
    /// How much of the configuration file it needs.
    pub(crate) fn file_need(&self) -> ConfigFileNeed {
        match self {
            Self::Policy(_) | Self::Alerts(_) | Self::Completions(_) => ConfigFileNeed::Nothing,
            Self::Stream(command) if command.needs_no_file() => ConfigFileNeed::Nothing,
            command if command.is_read_only() => ConfigFileNeed::Address,
            _ => ConfigFileNeed::Whole,
        }
    }

    /// Whether it needs nothing of the configuration but the store's address. It changes nothing,
    /// or, as `top`, only what somebody points at.
    fn is_read_only(&self) -> bool {
        match self {
            Self::Job(command) => command.is_read_only(),
            Self::Queue(command) => command.is_read_only(),
            Self::Worker(command) => command.is_read_only(),
            Self::Stream(command) => command.is_read_only(),
            Self::Schedule(command) => command.is_read_only(),
            Self::Breaker(command) => command.is_read_only(),
            Self::Dead(command) => command.is_read_only(),
            Self::Token(command) => command.is_read_only(),
            Self::Doctor | Self::Top(_) => true,
            _ => false,
        }
    }

    /// Whether it draws over the whole terminal, so that logs may not be written there.
    pub(crate) const fn is_full_screen(&self, is_json: bool) -> bool {
        match self {
            Self::Top(args) => args.is_full_screen(is_json),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
