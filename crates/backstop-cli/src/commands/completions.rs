//! `backstop completions`: what a shell needs to complete our commands.

use crate::args::Cli;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// For which shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop completions bash > /etc/bash_completion.d/backstop
  backstop completions zsh > ~/.zfunc/_backstop
  backstop completions fish > ~/.config/fish/completions/backstop.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Writes the completions to stdout.
pub(crate) fn run(args: &CompletionsArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    // Generated into memory first: the generator panics on a pipe that closes early.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "backstop", &mut script);
    context.output.verbatim(String::from_utf8_lossy(&script))?;
    Ok(ExitStatus::Success)
}
