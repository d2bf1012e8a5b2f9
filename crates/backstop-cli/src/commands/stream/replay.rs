//! Play records through the rules of a stream.

use crate::commands::push::lines::{InputLine as Read, LineReader};
use crate::commands::push::source::InputSource;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::StreamName;
use backstop::config::StreamConfig;
use backstop::core::stream::replay::{Replay, ReplayEffect, ReplayLine, ReplaySummary};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

const STREAM_HELP: &str = "The stream's entry as JSON: step, steps, max_held, max_misses, hold_for, drain, late, on_dead, rollout, retry";

/// Which rules, and which records.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop stream replay --stream '{\"step\":\"1m\"}' --input records.ndjson
  backstop stream replay --stream '{\"step\":\"1m\",\"max_held\":5,\"drain\":\"scheduled\"}' --input - --json
  backstop stream replay --name uptime --input records.ndjson     the rules of [streams.uptime] in backstop.toml

Lines, in the order of their at_ms:
  {\"at_ms\":0,\"key\":\"a\",\"position\":60000}                  a record; also \"tenant\", \"step_ms\", \"payload\", and
                                                        \"fail\": how often its handler fails
  {\"at_ms\":9000,\"key\":\"a\",\"event\":\"forget\"}               or disable, enable
  {\"at_ms\":9000,\"event\":\"store_down\"}                      or store_up

What is told is one line for each effect, in order, and a summary: what a live stream would do, by the very same rules,
without a store, a handler or a wait. After the last line time runs on until nothing is pending.")]
pub(crate) struct StreamReplayArgs {
    /// The stream's entry as JSON.
    #[arg(long, value_name = "JSON", conflicts_with = "name", help = STREAM_HELP)]
    stream: Option<String>,
    /// The stream's entry in the configuration
    #[arg(long, value_name = "STREAM")]
    name: Option<StreamName>,
    /// The records, one a line; - for stdin
    #[arg(long, value_name = "FILE.ndjson")]
    input: PathBuf,
}

impl StreamReplayArgs {
    /// Whether the rules are given as JSON, and not by the name of a stream.
    pub(super) const fn has_own_rules(&self) -> bool {
        self.stream.is_some()
    }
}

pub(super) fn run(args: &StreamReplayArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let config = config(args, context)?;
    let step = config
        .step
        .as_ref()
        .and_then(backstop::streams::StepField::usual);
    let mut replay = Replay::new(config.settings.rules);
    let source = InputSource::at(&args.input);
    let mut lines = LineReader::new(source.reader()?);
    let mut buffer = Vec::new();
    while let Some(line) = lines.next(&mut buffer)? {
        let bad = |problem: String| {
            CliError::misuse(format!(
                "{}: line {}: {problem}",
                args.input.display(),
                lines.number()
            ))
            .advise("backstop stream replay --help, for a line of every kind")
        };
        let Read::Whole(bytes) = line else {
            return Err(bad("it is too long".to_owned()));
        };
        let text = std::str::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
        let line = ReplayLine::parse(text, step).map_err(|error| bad(error.to_string()))?;
        let effects = replay.play(line).map_err(|error| bad(error.to_string()))?;
        print_effects(&effects, context)?;
    }
    let (effects, summary) = replay.finish();
    print_effects(&effects, context)?;
    summarise(&summary, context)?;
    Ok(ExitStatus::Success)
}

fn config(args: &StreamReplayArgs, context: &CliContext) -> Result<StreamConfig, CliError> {
    if let Some(name) = &args.name {
        let entry = context.config.streams.get(name).cloned();
        return entry.ok_or_else(|| {
            CliError::misuse(format!("the configuration has no [streams.{name}]"))
                .advise("--stream JSON")
        });
    }
    let json = args.stream.as_deref().unwrap_or("{}");
    StreamConfig::from_json(json).map_err(|problem| {
        CliError::misuse(format!("--stream: {problem}"))
            .advise("--stream '{\"step\":\"1m\",\"max_held\":10}'")
    })
}

fn print_effects(effects: &[ReplayEffect], context: &CliContext) -> Result<(), CliError> {
    for effect in effects {
        if context.output.is_json() {
            context.output.json(effect)?;
        } else {
            context.output.line(effect_text(effect))?;
        }
    }
    Ok(())
}

fn effect_text(effect: &ReplayEffect) -> String {
    let position = effect
        .position
        .map(|position| format!(" {position}"))
        .unwrap_or_default();
    let to = effect.to.map(|to| format!(" to {to}")).unwrap_or_default();
    let count = effect
        .count
        .map(|count| format!(" ({count})"))
        .unwrap_or_default();
    let until = effect
        .until_ms
        .map(|until| format!(" until {until}"))
        .unwrap_or_default();
    let attempt = effect
        .attempt
        .map(|attempt| format!(", attempt {attempt}"))
        .unwrap_or_default();
    let off = effect
        .off_step
        .or(effect.off_grid)
        .map(|off| format!(" ({off})"))
        .unwrap_or_default();
    let ReplayEffect {
        at_ms, key, effect, ..
    } = effect;
    format!("{at_ms:>10} ms  {key}  {effect}{position}{to}{count}{until}{attempt}{off}")
}

fn summarise(summary: &ReplaySummary, context: &CliContext) -> Result<(), CliError> {
    if context.output.is_json() {
        return context.output.json(&json!({ "summary": summary }));
    }
    let off_step = match summary.off_step {
        0 => String::new(),
        number => format!(" ({number} of them not on the step)"),
    };
    let ReplaySummary {
        handled,
        misses,
        duplicates,
        late,
        added,
        removed,
        held,
        timeout,
        circuit_breaker,
        ..
    } = summary;
    context.output.line(format!(
        "{handled} handled, {misses} missed, {duplicates} duplicates{off_step}, {late} late; {added} waited, {removed} left, {held} held; {timeout} timeouts, {circuit_breaker} overflows"
    ))
}
