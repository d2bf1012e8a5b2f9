//! `backstop policy`: what a retry policy does, before anybody depends on it.

mod chart;
mod simulate;
mod tables;

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::RetryPolicy;
use backstop_core::retry::{RetryPreview, preview};
use clap::{Args, Subcommand};
use serde::Serialize;

/// See what a retry policy does.
#[derive(Subcommand, Debug)]
pub(crate) enum PolicySubcommand {
    /// Lay out the waits after 1 to N failures
    #[command(after_help = "\
Examples:
  backstop policy preview
  backstop policy preview --policy '{\"kind\":\"fibonacci\",\"unit\":\"1m\"}' --attempts 10
  backstop policy preview --policy '{\"kind\":\"steps\",\"delays\":[\"10s\",\"20s\",\"30s\",\"60s\",\"60s\"]}' --attempts 5
  backstop policy preview --policy '{\"kind\":\"progressive\"}'
  backstop policy preview --policy '{\"kind\":\"exponential\",\"base\":\"1s\",\"factor\":2.0,\"cap\":\"30s\",\"jitter\":0.25,\"max_attempts\":3}'
  backstop policy preview --policy '{}' --attempts 20            what a queue without a policy has
  backstop policy preview --policy '{\"kind\":\"polynomial\",\"max_attempts\":25}' --attempts 25
  backstop policy preview --policy '{\"kind\":\"constant\",\"every\":\"1m\",\"max_attempts\":\"unlimited\"}' --json

Kinds: exponential (base, factor, cap), fibonacci (unit, cap), steps (delays), progressive (bands: a list of
{\"until\":\"1d\",\"every\":\"5m\"}), constant (every), polynomial. All take max_attempts (a number or \"unlimited\") and
max_age; all but polynomial take jitter (a share such as 0.25, \"full\", \"equal\", \"none\" or {\"spread\":0.1}).")]
    Preview(PolicyPreviewArgs),
    /// Play through what a policy does to a service that is out for a while
    #[command(after_help = "\
Examples:
  backstop policy simulate --rate 100/s --outage 10m
  backstop policy simulate --rate 100/s --outage 10m --breaker --svg outage.svg
  backstop policy simulate --outage 30m --policy '{\"kind\":\"polynomial\",\"max_attempts\":12}' --json
  backstop policy simulate --breaker '{\"recovery_timeout\":\"1m\"}' --concurrency 32

Without a breaker every attempt that is due calls the service, down or not, and jobs die when their
attempts run out. With one, jobs stay in the queue while the service is down, at no attempt's cost,
and a few probes find out when it is back.

Nothing runs and no store is opened: jobs arrive at --rate, --concurrency of them at a time call the
service for --service-time each, and calls during the outage fail. The same --seed gives the same
answer. A breaker takes failure_threshold (5), recovery_timeout (30s), half_open_max_calls (3) and
success_threshold (2); for policies see `backstop policy preview --help`.")]
    Simulate(Box<simulate::PolicySimulateArgs>),
}

/// Which policy, and how far.
#[derive(Args, Debug)]
pub(crate) struct PolicyPreviewArgs {
    /// The policy, as JSON [default: {"kind":"exponential"}]
    #[arg(long, value_name = "JSON")]
    policy: Option<String>,
    /// After how many failures to stop
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    attempts: u32,
}

#[derive(Serialize)]
struct PolicyPreviewShape {
    delays: Vec<DelayShape>,
}

#[derive(Serialize)]
struct DelayShape {
    failures: u32,
    min_ms: i64,
    max_ms: i64,
}

/// Does what was asked for.
pub(crate) fn run(
    command: &PolicySubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        PolicySubcommand::Preview(args) => print_preview(args, context),
        PolicySubcommand::Simulate(args) => simulate::run(args, context),
    }
}

fn print_preview(args: &PolicyPreviewArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let policy = args
        .policy
        .as_deref()
        .map_or_else(|| Ok(RetryPolicy::default()), read)?;
    let waits = preview(&policy, args.attempts);
    if context.output.is_json() {
        let delays = waits.iter().map(DelayShape::new).collect();
        context.output.json(&PolicyPreviewShape { delays })?;
    } else {
        context.output.lines(&tables::render(&policy, &waits))?;
    }
    Ok(ExitStatus::Success)
}

impl DelayShape {
    fn new(wait: &RetryPreview) -> Self {
        Self {
            failures: wait.failures,
            min_ms: wait.min.as_millis(),
            max_ms: wait.max.as_millis(),
        }
    }
}

/// A policy from the command line.
pub(crate) fn read(json: &str) -> Result<RetryPolicy, CliError> {
    RetryPolicy::from_json(json.as_bytes()).map_err(|error| {
        CliError::misuse(error).advise("backstop policy preview --help, for a policy of every kind")
    })
}
