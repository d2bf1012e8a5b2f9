//! One file per command.

pub(crate) mod alerts;
pub(crate) mod breaker;
pub(crate) mod completions;
pub(crate) mod config;
mod confirm;
pub(crate) mod dead;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod drill;
pub(crate) mod job;
pub(crate) mod migrate;
pub(crate) mod policy;
pub(crate) mod push;
pub(crate) mod queue;
mod reason;
pub(crate) mod reconcile;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod stream;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod work;
pub(crate) mod worker;

use crate::args::CliCommand;
use crate::bench;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus, open_error};
use backstop::{OpenError, StoreAddress, StoreKind};

/// Does what was asked for.
pub(crate) async fn run(
    command: &CliCommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        CliCommand::Serve(args) => serve::run(args, context).await,
        CliCommand::Token(command) => token::run(command, context).await,
        CliCommand::Config(command) => config::run(command, context).await,
        CliCommand::Push(args) => push::run(args, context).await,
        CliCommand::Work(args) => work::run(args, context).await,
        CliCommand::Job(command) => job::run(command, context).await,
        CliCommand::Queue(command) => queue::run(command, context).await,
        CliCommand::Worker(command) => worker::run(command, context).await,
        CliCommand::Dead(command) => dead::run(command, context).await,
        CliCommand::Stream(command) => stream::run(command, context).await,
        CliCommand::Sweep(args) => Box::pin(sweep::run(args, context)).await,
        CliCommand::Table(command) => table::run(command, context).await,
        CliCommand::Reconcile => reconcile::run(context).await,
        CliCommand::Schedule(command) => schedule::run(command, context).await,
        CliCommand::Breaker(command) => breaker::run(command, context).await,
        CliCommand::Policy(command) => policy::run(command, context),
        CliCommand::Doctor => doctor::run(context).await,
        CliCommand::Drill(args) => drill::run(args, context).await,
        CliCommand::Migrate => migrate::run(context).await,
        CliCommand::Bench(args) => measure(args, context).await,
        CliCommand::Top(args) => top::run(args, context).await,
        CliCommand::Demo(args) => demo::run(args, context).await,
        CliCommand::Alerts(args) => alerts::run(args, context),
        CliCommand::Completions(args) => completions::run(args, context),
    }
}

async fn measure(args: &bench::BenchArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let store = context.named_store.as_ref();
    if args.held_snapshot && store.and_then(StoreAddress::kind) != Some(StoreKind::Postgres) {
        return Err(CliError::misuse(
            "--held-snapshot is about PostgreSQL, and the store is another",
        )
        .advise("--store postgres://USER@HOST/DATABASE"));
    }
    if args.url.is_some() && args.subject != bench::BenchSubject::Tables {
        return Err(
            CliError::misuse("--url is about tables, and something else is measured").advise(
                "backstop bench tables --url URL, or --store URL for the store that is measured",
            ),
        );
    }
    if store.is_some() && !args.subject.is_about_the_store() {
        context
            .output
            .note("measured where it says, not in the store that was named");
    }
    let durability = context.config.durability;
    let measured = bench::run(args, store, durability, context.output.is_json()).await;
    let to_cli_error = |error: anyhow::Error| match (error.downcast::<OpenError>(), store) {
        (Ok(error), Some(store)) => open_error(error, store),
        (Ok(error), None) => CliError::new(error),
        (Err(error), _) => CliError::new(format!("{error:#}")),
    };
    let measured = measured.map_err(to_cli_error)?;
    context
        .output
        .verbatim(format_args!("{}\n", measured.report.trim_end()))?;
    Ok(if measured.falls_short {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}
