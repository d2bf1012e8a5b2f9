//! Put records into a stream.

use crate::commands::push::lines::{InputLine, LineReader};
use crate::commands::push::source::InputSource;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::progress;
use crate::output::words::{count, counted};
use backstop::core::stream::OffStep;
use backstop::streams::{KeyGrids, OfferOutcome, Record, RecordReader, StepField, Stream};
use backstop::{Payload, StreamKey, StreamName};
use backstop_server::wire::stream::StreamOfferedRecordShape;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Records sent in one call.
const BATCH: usize = 1_000;
/// Bad lines that are named one by one.
const NAMED_MAX: u64 = 20;
/// Keys that are looked at in one run; records of further ones are pushed unlooked at.
const KEYS_MAX: usize = 1_000;

/// Which records.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop stream push uptime --key site-7 --position 60000 --step 1m '{\"status\":\"success\"}'
  backstop stream push uptime --file results.ndjson --step 5m
  zcat results.gz | backstop stream push uptime -

A line of a file is {\"key\":\"site-7\",\"position\":300000,\"payload\":…}, with \"step\" (a number, in the unit of positions) and
\"tenant\" if need be. If [streams.NAME] in the configuration says where key, position and step are, a line is the record
itself. Pushing a record again is harmless. Bad lines are named and left out; the others go in.")]
pub(crate) struct StreamPushArgs {
    /// The stream
    stream: StreamName,
    /// The record's payload as JSON, or - for lines from stdin
    #[arg(
        value_name = "JSON",
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    payload: Option<String>,
    /// Put in every line of this file
    #[arg(long, value_name = "FILE.ndjson")]
    file: Option<PathBuf>,
    /// Whose order it belongs to
    #[arg(long, value_name = "KEY", conflicts_with = "file")]
    key: Option<StreamKey>,
    /// Its place in that order
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    position: Option<i64>,
    /// How far apart positions are: a number, or a length of time if they are milliseconds
    #[arg(long, value_name = "N|D")]
    step: Option<String>,
    /// Who it belongs to
    #[arg(long, value_name = "T", conflicts_with = "file")]
    tenant: Option<String>,
}

pub(super) async fn run(
    args: &StreamPushArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let config = context
        .config
        .streams
        .get(&args.stream)
        .cloned()
        .unwrap_or_default();
    let flagged = args.step.as_deref().map(read_step).transpose()?;
    let reading = RecordReader::new(&config, flagged);
    let source = match (&args.file, args.payload.as_deref()) {
        (Some(file), _) => InputSource::at(file),
        (None, Some("-")) => InputSource::Stdin,
        (None, payload) => {
            return push_one(args, payload.unwrap_or_default(), &reading, context).await;
        }
    };
    let backstop = context.open().await?;
    let stream = backstop
        .stream(args.stream.as_str())
        .map_err(CliError::misuse)?;
    let ended = load(&stream, &source, &reading, context).await;
    if matches!(ended, Ok(ExitStatus::Failure))
        && !context.config.streams.contains_key(&args.stream)
    {
        context.output.note(unconfigured(&args.stream));
    }
    ended
}

fn unconfigured(stream: &StreamName) -> String {
    format!(
        "note: the configuration has no [streams.{stream}], so each line must be {{\"key\",\"position\",\"payload\"}}; with `key` \
         and `position` in [streams.{stream}] a line can be the record itself"
    )
}

fn read_step(text: &str) -> Result<i64, CliError> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let step = StepField::parse(text).ok().and_then(|step| step.usual());
    step.ok_or_else(|| {
        CliError::misuse(format!(
            "--step {text}: neither a number nor a length of time"
        ))
        .advise("--step 60000, or --step 1m")
    })
}

