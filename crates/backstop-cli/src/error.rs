//! What goes wrong, told to people: the cause and the next step, never a dump.

mod open_error;

use crate::output::{self, OutputFormat};
use backstop::config::InvalidConfig;
use backstop::core::port::StoreError;
use backstop::{DraftError, StoreAddress, StoreKind, WorkerSetupError};
use backstop_core::terminal::{escaped_json, is_control};
pub(crate) use open_error::open_error;
use serde_json::json;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// How a command that did its work ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExitStatus {
    Success,
    /// Something falls short, and the result says what.
    Failure,
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Something is to be told.
    Message {
        cause: String,
        advice: Option<String>,
        /// Whether the command was wrong, and not the world.
        kind: CliErrorKind,
    },
    /// Whoever read the results has enough: `backstop job list | head`.
    BrokenPipe,
}

/// Whose fault it is: decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CliErrorKind {
    Failure,
    Usage,
    /// An entry of the configuration: 2 of whatever needs it, 1 of the check that was asked for it.
    Config,
}

impl CliError {
    pub(crate) fn new(cause: impl Display) -> Self {
        Self::Message {
            cause: cause.to_string(),
            advice: None,
            kind: CliErrorKind::Failure,
        }
    }

    /// The command was used in a way that cannot work.
    pub(crate) fn misuse(cause: impl Display) -> Self {
        Self::Message {
            cause: cause.to_string(),
            advice: None,
            kind: CliErrorKind::Usage,
        }
    }

    /// As what a check of the configuration found: it has done its work.
    pub(crate) fn into_finding(mut self) -> Self {
        if let Self::Message {
            kind: kind @ CliErrorKind::Config,
            ..
        } = &mut self
        {
            *kind = CliErrorKind::Failure;
        }
        self
    }

    pub(crate) fn advise(mut self, next: impl Display) -> Self {
        if let Self::Message { advice, .. } = &mut self {
            *advice = Some(next.to_string());
        }
        self
    }

    /// With what it is about in front.
    pub(crate) fn add_context(mut self, what: impl Display) -> Self {
        if let Self::Message { cause, .. } = &mut self {
            *cause = format!("{what}: {cause}");
        }
        self
    }

    /// What happened, in one line.
    pub(crate) fn cause(&self) -> &str {
        match self {
            Self::Message { cause, .. } => cause,
            Self::BrokenPipe => "nobody reads the results",
        }
    }

    /// Tells it, and ends with the code it means.
    pub(crate) fn print(self, format: OutputFormat) -> ExitCode {
        let Self::Message {
            cause,
            advice,
            kind,
        } = self
        else {
            return ExitCode::SUCCESS;
        };
        let lines: Vec<String> = match format {
            OutputFormat::Json => {
                vec![escaped_json(
                    &json!({ "error": cause, "try": advice }).to_string(),
                )]
            }
            OutputFormat::Text => {
                let advice = advice.map(|advice| format!("  try: {advice}"));
                [format!("error: {cause}")]
                    .into_iter()
                    .chain(advice)
                    .collect()
            }
        };
        lines.into_iter().for_each(output::write_stderr);
        ExitCode::from(match kind {
            CliErrorKind::Failure => 1,
            CliErrorKind::Usage | CliErrorKind::Config => 2,
        })
    }
}

/// A command line that could not be read, or a wish for help.
pub(crate) fn report_usage_error(error: &clap::Error) -> ExitCode {
    let args: Vec<String> = std::env::args_os()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let (wants_json, is_hostile) = (
        args.iter().any(|arg| arg == "--json"),
        args.iter().any(|arg| arg.contains(is_control)),
    );
    if !error.use_stderr() || !(wants_json || is_hostile) {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.to_string();
    // Which of its lines are our own cannot be told once an argument brings line ends along: then
    // all of it is one.
    let (cause, rest) = if is_hostile {
        (
            text.rsplit_once("\n\nFor more information")
                .map_or(&*text, |(cause, _)| cause),
            "",
        )
    } else {
        text.split_once("\n\n").unwrap_or((&text, ""))
    };
    let usage = rest.lines().find_map(|line| line.strip_prefix("Usage: "));
    let cli_error = CliError::misuse(cause.trim().trim_start_matches("error: "));
    let format = if wants_json {
        OutputFormat::Json
    } else {
        OutputFormat::Text
    };
    cli_error
        .advise(usage.unwrap_or("backstop --help"))
        .print(format)
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::BrokenPipe
        } else {
            Self::new(error)
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Misuse { .. } => Self::misuse(error),
            StoreError::Unavailable { .. } => Self::new(error)
                .advise("backstop doctor, and the same command again: repeating is harmless"),
            // The message names its next step.
            _ => Self::new(error),
        }
    }
}

/// A worker that the store refuses: what it lacks.
pub(crate) fn worker_refused(error: &StoreError, address: &StoreAddress) -> CliError {
    let cli_error = CliError::new(format!(
        "the worker stopped, the store refuses what it lives on: {error}"
    ));
    match address.kind() {
        Some(StoreKind::Postgres) => cli_error.advise(
            "as the owner of the schema: GRANT USAGE ON SCHEMA backstop TO worker; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA backstop TO \
             worker; GRANT SELECT ON backstop.version TO worker (with this role's name); or backstop migrate",
        ),
        Some(StoreKind::Redis) => {
            cli_error.advise("backstop doctor with the same address: it tells what its user may not do")
        }
        Some(StoreKind::Sqlite | StoreKind::Memory) | None => cli_error.advise("backstop doctor"),
    }
}

impl From<DraftError> for CliError {
    fn from(error: DraftError) -> Self {
        match error {
            DraftError::Store(error) => error.into(),
            DraftError::Payload(error) => {
                Self::misuse(error).advise("backstop push emails '{\"to\":\"ada@example.org\"}'")
            }
            other => Self::misuse(other),
        }
    }
}

impl From<WorkerSetupError> for CliError {
    fn from(error: WorkerSetupError) -> Self {
        Self::misuse(error)
    }
}

impl From<InvalidConfig> for CliError {
    fn from(error: InvalidConfig) -> Self {
        let kind = match &error {
            InvalidConfig::File { .. }
            | InvalidConfig::Flag { .. }
            | InvalidConfig::Environment { .. } => CliErrorKind::Usage,
            _ => CliErrorKind::Config,
        };
        let advice = error
            .is_about_the_file()
            .then(|| "correct it, and look with: backstop config check".to_owned());
        Self::Message {
            cause: error.to_string(),
            advice,
            kind,
        }
    }
}
