//! The `backstop` command line: a thin shell around the library.
//!
//! stdout carries results, stderr progress and logs. Exit 0 = done, 1 = failed or falls short, 2 =
//! wrong use.

mod args;
pub mod bench;
mod commands;
mod context;
mod error;
mod logging;
mod output;
mod services;

use args::{Cli, CliCommand, GlobalArgs};
use clap::FromArgMatches;
use context::CliContext;
use error::{CliError, ExitStatus};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut command = args::command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|matches| {
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return error::report_usage_error(&error),
    };
    match run(&cli) {
        Ok(ExitStatus::Success) => ExitCode::SUCCESS,
        Ok(ExitStatus::Failure) => ExitCode::from(1),
        Err(error) => error.print(cli.globals.format()),
    }
}

fn run(cli: &Cli) -> Result<ExitStatus, CliError> {
    let is_check = matches!(cli.command, CliCommand::Config(_));
    let resolved = CliContext::resolve(&cli.globals, cli.command.file_need());
    let context = resolved.map_err(|error| {
        if is_check {
            error.into_finding()
        } else {
            error
        }
    })?;
    // Dropped last, outside the runtime: what is left to be exported is sent then.
    let _logging = if cli.command.is_full_screen(cli.globals.json) {
        None
    } else {
        Some(logging::start(
            &cli.globals,
            &context.config,
            matches!(cli.command, CliCommand::Work(_)),
        )?)
    };
    let failed = |error| {
        CliError::new(format!(
            "the program's threads could not be started: {error}"
        ))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(commands::run(&cli.command, &context))
}

impl GlobalArgs {
    fn format(&self) -> output::OutputFormat {
        if self.json {
            output::OutputFormat::Json
        } else {
            output::OutputFormat::Text
        }
    }
}
