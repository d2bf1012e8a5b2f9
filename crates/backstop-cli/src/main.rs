//! The `backstop` command line: a thin shell around the library.
//!
//! stdout carries results, stderr progress and logs. Exit 0 = done, 1 = failed or falls short, 2 = wrong use.

mod args;
pub mod bench;
mod commands;
mod context;
mod crew;
mod logging;
mod output;
mod trouble;

use args::{Cli, Command, Globals};
use clap::Parser;
use context::Context;
use std::process::ExitCode;
use trouble::{Trouble, Verdict};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
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
    let resolved = Context::resolve(&cli.globals);
    let context = resolved.map_err(|trouble| if is_check { trouble.found() } else { trouble })?;
    // Dropped last, outside the runtime: what is left to be exported is sent then.
    let _logging = if cli.command.has_the_screen(cli.globals.json) {
        None
    } else {
        Some(logging::start(&cli.globals, &context.config)?)
    };
    let failed = |error| Trouble::new(format!("the program's threads could not be started: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(commands::run(&cli.command, &context))
}

impl Globals {
    /// How results are written.
    fn format(&self) -> output::Format {
        if self.json { output::Format::Json } else { output::Format::Text }
    }
}
