//! One key of a stream.

use super::list::state;
use super::{KeyArgs, unknown};
use crate::context::Context;
use crate::output::words::{counted, cut, one_line, relative};
use crate::trouble::{Trouble, Verdict};
use backstop::core::stream::StoredRecord;
use backstop::streams::{Standing, StoredKey};
use backstop::why::record::why_record;
use backstop::{Payload, Time};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Characters of a payload on a line.
const PAYLOAD_CHARS: usize = 60;

pub(super) async fn run(args: &KeyArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let stream = backstop.stream(args.stream.as_str()).map_err(Trouble::misuse)?;
    let Some(mut stored) = stream.key(&args.key).await? else { return Err(unknown(args)) };
    for record in &mut stored.records {
        record.payload = Payload::stored(context.config.redaction.payload(record.payload.as_bytes()));
    }
    let standing = Standing::from_bytes(&stored.standing).map_err(Trouble::new)?;
    if context.output.is_json() {
        context.output.json(&shape(args, &stored, &standing))?;
    } else {
        for line in lines(args, &stored, &standing, backstop.now()) {
            context.output.line(line)?;
        }
    }
    Ok(Verdict::Fine)
}

fn shape(args: &KeyArgs, stored: &StoredKey, standing: &Standing) -> Value {
    let record = |record: &StoredRecord| {
        let payload: Option<Box<RawValue>> = serde_json::from_slice(record.payload.as_bytes()).ok();
        json!({
            "position": record.position,
            "step": record.step,
            "tenant": record.tenant.as_deref(),
            "at": record.at,
            "payload": payload,
        })
    };
    let failing = standing.failing.as_ref().map(|failing| {
        json!({
            "position": failing.position,
            "failures": failing.failures,
            "next": Time::from_micros(failing.due),
            "error": failing.error,
        })
    });
    json!({
        "stream": args.stream,
        "key": args.key,
        "state": state(Some(standing), stored.count).0,
        "watermark": stored.watermark,
        "step": standing.step,
        "records": stored.count,
        "held": stored.records.iter().map(record).collect::<Vec<_>>(),
        "attempt": standing.wait.map(|wait| wait.attempt),
        "waits_until": standing.wait.map(|wait| Time::from_micros(wait.due)),
        "failing": failing,
        "halted_at": standing.halted,
        "disabled": standing.disabled,
        "gives_up_to": standing.drain_to,
        "missed": standing.missed.runs().map(|(first, step, count)| json!({"first": first, "step": step, "count": count})).collect::<Vec<_>>(),
        "why": stored.records.first().and_then(|record| why_record(stored, record.position).ok()).map(|why| json!({
            "gate": why.gate(),
            "why": why.to_string(),
            "details": why.details(),
        })),
        "late": standing.late.iter().map(|(position, at)| json!({"position": position, "at": Time::from_micros(*at)})).collect::<Vec<_>>(),
    })
}

fn lines(args: &KeyArgs, stored: &StoredKey, standing: &Standing, now: Time) -> Vec<String> {
    let mut lines = Vec::new();
    let word = state(Some(standing), stored.count).0;
    let watermark =
        stored.watermark.map_or("nothing handled yet".to_owned(), |at| format!("dealt with up to {at}"));
    lines.push(format!("{}: {word}, {watermark}", stored.key));
    if let Some(position) = standing.halted {
        lines.push(format!(
            "  halted at {position}, which failed for good; try: backstop stream resume {} {} [--skip]",
            args.stream, args.key
        ));
    }
    if let Some(failing) = &standing.failing {
        let next = relative(Time::from_micros(failing.due), now);
        let error = one_line(&failing.error);
        lines.push(format!(
            "  {} failed {}, next try {next}: {error}",
            failing.position,
            counted(failing.failures.into(), "time")
        ));
    }
    if let Some(wait) = standing.wait {
        lines.push(format!(
            "  waits for the {}. time, until {}",
            wait.attempt,
            relative(Time::from_micros(wait.due), now)
        ));
    }
    lines.extend(held(stored, now));
    if let Some(Ok(why)) = stored.records.first().map(|record| why_record(stored, record.position)) {
        lines.push(format!("  why {} waits: {why}", stored.records[0].position));
    }
    for (first, step, count) in standing.missed.runs() {
        lines.push(format!(
            "  declared missing: {} from {first} on, {step} apart",
            counted(count, "position")
        ));
    }
    for (position, at) in &standing.late {
        lines.push(format!("  came late: {position}, {}", relative(Time::from_micros(*at), now)));
    }
    lines
}

/// What is held, with the gaps between.
fn held(stored: &StoredKey, now: Time) -> Vec<String> {
    let mut lines = Vec::new();
    let mut before = stored.watermark;
    for record in &stored.records {
        if let Some(before) = before.filter(|before| record.position > before.saturating_add(record.step)) {
            let missing = u64::try_from((record.position - before) / record.step - 1).unwrap_or(0);
            let from = before.saturating_add(record.step);
            match missing {
                0 => lines.push("  … off the grid …".to_owned()),
                _ => lines.push(format!("  … gap of {} from {from} on …", counted(missing, "position"))),
            }
        }
        let payload = cut(&one_line(&String::from_utf8_lossy(record.payload.as_bytes())), PAYLOAD_CHARS);
        lines.push(format!("  held {} since {}: {payload}", record.position, relative(record.at, now)));
        before = Some(record.position);
    }
    let more = stored.count.saturating_sub(stored.records.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines
}
