//! Handle a stream with a command or a web service.

use crate::commands::work::serve::StopSignals;
use crate::commands::work::service;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::count;
use crate::services::ServedStream;
use crate::services::programs;
use backstop::config::{HandlerConfig, StreamConfig};
use backstop::streams::{KeyFilter, KeyState, Stream, StreamCounter, StreamCounts};
use backstop::{Backstop, Exec, Span, StreamName};
use backstop_core::limits::PAGE_MAX;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::time::Duration;

/// How often an emptied stream is looked for.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Which stream, with what, and how.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop stream serve uptime --exec './handle'
  backstop stream serve uptime --http http://127.0.0.1:9000/result --timeout 10s
  backstop stream serve uptime                         with the handler of [streams.uptime] in backstop.toml
  backstop stream serve uptime --exec cat --until-empty

The handler gets {\"stream\",\"key\",\"position\",\"effect\":\"handled\"|\"miss\"|\"miss_range\"|\"amended\",\"step\",\"attempt\",\"payload\",…} on
stdin or as the body of a POST, per key strictly in the order of positions. How it decides, see `backstop work --help`.
Dead letters are in the queue streams.STREAM; requeued ones are handled here too.

Ctrl-C or SIGTERM lets calls end that are under way, and puts everything else by for others.")]
pub(crate) struct StreamServeArgs {
    /// The stream
    stream: StreamName,
    /// The command, as a line for the shell
    #[arg(long, value_name = "CMD", conflicts_with = "http")]
    exec: Option<OsString>,
    /// The web service that gets each event as a POST
    #[arg(long, value_name = "URL")]
    http: Option<String>,
    /// How many calls are under way at once [default: 64]
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// How long one call may take [default: no limit; 30s for a web service]
    #[arg(long, value_name = "D")]
    timeout: Option<Span>,
    /// Stop when nothing is held any more, but by keys that are halted; exit 1 if there are any,
    /// or if a record failed for good
    #[arg(long)]
    until_empty: bool,
}

pub(super) async fn run(
    args: &StreamServeArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let config = config(args, context)?;
    config
        .handler
        .iter()
        .try_for_each(|handler| programs::check(&format!("stream {}", args.stream), handler))?;
    let backstop = context.open().await?;
    let before = counts(&backstop, &args.stream).await?;
    let mut signals = StopSignals::listen()?;
    let served = ServedStream::start(&backstop, &args.stream, config)?;
    context
        .output
        .announce(format!("{} serves stream {}", served.worker(), args.stream));
    tokio::select! {
        () = signals.next() => context.output.announce("stopping: calls under way may end; the rest is put by"),
        ended = wait_until_empty(&backstop, &args.stream), if args.until_empty => ended?,
    }
    served.stop().await;
    let counts = counts(&backstop, &args.stream).await?;
    summarise(&args.stream, counts, context)?;
    let falls_short = args.until_empty
        && (counts[StreamCounter::Dead] > before[StreamCounter::Dead] || counts.held() > 0);
    Ok(if falls_short {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}

fn config(args: &StreamServeArgs, context: &CliContext) -> Result<StreamConfig, CliError> {
    let mut config = context
        .config
        .streams
        .get(&args.stream)
        .cloned()
        .unwrap_or_default();
    if let Some(line) = &args.exec {
        config.handler = Some(HandlerConfig::Exec(Exec::shell(line)));
    }
    if let Some(address) = &args.http {
        config.handler = Some(HandlerConfig::Http(service(address)?));
    }
    if let Some(concurrency) = args.concurrency {
        config.settings.concurrency = concurrency;
    }
    if args.timeout.is_some() {
        config.settings.timeout = args.timeout;
    }
    Ok(config)
}

/// Waits until nothing is held that could be handled without somebody's help.
async fn wait_until_empty(backstop: &Backstop, name: &StreamName) -> Result<(), CliError> {
    let stream = backstop.stream(name.as_str()).map_err(CliError::misuse)?;
    let mut before = None;
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        let Some(status) = stream.status().await? else {
            return Ok(());
        };
        // Who waits is asked only where nothing has moved since the last look.
        let stands_still = before.replace(status.counts) == Some(status.counts);
        if status.records == 0 || (stands_still && all_halted(&stream).await?) {
            return Ok(());
        }
    }
}

async fn all_halted(stream: &Stream) -> Result<bool, CliError> {
    let mut after = None;
    loop {
        let page = stream.keys(after, KeyFilter::Holding, PAGE_MAX).await?;
        let is_halted = |state_bytes: &[u8]| {
            KeyState::from_bytes(state_bytes).is_ok_and(|state| state.halted.is_some())
        };
        if page.iter().any(|key| !is_halted(&key.state)) {
            return Ok(false);
        }
        let Some(last) = page.last() else {
            return Ok(true);
        };
        after = Some(last.key.clone());
    }
}

async fn counts(backstop: &Backstop, name: &StreamName) -> Result<StreamCounts, CliError> {
    let stream = backstop.stream(name.as_str()).map_err(CliError::misuse)?;
    Ok(stream
        .status()
        .await?
        .map(|status| status.counts)
        .unwrap_or_default())
}

fn summarise(
    name: &StreamName,
    counts: StreamCounts,
    context: &CliContext,
) -> Result<(), CliError> {
    if context.output.is_json() {
        let counts: serde_json::Map<String, serde_json::Value> = counts
            .named()
            .map(|(name, number)| (name.to_owned(), number.into()))
            .collect();
        return context
            .output
            .json(&json!({ "stream": name, "counts": counts }));
    }
    context.output.line(format!(
        "{name} so far: {}; {} held now",
        parts(&counts),
        count(counts.held())
    ))
}

/// The counts that are not 0, in words.
fn parts(counts: &StreamCounts) -> String {
    let off_step = match counts[StreamCounter::OffStep] {
        0 => String::new(),
        some => format!(" ({} of them off the step)", count(some)),
    };
    let part = |which: StreamCounter| {
        let beside = if which == StreamCounter::Duplicates {
            &off_step
        } else {
            ""
        };
        Some(format!(
            "{} {}{beside}",
            count(counts[which]),
            count_label(which)?
        ))
    };
    let nonzero = StreamCounter::ALL
        .into_iter()
        .filter(|which| counts[*which] > 0);
    let parts: Vec<String> = nonzero.filter_map(part).collect();
    if parts.is_empty() {
        "nothing yet".to_owned()
    } else {
        parts.join(", ")
    }
}

/// What a count counts, for people; nothing of what only says how waits went.
const fn count_label(which: StreamCounter) -> Option<&'static str> {
    Some(match which {
        StreamCounter::Handled => "handled",
        StreamCounter::Misses => "declared missing",
        StreamCounter::Duplicates => "dropped as duplicates",
        StreamCounter::Late => "came late",
        StreamCounter::Dead => "failed for good",
        StreamCounter::Failures => "failed runs",
        StreamCounter::Ignored => "ignored, of disabled keys",
        StreamCounter::OffGrid => "handled off the step",
        StreamCounter::StoreFailures => "handled while the store was away",
        StreamCounter::Added => "had to wait",
        StreamCounter::Timeout => "waits given up after their time",
        StreamCounter::CircuitBreaker => "waits given up for lack of room",
        StreamCounter::OffStep
        | StreamCounter::Removed
        | StreamCounter::TaskScheduled
        | StreamCounter::Cleared
        | StreamCounter::Rescheduling => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_off_the_step_are_told_beside_the_duplicates() {
        let mut counts = StreamCounts::default();
        assert_eq!(parts(&counts), "nothing yet");
        counts[StreamCounter::Handled] = 4;
        counts[StreamCounter::Duplicates] = 3;
        counts[StreamCounter::OffStep] = 1;
        counts[StreamCounter::OffGrid] = 2;
        let nonzero = parts(&counts);
        for part in [
            "4 handled",
            "3 dropped as duplicates (1 of them off the step)",
            "2 handled off the step",
        ] {
            assert!(nonzero.split(", ").any(|one| one == part), "{nonzero}");
        }
    }
}
