//! Streams and their keys.

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{count, relative};
use backstop::core::stream::StreamAlarm;
use backstop::streams::{KeyFilter, KeyStatus, StreamCounter, StreamStatus};
use backstop::{StreamKey, StreamName, Time};
use backstop_core::terminal::shell_word;
use backstop_server::history::StreamAlarms;
use backstop_server::wire::stream::{StreamKeysShape, StreamShape, StreamsShape, state_of};
use clap::Args;

/// Which keys.
#[derive(Args, Debug)]
pub(crate) struct StreamKeysArgs {
    /// The stream
    stream: StreamName,
    /// Only keys that hold records
    #[arg(long)]
    holding: bool,
    /// Only keys behind this one
    #[arg(long, value_name = "KEY")]
    after: Option<StreamKey>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
}

pub(super) async fn streams(context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let streams = backstop.store().streams().await?;
    let alarms = StreamAlarms::read(&backstop, &streams).await?;
    if context.output.is_json() {
        let shapes = streams
            .iter()
            .map(|status| StreamShape::new(status, &alarms));
        context.output.json(&StreamsShape {
            streams: shapes.collect(),
        })?;
    } else if streams.is_empty() {
        context.output.note(
            "no streams yet; try: backstop stream push uptime --key site-7 --position 60000 --step 1m '{}'",
        );
    } else {
        context
            .output
            .table(&table(&streams, &alarms, backstop.now()))?;
        for status in &streams {
            for alarm in alarms.of(&status.name) {
                context.output.warn(format!("{}: {alarm}", status.name));
            }
        }
    }
    Ok(ExitStatus::Success)
}

fn table(streams: &[StreamStatus], alarms: &StreamAlarms, now: Time) -> TextTable {
    let titles = [
        "STREAM",
        "KEYS",
        "HELD",
        "OLDEST",
        "HANDLED",
        "MISSES",
        "DUPLICATES",
        "LATE",
        "TIMEOUTS",
        "OVERFLOWS",
        "DEAD",
    ];
    let mut table = TextTable::new(&titles);
    for status in streams {
        let ringing = alarms.of(&status.name);
        let number = |which: StreamCounter, alarm: Option<StreamAlarm>| {
            let is_ringing = alarm.is_some_and(|alarm| ringing.contains(&alarm));
            (
                count(status.counts[which]),
                if is_ringing {
                    CellTone::Bad
                } else {
                    CellTone::Plain
                },
            )
        };
        let plain = |text: String| (text, CellTone::Plain);
        table.styled_row([
            plain(status.name.to_string()),
            plain(count(status.keys)),
            plain(count(status.records)),
            plain(
                status
                    .oldest
                    .map(|at| relative(at, now))
                    .unwrap_or_default(),
            ),
            number(StreamCounter::Handled, None),
            number(StreamCounter::Misses, None),
            number(StreamCounter::Duplicates, None),
            number(StreamCounter::Late, None),
            number(StreamCounter::Timeout, Some(StreamAlarm::TimeoutRate)),
            number(
                StreamCounter::CircuitBreaker,
                Some(StreamAlarm::OverflowRate),
            ),
            number(StreamCounter::Dead, None),
        ]);
    }
    table
}

pub(super) async fn keys(
    args: &StreamKeysArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let which = if args.holding {
        KeyFilter::Holding
    } else {
        KeyFilter::All
    };
    let stream = backstop
        .stream(args.stream.as_str())
        .map_err(CliError::misuse)?;
    let limit = usize::from(args.limit);
    let keys = stream.keys(args.after.clone(), which, limit).await?;
    let shape = StreamKeysShape::new(&keys, limit);
    if context.output.is_json() {
        context.output.json(&shape)?;
    } else if keys.is_empty() {
        context
            .output
            .note(format!("stream {} has no such keys", args.stream));
    } else {
        context.output.table(&keys_table(&keys, backstop.now()))?;
        if let Some(next) = shape.next {
            context.output.note(format!(
                "there may be more; try: --after={}",
                shell_word(next.as_str())
            ));
        }
    }
    Ok(ExitStatus::Success)
}

/// What a state means to whoever reads the list.
fn tone(state: &str) -> CellTone {
    match state {
        "in order" => CellTone::Good,
        "disabled" | "waiting" | "due" => CellTone::Warning,
        "unreadable" | "halted" | "failing" => CellTone::Bad,
        _ => CellTone::Plain,
    }
}

fn keys_table(keys: &[KeyStatus], now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "KEY",
        "STATE",
        "WATERMARK",
        "HELD",
        "OLDEST",
        "LOOKED AT AGAIN",
        "IN HAND OF",
    ]);
    for status in keys {
        let plain = |text: String| (text, CellTone::Plain);
        let word = state_of(status);
        table.styled_row([
            plain(status.key.to_string()),
            (word.to_owned(), tone(word)),
            plain(
                status
                    .watermark
                    .map(|at| at.to_string())
                    .unwrap_or_default(),
            ),
            plain(count(status.records)),
            plain(
                status
                    .oldest
                    .map(|at| relative(at, now))
                    .unwrap_or_default(),
            ),
            plain(status.due.map(|at| relative(at, now)).unwrap_or_default()),
            plain(
                status
                    .holder
                    .as_ref()
                    .map(|holder| holder.worker.to_string())
                    .unwrap_or_default(),
            ),
        ]);
    }
    table
}
