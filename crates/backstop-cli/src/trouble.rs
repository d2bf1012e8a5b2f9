//! What goes wrong, told to people: the cause and the next step, never a dump.

mod unopened;

use crate::output::{self, Format};
use backstop::config::BadConfig;
use backstop::core::port::StoreError;
use backstop::{Address, BadDraft, BadWorker, StoreKind};
use backstop_core::terminal::{escaped_json, is_control};
use serde_json::json;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;
pub(crate) use unopened::unopened;

/// How a command that did its work ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Everything was done.
    Fine,
    /// Something falls short, and the result says what.
    FallsShort,
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Something is to be told.
    Told {
        /// What happened.
        cause: String,
        /// The next step.
        advice: Option<String>,
        /// Whether the command was wrong, and not the world.
        blame: Blame,
    },
    /// Whoever read the results has enough: `backstop job list | head`.
    NobodyReads,
}

/// Whose fault it is: decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blame {
    /// 1.
    World,
    /// 2.
    User,
    /// An entry of the configuration: 2 of whatever needs it, 1 of the check that was asked for it.
    Entry,
}

impl Trouble {
    /// Something failed.
    pub(crate) fn new(cause: impl Display) -> Self {
        Self::Told {
            cause: cause.to_string(),
            advice: None,
            blame: Blame::World,
        }
    }

    /// The command was used in a way that cannot work.
    pub(crate) fn misuse(cause: impl Display) -> Self {
        Self::Told {
            cause: cause.to_string(),
            advice: None,
            blame: Blame::User,
        }
    }

    /// As what a check of the configuration found: it has done its work.
    pub(crate) fn found(mut self) -> Self {
        if let Self::Told {
            blame: blame @ Blame::Entry,
            ..
        } = &mut self
        {
            *blame = Blame::World;
        }
        self
    }

    /// With the next step.
    pub(crate) fn advise(mut self, next: impl Display) -> Self {
        if let Self::Told { advice, .. } = &mut self {
            *advice = Some(next.to_string());
        }
        self
    }

    /// With what it is about in front.
    pub(crate) fn about(mut self, what: impl Display) -> Self {
        if let Self::Told { cause, .. } = &mut self {
            *cause = format!("{what}: {cause}");
        }
        self
    }

    /// What happened, in one line.
    pub(crate) fn cause(&self) -> &str {
        match self {
            Self::Told { cause, .. } => cause,
            Self::NobodyReads => "nobody reads the results",
        }
    }

    /// Tells it, and ends with the code it means.
    pub(crate) fn tell(self, format: Format) -> ExitCode {
        let Self::Told {
            cause,
            advice,
            blame,
        } = self
        else {
            return ExitCode::SUCCESS;
        };
        let told: Vec<String> = match format {
            Format::Json => {
                vec![escaped_json(
                    &json!({ "error": cause, "try": advice }).to_string(),
                )]
            }
            Format::Text => {
                let advice = advice.map(|advice| format!("  try: {advice}"));
                [format!("error: {cause}")]
                    .into_iter()
                    .chain(advice)
                    .collect()
            }
        };
        told.into_iter().for_each(output::written);
        ExitCode::from(match blame {
            Blame::World => 1,
            Blame::User | Blame::Entry => 2,
        })
    }
}

/// A command line that could not be read, or a wish for help.
pub(crate) fn misread(error: &clap::Error) -> ExitCode {
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
    let trouble = Trouble::misuse(cause.trim().trim_start_matches("error: "));
    let format = if wants_json {
        Format::Json
    } else {
        Format::Text
    };
    trouble
        .advise(usage.unwrap_or("backstop --help"))
        .tell(format)
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::NobodyReads
        } else {
            Self::new(error)
        }
    }
}

impl From<StoreError> for Trouble {
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
pub(crate) fn refused(error: &StoreError, address: &Address) -> Trouble {
    let trouble = Trouble::new(format!(
        "the worker stopped, the store refuses what it lives on: {error}"
    ));
    match address.kind() {
        Some(StoreKind::Postgres) => trouble.advise(
            "as the owner of the schema: GRANT USAGE ON SCHEMA backstop TO worker; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA backstop TO \
             worker; GRANT SELECT ON backstop.version TO worker (with this role's name); or backstop migrate",
        ),
        Some(StoreKind::Redis) => {
            trouble.advise("backstop doctor with the same address: it tells what its user may not do")
        }
        Some(StoreKind::Sqlite | StoreKind::Memory) | None => trouble.advise("backstop doctor"),
    }
}

impl From<BadDraft> for Trouble {
    fn from(error: BadDraft) -> Self {
        match error {
            BadDraft::Store(error) => error.into(),
            BadDraft::Payload(error) => {
                Self::misuse(error).advise("backstop push emails '{\"to\":\"ada@example.org\"}'")
            }
            other => Self::misuse(other),
        }
    }
}

impl From<BadWorker> for Trouble {
    fn from(error: BadWorker) -> Self {
        Self::misuse(error)
    }
}

impl From<BadConfig> for Trouble {
    fn from(error: BadConfig) -> Self {
        let blame = match &error {
            BadConfig::File { .. } | BadConfig::Flag { .. } | BadConfig::Environment { .. } => {
                Blame::User
            }
            _ => Blame::Entry,
        };
        let advice = error
            .is_about_the_file()
            .then(|| "correct it, and look with: backstop config check".to_owned());
        Self::Told {
            cause: error.to_string(),
            advice,
            blame,
        }
    }
}
