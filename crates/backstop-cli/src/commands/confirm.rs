//! Whether something that cannot be undone was meant.

use crate::error::CliError;
use crate::output;
use std::io::{self, BufRead as _, IsTerminal as _};

/// Asks whoever sits at the terminal whether this may be removed; where nobody does, refuses with
/// what to write instead.
pub(super) fn confirm_removal(target: &str, command: &str) -> Result<bool, CliError> {
    let refusal = format!("this removes {target} for good, and nobody can be asked here");
    confirm(
        &format!("Remove {target}? They cannot be brought back."),
        refusal,
        command,
    )
}

/// As [`confirm_removal`], in other words.
pub(super) fn confirm(question: &str, refusal: String, command: &str) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::misuse(refusal).advise(command));
    }
    output::ask(format_args!("{question} [y/N]"))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
