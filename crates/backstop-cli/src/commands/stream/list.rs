//! Streams and their keys.

use crate::context::Context;
use crate::output::table::{Table, Tone};
use crate::output::words::{count, relative};
use crate::trouble::{Trouble, Verdict};
use backstop::core::stream::Alarm;
use backstop::streams::{Count, KeyStatus, StreamStatus, WhichKeys};
use backstop::{StreamKey, StreamName, Time};
use backstop_core::terminal::shell_word;
use backstop_server::history::Alarms;
use backstop_server::wire::stream::{KeysShape, StreamShape, StreamsShape, state_of};
use clap::Args;

/// Which keys.
#[derive(Args, Debug)]
pub(crate) struct KeysArgs {
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

pub(super) async fn streams(context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let streams = backstop.store().streams().await?;
    let alarms = Alarms::read(&backstop, &streams).await?;
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
    Ok(Verdict::Fine)
}

fn table(streams: &[StreamStatus], alarms: &Alarms, now: Time) -> Table {
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
    let mut table = Table::new(&titles);
    for status in streams {
        let ringing = alarms.of(&status.name);
        let number = |which: Count, alarm: Option<Alarm>| {
            let is_ringing = alarm.is_some_and(|alarm| ringing.contains(&alarm));
            (
                count(status.counts[which]),
                if is_ringing { Tone::Bad } else { Tone::Plain },
            )
        };
        let plain = |text: String| (text, Tone::Plain);
        table.toned([
            plain(status.name.to_string()),
            plain(count(status.keys)),
            plain(count(status.records)),
            plain(
                status
                    .oldest
                    .map(|at| relative(at, now))
                    .unwrap_or_default(),
            ),
            number(Count::Handled, None),
            number(Count::Misses, None),
            number(Count::Duplicates, None),
            number(Count::Late, None),
            number(Count::Timeout, Some(Alarm::TimeoutRate)),
            number(Count::CircuitBreaker, Some(Alarm::OverflowRate)),
            number(Count::Dead, None),
        ]);
    }
    table
}

pub(super) async fn keys(args: &KeysArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let which = if args.holding {
        WhichKeys::Holding
    } else {
        WhichKeys::All
    };
    let stream = backstop
        .stream(args.stream.as_str())
        .map_err(Trouble::misuse)?;
    let limit = usize::from(args.limit);
    let keys = stream.keys(args.after.clone(), which, limit).await?;
    let shape = KeysShape::new(&keys, limit);
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
    Ok(Verdict::Fine)
}

/// What a state means to whoever reads the list.
fn tone(state: &str) -> Tone {
    match state {
        "in order" => Tone::Good,
        "disabled" | "waiting" | "due" => Tone::Warning,
        "unreadable" | "halted" | "failing" => Tone::Bad,
        _ => Tone::Plain,
    }
}

fn keys_table(keys: &[KeyStatus], now: Time) -> Table {
    let mut table = Table::new(&[
        "KEY",
        "STATE",
        "WATERMARK",
        "HELD",
        "OLDEST",
        "LOOKED AT AGAIN",
        "IN HAND OF",
    ]);
    for status in keys {
        let plain = |text: String| (text, Tone::Plain);
        let word = state_of(status);
        table.toned([
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
