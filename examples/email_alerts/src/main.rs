//! The command line of the email alerts example.
//!
//! stdout carries results, stderr progress and trouble. Exit 0 = done, 1 = failed, or something is
//! off, 2 = wrong use.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line speaks"
)]

mod args;

use anyhow::{Context, Result};
use args::{Cli, Command, ConfigArgs, PlayArgs};
use clap::Parser;
use email_alerts::config::{self, Pace};
use email_alerts::play::{Plan, play};
use email_alerts::postgres::Postgres;
use email_alerts::worker;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

#[tokio::main]
async fn main() -> ExitCode {
    // Workers that find what killed ones left behind warn of it, as they should: here it is the
    // point.
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::ERROR.into())
        .from_env_lossy();
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    logs.with_ansi(std::io::stderr().is_terminal()).init();
    let done = match Cli::parse().command {
        Command::Run(args) => {
            perform(&args, Plan::calm(args.scale(), args.pace(Pace::REAL.lease))).await
        }
        Command::Chaos(args) => perform(&args.play, args.plan()).await,
        Command::Config(args) => Ok(show_config(&args)),
        Command::Worker => worker::work().await.map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn perform(args: &PlayArgs, plan: Plan) -> Result<ExitCode> {
    let plan = Plan {
        workers: args.workers.unwrap_or(plan.workers),
        ..plan
    };
    let own = match &args.postgres {
        Some(_) => None,
        None => Some(Postgres::start().await?),
    };
    let url = own
        .as_ref()
        .map_or_else(|| args.postgres.clone().unwrap_or_default(), Postgres::url);
    eprintln!(
        "{} worker processes, {} of which will be killed; an hour takes {}",
        plan.workers, plan.kills, plan.pace.hour
    );
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let report = play(&plan, &url, &program).await?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{}", report.table());
    }
    if report.holds() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("something is off; see above");
    Ok(ExitCode::FAILURE)
}

fn show_config(args: &ConfigArgs) -> ExitCode {
    print!(
        "{}",
        config::text(
            &args.postgres,
            Pace {
                hour: args.hour,
                lease: Pace::REAL.lease
            },
            None
        )
    );
    ExitCode::SUCCESS
}
