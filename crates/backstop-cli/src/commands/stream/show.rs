//! One key of a stream.

use super::{StreamKeyArgs, unknown_key};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::{counted, cut, one_line, relative, to_the_millisecond};
use backstop::Time;
use backstop::core::stream::LatePolicy;
use backstop::streams::{KeyState, StoredKey};
use backstop::why::record::{RecordLink, explain_record, record_links};
use backstop_core::terminal::shell_argument;
use backstop_server::wire::stream::{StreamKeyShape, redacted, state};

/// Characters of a payload on a line.
const PAYLOAD_CHARS: usize = 60;

pub(super) async fn run(
    args: &StreamKeyArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let stream = backstop
        .stream(args.stream.as_str())
        .map_err(CliError::misuse)?;
    let Some(stored) = stream.key(&args.key).await? else {
        return Err(unknown_key(args));
    };
    let stored = redacted(stored, &context.config.redaction);
    let key_state = KeyState::from_bytes(&stored.state).map_err(CliError::new)?;
    if context.output.is_json() {
        context
            .output
            .json(&StreamKeyShape::new(&args.stream, &stored, &key_state))?;
    } else {
        let late = context
            .config
            .streams
            .get(&args.stream)
            .map(|entry| entry.settings.rules.late);
        for line in lines(args, &stored, &key_state, late, backstop.now()) {
            context.output.line(line)?;
        }
    }
    Ok(ExitStatus::Success)
}

/// What became of a record that came late, as far as the configuration here says.
const fn late_word(late: Option<LatePolicy>) -> &'static str {
    match late {
        Some(LatePolicy::Amend) => "and was handled as an amendment (late = \"amend\")",
        Some(LatePolicy::Drop) => "and was dropped (late = \"drop\")",
        None => "after it was declared missing",
    }
}

fn lines(
    args: &StreamKeyArgs,
    stored: &StoredKey,
    key_state: &KeyState,
    late: Option<LatePolicy>,
    now: Time,
) -> Vec<String> {
    let mut lines = Vec::new();
    let word = state(Some(key_state), stored.count);
    let watermark = stored
        .watermark
        .map_or("nothing handled yet".to_owned(), |at| {
            format!("dealt with up to {at}")
        });
    lines.push(format!("{}: {word}, {watermark}", stored.key));
    if let Some(position) = key_state.halted {
        lines.push(format!(
            "  halted at {position}, which failed for good; \
             try: backstop stream resume [--skip] {} {}",
            args.stream,
            shell_argument(args.key.as_str())
        ));
    }
    // What halts a key is not tried again by itself: it was said above.
    if let Some(failing) = key_state
        .failing
        .as_ref()
        .filter(|failing| key_state.halted != Some(failing.position))
    {
        let next = relative(Time::from_micros(failing.due), now);
        let error = &failing.error;
        lines.push(format!(
            "  {} failed {}, next try {next}: {error}",
            failing.position,
            counted(failing.failures.into(), "time")
        ));
    }
    if let Some(wait) = key_state.wait {
        lines.push(format!(
            "  waits for the {}. time, until {}",
            wait.attempt,
            relative(Time::from_micros(wait.due), now)
        ));
    }
    lines.extend(held_lines(stored, key_state, now));
    if let Some(Ok(why)) = stored
        .records
        .first()
        .map(|record| explain_record(stored, record.position))
    {
        lines.push(format!(
            "  why {} waits: {}",
            stored.records[0].position,
            to_the_millisecond(&why.to_string())
        ));
    }
    for (first, step, count) in key_state.missed.runs() {
        lines.push(format!(
            "  declared missing: {} from {first} on, {step} apart",
            counted(count, "position")
        ));
    }
    for record in &key_state.off_step {
        let became = if record.is_handled {
            "handled; the steps go on from it"
        } else {
            "dropped as a duplicate"
        };
        let at = relative(Time::from_micros(record.at), now);
        lines.push(format!("  off the step: {}, {became}, {at}", record.place));
    }
    for (position, at) in &key_state.late {
        let when = relative(Time::from_micros(*at), now);
        lines.push(format!(
            "  came late: {position}, {when}, {}",
            late_word(late)
        ));
    }
    lines
}

/// What is held, with the gaps between.
fn held_lines(stored: &StoredKey, key_state: &KeyState, now: Time) -> Vec<String> {
    let mut lines = Vec::new();
    for (record, joint) in record_links(stored, key_state) {
        if joint != RecordLink::Close {
            lines.push(format!("  … {joint} …"));
        }
        let payload = cut(
            &one_line(&String::from_utf8_lossy(record.payload.as_bytes())),
            PAYLOAD_CHARS,
        );
        lines.push(format!(
            "  held {} since {}: {payload}",
            record.position,
            relative(record.at, now)
        ));
    }
    let more = stored.count.saturating_sub(stored.records.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines
}