async fn push_one(
    args: &StreamPushArgs,
    payload: &str,
    reading: &RecordReader<'_>,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let record = match (&args.key, args.position) {
        (Some(key), Some(position)) => Record {
            key: key.clone(),
            position,
            step: reading.step().ok_or_else(no_step)?,
            tenant: args.tenant.as_deref().map(Into::into),
            payload: Payload::json(payload.to_owned()).map_err(CliError::misuse)?,
        },
        (None, None) => reading
            .whole_line(payload.as_bytes())
            .map_err(CliError::misuse)?,
        _ => return Err(CliError::misuse("--key and --position go together")),
    };
    record.check().map_err(CliError::misuse)?;
    let backstop = context.open().await?;
    let stream = backstop
        .stream(args.stream.as_str())
        .map_err(CliError::misuse)?;
    let (key, position) = (record.key.clone(), record.position);
    let off_step = KeyGrids::new(KEYS_MAX).off_step(&stream, &record).await;
    let answer = stream
        .offer(vec![record])
        .await?
        .first()
        .copied()
        .unwrap_or(OfferOutcome::Full);
    let shape = StreamOfferedRecordShape::new(key, position, answer, off_step);
    if context.output.is_json() {
        context.output.json(&shape)?;
    } else {
        context
            .output
            .line(format!("{} {position} {}", shape.key, shape.result))?;
    }
    if let Some(off) = off_step {
        context
            .output
            .warn(format!("{}: {off}. {}", shape.key, fate(&off)));
    }
    Ok(if answer == OfferOutcome::Full {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}

/// What will become of a record that is off the grid.
const fn fate(off: &OffStep) -> &'static str {
    if off.position > off.from {
        "It is handled in its turn, and the steps go on from it"
    } else {
        "Behind the watermark it is dropped as a duplicate"
    }
}

fn no_step() -> CliError {
    CliError::misuse("how far apart are positions?")
        .advise("--step 1m, or `step` in [streams.NAME] of the configuration")
}

/// What a load came to.
#[derive(Default)]
struct StreamPushTally {
    held: u64,
    duplicates: u64,
    full: u64,
    bad: u64,
    off_step: u64,
}

async fn load(
    stream: &Stream,
    source: &InputSource,
    reading: &RecordReader<'_>,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let bar = progress::spinner(context.output.shows_progress(), "{spinner} {msg}");
    let mut lines = LineReader::new(source.reader()?);
    let (mut buffer, mut batch, mut tally) = (
        Vec::new(),
        Vec::with_capacity(BATCH),
        StreamPushTally::default(),
    );
    let mut last_problem = String::new();
    let mut grids = KeyGrids::new(KEYS_MAX);
    loop {
        let line = lines.next(&mut buffer)?;
        let is_end = line.is_none();
        if let Some(line) = line {
            let record = match line {
                InputLine::Whole(bytes) => reading.record(bytes),
                InputLine::TooLong => Err("it is too long".to_owned()),
            };
            match record {
                Ok(record) => {
                    if let Some(off) = grids.off_step(stream, &record).await {
                        tally.off_step += 1;
                        if tally.off_step <= NAMED_MAX {
                            let (line, key) = (lines.number(), &record.key);
                            context
                                .output
                                .warn(format!("line {line}: {key}: {off}. {}", fate(&off)));
                        }
                    }
                    batch.push(record);
                }
                Err(problem) => {
                    tally.bad += 1;
                    // The same mistake in every line is told once: it is that of the whole file.
                    let what = problem.split(" at line ").next().unwrap_or_default();
                    if tally.bad <= NAMED_MAX && last_problem != what {
                        context
                            .output
                            .warn(format!("line {}: {problem}", lines.number()));
                        what.clone_into(&mut last_problem);
                    }
                }
            }
        }
        if batch.len() == BATCH || (is_end && !batch.is_empty()) {
            for answer in stream.offer(std::mem::take(&mut batch)).await? {
                match answer {
                    OfferOutcome::Held => tally.held += 1,
                    OfferOutcome::Duplicate => tally.duplicates += 1,
                    OfferOutcome::Full => tally.full += 1,
                }
            }
            bar.set_message(format!("{} held", count(tally.held)));
        }
        if is_end {
            break;
        }
    }
    bar.finish_and_clear();
    summarise(&tally, context)
}

fn summarise(tally: &StreamPushTally, context: &CliContext) -> Result<ExitStatus, CliError> {
    let StreamPushTally {
        held,
        duplicates,
        full,
        bad,
        off_step,
    } = *tally;
    if context.output.is_json() {
        let mut summary =
            json!({ "held": held, "duplicates": duplicates, "full": full, "bad": bad });
        if off_step > 0 {
            summary["off_step"] = off_step.into();
        }
        context.output.json(&summary)?;
    } else {
        let off_step = match off_step {
            0 => String::new(),
            number => format!(", {} not on the step of its key", count(number)),
        };
        context.output.line(format!(
            "{} held, {}{off_step}",
            count(held),
            counted(duplicates, "duplicate")
        ))?;
    }
    if full > 0 {
        context.output.warn(format!(
            "{} not taken: their keys keep as many as they can. Is the stream served?",
            counted(full, "record")
        ));
    }
    if bad > 0 {
        context
            .output
            .warn(format!("{} left out", counted(bad, "bad line")));
    }
    Ok(if full + bad > 0 {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    })
}
