//! The `backstop` command line: a thin shell around the library.
//!
//! stdout carries results, stderr progress and logs. Exit 0 = done, 1 = failed or falls short, 2 =
//! wrong use.

mod args;
pub mod bench;
mod commands;
mod context;
mod crew;
mod logging;
mod output;
mod trouble;

use args::{Cli, Command, Globals};
use clap::FromArgMatches;
use context::Context;
use std::process::ExitCode;
use trouble::{Trouble, Verdict};

fn main() -> ExitCode {
    let mut command = args::command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|matches| {
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return trouble::misread(&error),
    };
    match run(&cli) {
        Ok(Verdict::Fine) => ExitCode::SUCCESS,
        Ok(Verdict::FallsShort) => ExitCode::from(1),
        Err(trouble) => trouble.tell(cli.globals.format()),
    }
}

fn run(cli: &Cli) -> Result<Verdict, Trouble> {
    let is_check = matches!(cli.command, Command::Config(_));
    let resolved = Context::resolve(&cli.globals, cli.command.file_need());
    let context = resolved.map_err(|trouble| if is_check { trouble.found() } else { trouble })?;
    // Dropped last, outside the runtime: what is left to be exported is sent then.
    let _logging = if cli.command.has_the_screen(cli.globals.json) {
        None
    } else {
        Some(logging::start(
            &cli.globals,
            &context.config,
            matches!(cli.command, Command::Work(_)),
        )?)
    };
    let failed = |error| {
        Trouble::new(format!(
            "the program's threads could not be started: {error}"
        ))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(commands::run(&cli.command, &context))
}

impl Globals {
    /// How results are written.
    fn format(&self) -> output::Format {
        if self.json {
            output::Format::Json
        } else {
            output::Format::Text
        }
    }
}
