//! Whether something that cannot be undone was meant.

use crate::output;
use crate::trouble::Trouble;
use std::io::{self, BufRead as _, IsTerminal as _};

/// Asks whoever sits at the terminal whether this may be removed; where nobody does, refuses with
/// what to write instead.
pub(super) fn removal(meant: &str, command: &str) -> Result<bool, Trouble> {
    let refusal = format!("this removes {meant} for good, and nobody can be asked here");
    ask(
        &format!("Remove {meant}? They cannot be brought back."),
        refusal,
        command,
    )
}

/// As [`removal`], in other words.
pub(super) fn ask(question: &str, refusal: String, command: &str) -> Result<bool, Trouble> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Trouble::misuse(refusal).advise(command));
    }
    output::ask(format_args!("{question} [y/N]"))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
