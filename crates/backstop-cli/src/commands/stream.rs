//! `backstop stream`: records that are handled in order.

mod change;
mod list;
mod push;
mod replay;
mod serve;
mod show;

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::{StreamKey, StreamName};
use clap::{Args, Subcommand};

/// Look at streams, put records in, serve them, play them through.
#[derive(Subcommand, Debug)]
pub(crate) enum StreamSubcommand {
    /// All streams: what they hold, and what happened in them
    #[command(after_help = "\
Examples:
  backstop stream list
  backstop stream list --json | jq '.streams[] | {name, held, timeout_rate, alarms}'")]
    List,
    /// The keys of a stream: how far they are, what they hold, what they wait for
    #[command(after_help = "\
Examples:
  backstop stream keys uptime
  backstop stream keys uptime --holding
  backstop stream keys uptime --limit 100 --after site-7 --json")]
    Keys(list::StreamKeysArgs),
    /// One key: its gaps, what it holds, what was missing, what came late
    #[command(after_help = "\
Examples:
  backstop stream show uptime site-7
  backstop stream show uptime site-7 --json")]
    Show(StreamKeyArgs),
    /// Put records into a stream; whoever serves it handles them in order
    Push(push::StreamPushArgs),
    /// Handle a stream with a command or a web service, until told to stop
    Serve(serve::StreamServeArgs),
    /// Play records through the rules of a stream, on virtual time and without a store
    Replay(replay::StreamReplayArgs),
    /// Forget a key: what it holds is gone, and its next record is its first
    #[command(after_help = "\
Examples:
  backstop stream forget uptime site-7
  backstop stream forget uptime site-7 --disable     and ignore its records until it is enabled
  backstop stream forget uptime site-7 --yes         without being asked about the records it holds")]
    Forget(change::StreamForgetArgs),
    /// Take the records of a disabled key again
    #[command(after_help = "\
Examples:
  backstop stream enable uptime site-7")]
    Enable(change::StreamEnableArgs),
    /// Set a key going again that halted at a record that failed for good
    #[command(after_help = "\
Examples:
  backstop stream resume uptime site-7               try the record again
  backstop stream resume uptime site-7 --skip        go on past it; it stays a dead letter")]
    Resume(change::StreamResumeArgs),
}

/// Which key.
#[derive(Args, Debug)]
pub(crate) struct StreamKeyArgs {
    /// The stream
    stream: StreamName,
    /// The key
    key: StreamKey,
}

impl StreamSubcommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self, Self::List | Self::Keys(_) | Self::Show(_))
    }

    /// Whether all it needs is in its arguments.
    pub(crate) const fn needs_no_file(&self) -> bool {
        match self {
            Self::Replay(args) => args.has_own_rules(),
            _ => false,
        }
    }
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &StreamSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        StreamSubcommand::List => list::streams(context).await,
        StreamSubcommand::Keys(args) => list::keys(args, context).await,
        StreamSubcommand::Show(args) => show::run(args, context).await,
        StreamSubcommand::Push(args) => push::run(args, context).await,
        StreamSubcommand::Serve(args) => serve::run(args, context).await,
        StreamSubcommand::Replay(args) => replay::run(args, context),
        StreamSubcommand::Forget(args) => change::forget(args, context).await,
        StreamSubcommand::Enable(args) => change::enable(args, context).await,
        StreamSubcommand::Resume(args) => change::resume(args, context).await,
    }
}

/// Nobody has heard of this key.
fn unknown_key(args: &StreamKeyArgs) -> CliError {
    CliError::new(format!("stream {} has no key {}", args.stream, args.key))
        .advise(format!("backstop stream keys {}", args.stream))
}
