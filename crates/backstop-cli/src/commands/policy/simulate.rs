//! `backstop policy simulate`: what a policy does to a service that is out for a while.

mod shape;

use super::{chart, read};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::terminal_width;
use backstop::{RetryPolicy, Span};
use backstop_core::breaker::BreakerSettings;
use backstop_core::simulate::{InvalidScenario, Scenario, SimulationResult};
use backstop_server::policy_lab::{
    AFTERMATH_MAX, ArrivalRate, PictureStyle, SimulationRequest, render_picture, summarize,
};
use clap::Args;
use shape::SimulatedShape;
use std::path::{Path, PathBuf};

/// Characters of a line where there is no terminal to ask.
const WIDTH_USUAL: usize = 100;

/// Which policy, which outage.
#[derive(Args, Debug)]
pub(crate) struct PolicySimulateArgs {
    /// The policy, as JSON [default: {"kind":"exponential"}]
    #[arg(long, value_name = "JSON")]
    policy: Option<String>,
    /// With a breaker; its settings as JSON, if not the usual ones
    #[arg(long, value_name = "JSON", num_args = 0..=1, default_missing_value = "{}")]
    breaker: Option<String>,
    /// How many jobs arrive: per second, minute (/m) or hour (/h)
    #[arg(long, value_name = "N/s", default_value = "100/s")]
    rate: ArrivalRate,
    /// How long the service is out
    #[arg(long, value_name = "D", default_value = "10m")]
    outage: Span,
    /// When it goes out
    #[arg(long, value_name = "D", default_value = "1m")]
    outage_at: Span,
    /// How long to simulate [default: until the backlog is gone]
    #[arg(long = "for", value_name = "D")]
    run_for: Option<Span>,
    /// How long a call of the service takes
    #[arg(long, value_name = "D", default_value = "50ms")]
    service_time: Span,
    /// How many jobs run at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    concurrency: u32,
    /// What the random draws come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write a chart to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Does what was asked for.
pub(super) fn run(args: &PolicySimulateArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let (scenario, simulated) = run_simulation(args)?;
    if let Some(file) = &args.svg {
        write_svg(file, &scenario, &simulated)?;
    }
    if context.output.is_json() {
        context
            .output
            .json(&SimulatedShape::new(&scenario, &simulated))?;
        return Ok(ExitStatus::Success);
    }
    let width = terminal_width().unwrap_or(WIDTH_USUAL);
    context.output.lines(&chart::render(
        &scenario,
        &simulated,
        width,
        context.output.paint(),
    ))?;
    for line in summarize(&scenario, &simulated) {
        context.output.line(line)?;
    }
    if let Some(file) = &args.svg {
        context.output.note(format!("chart: {}", file.display()));
    }
    Ok(ExitStatus::Success)
}

/// The scenario, played through; without a length, long enough to see the end of the backlog.
fn run_simulation(args: &PolicySimulateArgs) -> Result<(Scenario, SimulationResult), CliError> {
    let question = SimulationRequest {
        arrivals_per_second: args.rate.per_second(),
        outage_at: args.outage_at,
        outage: args.outage,
        run_for: args.run_for,
        service_time: args.service_time,
        concurrency: args.concurrency,
        policy: args
            .policy
            .as_deref()
            .map_or_else(|| Ok(RetryPolicy::default()), read)?,
        breaker: args.breaker.as_deref().map(read_breaker).transpose()?,
        seed: args.seed,
        aftermath_max: AFTERMATH_MAX,
    };
    question.run().map_err(|error| scenario_error(&error, args))
}

fn read_breaker(json: &str) -> Result<BreakerSettings, CliError> {
    serde_json::from_str(json).map_err(|error| {
        let usual = serde_json::to_string(&BreakerSettings::default()).unwrap_or_default();
        CliError::misuse(format!("not a breaker: {error}")).advise(format!("--breaker '{usual}'"))
    })
}

fn scenario_error(error: &InvalidScenario, args: &PolicySimulateArgs) -> CliError {
    let cli_error = CliError::misuse(error);
    match error {
        InvalidScenario::Outage { .. } if args.outage.is_zero() => cli_error.advise("--outage 10m"),
        InvalidScenario::Outage { until, .. } => {
            cli_error.advise(format!("--for {}", until.plus(args.outage)))
        }
        InvalidScenario::TooLarge => cli_error.advise("a lower --rate, or a shorter --for"),
        _ => cli_error.advise("backstop policy simulate --help"),
    }
}

fn write_svg(
    file: &Path,
    scenario: &Scenario,
    simulated: &SimulationResult,
) -> Result<(), CliError> {
    std::fs::write(
        file,
        render_picture(scenario, simulated, PictureStyle::Standalone),
    )
    .map_err(|error| {
        CliError::new(format!(
            "the chart could not be written to {}: {error}",
            file.display()
        ))
    })
}
