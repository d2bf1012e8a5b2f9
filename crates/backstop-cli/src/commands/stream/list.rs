//! Streams and their keys.

use crate::context::Context;
use crate::output::table::{Table, Tone};
use crate::output::words::{count, relative};
use crate::trouble::{Trouble, Verdict};
use backstop::core::stream::{Alarm, alarms};
use backstop::streams::{Count, KeyStatus, Standing, StreamStatus, WhichKeys};
use backstop::{StreamKey, StreamName, Time};
use clap::Args;
use serde_json::{Map, Value, json};

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
    if context.output.is_json() {
        context.output.json(&json!({ "streams": streams.iter().map(shape).collect::<Vec<_>>() }))?;
    } else if streams.is_empty() {
        context.output.note(
            "no streams yet; try: backstop stream push uptime --key site-7 --position 60000 --step 1m '{}'",
        );
    } else {
        context.output.table(&table(&streams, backstop.now()))?;
        for status in &streams {
            for alarm in alarms(&status.counts) {
                context.output.warn(format!("{}: {alarm}", status.name));
            }
        }
    }
    Ok(Verdict::Fine)
}

/// A stream, for programs.
pub(in crate::commands) fn shape(status: &StreamStatus) -> Value {
    let counts: Map<String, Value> =
        status.counts.named().map(|(name, n)| (name.to_owned(), n.into())).collect();
    json!({
        "name": status.name,
        "keys": status.keys,
        "holding": status.holding,
        "records": status.records,
        "oldest": status.oldest,
        "held": status.counts.held(),
        "success_rate": status.counts.success_rate(),
        "timeout_rate": status.counts.timeout_rate(),
        "overflow_rate": status.counts.overflow_rate(),
        "alarms": alarms(&status.counts).into_iter().map(Alarm::as_str).collect::<Vec<_>>(),
        "counts": counts,
    })
}

fn table(streams: &[StreamStatus], now: Time) -> Table {
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
        let ringing = alarms(&status.counts);
        let number = |which: Count, alarm: Option<Alarm>| {
            let is_ringing = alarm.is_some_and(|alarm| ringing.contains(&alarm));
            (count(status.counts[which]), if is_ringing { Tone::Bad } else { Tone::Plain })
        };
        let plain = |text: String| (text, Tone::Plain);
        table.toned([
            plain(status.name.to_string()),
            plain(count(status.keys)),
            plain(count(status.records)),
            plain(status.oldest.map(|at| relative(at, now)).unwrap_or_default()),
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
    let which = if args.holding { WhichKeys::Holding } else { WhichKeys::All };
    let stream = backstop.stream(args.stream.as_str()).map_err(Trouble::misuse)?;
    let limit = usize::from(args.limit);
    let keys = stream.keys(args.after.clone(), which, limit).await?;
    let next = keys.last().map(|status| &status.key).filter(|_| keys.len() == limit);
    if context.output.is_json() {
        let shapes: Vec<Value> = keys.iter().map(key_shape).collect();
        context.output.json(&json!({ "keys": shapes, "next": next }))?;
    } else if keys.is_empty() {
        context.output.note(format!("stream {} has no such keys", args.stream));
    } else {
        context.output.table(&keys_table(&keys, backstop.now()))?;
        if let Some(next) = next {
            context.output.note(format!("there may be more; try: --after '{next}'"));
        }
    }
    Ok(Verdict::Fine)
}

fn key_shape(status: &KeyStatus) -> Value {
    let standing = Standing::from_bytes(&status.standing).ok();
    json!({
        "key": status.key,
        "watermark": status.watermark,
        "records": status.records,
        "oldest": status.oldest,
        "due": status.due,
        "worker": status.holder.as_ref().map(|holder| holder.worker.as_str()),
        "state": state_of(status).0,
        "attempt": standing.as_ref().and_then(|standing| standing.wait).map(|wait| wait.attempt),
    })
}

/// What a key does, in a word, while nobody has it in hand.
pub(super) const fn state(standing: Option<&Standing>, records: u64) -> (&'static str, Tone) {
    let Some(standing) = standing else { return ("unreadable", Tone::Bad) };
    if standing.disabled {
        ("disabled", Tone::Warning)
    } else if standing.halted.is_some() {
        ("halted", Tone::Bad)
    } else if standing.failing.is_some() {
        ("failing", Tone::Bad)
    } else if standing.wait.is_some() {
        ("waiting", Tone::Warning)
    } else if records > 0 {
        ("due", Tone::Warning)
    } else {
        ("in order", Tone::Good)
    }
}

fn state_of(status: &KeyStatus) -> (&'static str, Tone) {
    let standing = Standing::from_bytes(&status.standing).ok();
    match status.holder {
        Some(_) => ("in hand", Tone::Plain),
        None => state(standing.as_ref(), status.records),
    }
}

fn keys_table(keys: &[KeyStatus], now: Time) -> Table {
    let mut table =
        Table::new(&["KEY", "STATE", "WATERMARK", "HELD", "OLDEST", "LOOKED AT AGAIN", "IN HAND OF"]);
    for status in keys {
        let plain = |text: String| (text, Tone::Plain);
        let (word, tone) = state_of(status);
        table.toned([
            plain(status.key.to_string()),
            (word.to_owned(), tone),
            plain(status.watermark.map(|at| at.to_string()).unwrap_or_default()),
            plain(count(status.records)),
            plain(status.oldest.map(|at| relative(at, now)).unwrap_or_default()),
            plain(status.due.map(|at| relative(at, now)).unwrap_or_default()),
            plain(status.holder.as_ref().map(|holder| holder.worker.to_string()).unwrap_or_default()),
        ]);
    }
    table
}
