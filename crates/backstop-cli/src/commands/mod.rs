//! One file per command.

pub(crate) mod alerts;
mod because;
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

use crate::args::Command;
use crate::bench;
use crate::context::Context;
use crate::trouble::{Trouble, Verdict, unopened};
use backstop::{Address, OpenError, StoreKind};

/// Does what was asked for.
pub(crate) async fn run(command: &Command, context: &Context) -> Result<Verdict, Trouble> {
    match command {
        Command::Serve(args) => serve::run(args, context).await,
        Command::Token(command) => token::run(command, context).await,
        Command::Config(command) => config::run(command, context).await,
        Command::Push(args) => push::run(args, context).await,
        Command::Work(args) => work::run(args, context).await,
        Command::Job(command) => job::run(command, context).await,
        Command::Queue(command) => queue::run(command, context).await,
        Command::Worker(command) => worker::run(command, context).await,
        Command::Dead(command) => dead::run(command, context).await,
        Command::Stream(command) => stream::run(command, context).await,
        Command::Sweep(args) => Box::pin(sweep::run(args, context)).await,
        Command::Table(command) => table::run(command, context).await,
        Command::Reconcile => reconcile::run(context).await,
        Command::Schedule(command) => schedule::run(command, context).await,
        Command::Breaker(command) => breaker::run(command, context).await,
        Command::Policy(command) => policy::run(command, context),
        Command::Doctor => doctor::run(context).await,
        Command::Drill(args) => drill::run(args, context).await,
        Command::Migrate => migrate::run(context).await,
        Command::Bench(args) => measure(args, context).await,
        Command::Top(args) => top::run(args, context).await,
        Command::Demo(args) => demo::run(args, context).await,
        Command::Alerts(args) => alerts::run(args, context),
        Command::Completions(args) => completions::run(args, context),
    }
}

async fn measure(args: &bench::BenchArgs, context: &Context) -> Result<Verdict, Trouble> {
    let store = context.named_store.as_ref();
    if args.held_snapshot && store.and_then(Address::kind) != Some(StoreKind::Postgres) {
        return Err(Trouble::misuse(
            "--held-snapshot is about PostgreSQL, and the store is another",
        )
        .advise("--store postgres://USER@HOST/DATABASE"));
    }
    if args.url.is_some() && args.subject != bench::Subject::Tables {
        return Err(
            Trouble::misuse("--url is about tables, and something else is measured").advise(
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
    let told = |error: anyhow::Error| match (error.downcast::<OpenError>(), store) {
        (Ok(error), Some(store)) => unopened(error, store),
        (Ok(error), None) => Trouble::new(error),
        (Err(error), _) => Trouble::new(format!("{error:#}")),
    };
    let measured = measured.map_err(told)?;
    context
        .output
        .verbatim(format_args!("{}\n", measured.report.trim_end()))?;
    Ok(if measured.falls_short {
        Verdict::FallsShort
    } else {
        Verdict::Fine
    })
}
