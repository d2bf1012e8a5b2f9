//! The command line of the uptime example.
//!
//! stdout carries results, stderr progress and trouble. Exit 0 = done, 1 = failed or falls short, 2
//! = wrong use.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line speaks"
)]

mod args;
mod commands;

use args::{Cli, Command};
use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::WARN.into())
        .from_env_lossy();
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    logs.with_ansi(std::io::stderr().is_terminal()).init();
    let done = match Cli::parse().command {
        Command::Generate(args) => commands::generate(&args),
        Command::Run(args) => commands::run(&args),
        Command::Consume(args) => commands::consume(&args),
        Command::Output(args) => commands::output(&args),
        Command::Worker(args) => commands::worker(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
