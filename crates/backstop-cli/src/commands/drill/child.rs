//! A process of the drill: this program again, to be killed.

use super::PATIENCE;
use super::part::DrillPart;
use crate::context::CliContext;
use crate::error::CliError;
use backstop::config::{ENV_DURABILITY, ENV_STORE};
use backstop::{Durability, Span, StoreAddress};
use clap::ValueEnum;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};

/// A process that plays a part. It ends with this one: dropped, it is killed.
pub(super) struct DrillProcess {
    process: Process,
    output_lines: Lines<BufReader<ChildStdout>>,
    /// Held open for as long as it is to go on.
    _stdin: Option<ChildStdin>,
}

/// A durability as the environment has it.
const fn word(durability: Durability) -> &'static str {
    match durability {
        Durability::Full => "full",
        Durability::Relaxed => "relaxed",
    }
}

impl DrillProcess {
    /// Starts it. The store's address goes by the environment: it may hold a password.
    pub(super) fn start(
        part: DrillPart,
        address: &StoreAddress,
        lease: Span,
        context: &CliContext,
    ) -> Result<Self, CliError> {
        let program = std::env::current_exe()?;
        let name = part
            .to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default();
        let mut command = Command::new(program);
        command.args([
            "drill",
            "--quiet",
            "--part",
            &name,
            "--lease",
            &lease.to_string(),
        ]);
        if let Some(file) = &context.named_file {
            command.arg("--config").arg(file);
        }
        command
            .env(ENV_STORE, address.as_written())
            .env(ENV_DURABILITY, word(context.config.durability));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn()?;
        let stdin = process.stdin.take();
        let stdout = process
            .stdout
            .take()
            .ok_or_else(|| CliError::new("a process of the drill has no stdout"))?;
        Ok(Self {
            process,
            output_lines: BufReader::new(stdout).lines(),
            _stdin: stdin,
        })
    }

    /// The next it says of this kind, without its first word; waits at most `patience`.
    pub(super) async fn wait_for_word(
        &mut self,
        word: &str,
        patience: Duration,
    ) -> Result<String, CliError> {
        let heard = async {
            while let Some(line) = self.output_lines.next_line().await? {
                if let Some((first, rest)) = line.split_once(' ')
                    && first == word
                {
                    return Ok(rest.to_owned());
                }
            }
            Err(CliError::new(format!(
                "a process of the drill ended before it was `{word}`; its words are above"
            )))
        };
        let late = || {
            CliError::new(format!(
                "a process of the drill was not `{word}` within {patience:?}"
            ))
        };
        tokio::time::timeout(patience, heard)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    pub(super) async fn kill(&mut self) -> Result<(), CliError> {
        Ok(self.process.kill().await?)
    }

    /// What it had said before it was killed.
    pub(super) async fn remaining_lines(&mut self) -> Result<Vec<String>, CliError> {
        let mut words = Vec::new();
        let all = async {
            while let Some(line) = self.output_lines.next_line().await? {
                words.push(line);
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, all)
            .await
            .unwrap_or_else(|_| Err(CliError::new("a process that was killed goes on talking")))?;
        Ok(words)
    }
}
