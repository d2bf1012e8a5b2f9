//! A scenario played through, for as long as there is something to see.

use super::{catches_up, round_step};
use backstop_core::breaker::BreakerSettings;
use backstop_core::simulate::{InvalidScenario, Scenario, SimulationResult, simulate};
use backstop_core::{RetryPolicy, Span};

/// The most buckets of a report: finer than a chart can show.
const BUCKETS_MAX: i64 = 240;
/// The least to see after an outage.
const AFTERMATH_MIN: Span = Span::secs(30);
/// The longest time after an outage in which the backlog's end is looked for.
pub const AFTERMATH_MAX: Span = Span::days(1);

/// What is asked: a queue, a policy, an outage.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulationRequest {
    /// Jobs that arrive in a second.
    pub arrivals_per_second: f64,
    /// When the service goes out.
    pub outage_at: Span,
    pub outage: Span,
    /// How long to simulate; until the backlog is gone if that is not said.
    pub run_for: Option<Span>,
    /// How long a call takes.
    pub service_time: Span,
    pub concurrency: u32,
    /// When failed jobs are tried again.
    pub policy: RetryPolicy,
    /// What keeps jobs from a service that fails, if anything does.
    pub breaker: Option<BreakerSettings>,
    /// What the random draws come from.
    pub seed: u64,
    /// How long after the outage the backlog's end is looked for, at most.
    pub aftermath_max: Span,
}

impl Default for SimulationRequest {
    fn default() -> Self {
        Self {
            arrivals_per_second: 100.0,
            outage_at: Span::minutes(1),
            outage: Span::minutes(10),
            run_for: None,
            service_time: Span::millis(50),
            concurrency: 8,
            policy: RetryPolicy::default(),
            breaker: None,
            seed: 1,
            aftermath_max: AFTERMATH_MAX,
        }
    }
}

impl SimulationRequest {
    /// The scenario, played through; without a length, long enough to see the end of the backlog.
    pub fn run(&self) -> Result<(Scenario, SimulationResult), InvalidScenario> {
        let recovery = self.outage_at.plus(self.outage);
        let aftermath = self.outage.scaled(0.5).max(AFTERMATH_MIN);
        let scenario = self.scenario(self.run_for.unwrap_or(recovery.plus(aftermath)));
        let simulated = simulate(&scenario)?;
        if self.run_for.is_some() || simulated.backlog_gone_at.is_some() || !catches_up(&scenario) {
            return Ok((scenario, simulated));
        }
        Ok(
            simulate_until_drained(&scenario, aftermath, self.aftermath_max)
                .unwrap_or((scenario, simulated)),
        )
    }

    fn scenario(&self, run_for: Span) -> Scenario {
        let scenario = Scenario {
            arrivals_per_second: self.arrivals_per_second,
            run_for,
            outage: (self.outage_at, self.outage_at.plus(self.outage)),
            service_time: self.service_time,
            concurrency: self.concurrency,
            policy: self.policy.clone(),
            breaker: self.breaker,
            seed: self.seed,
            bucket: Span::ZERO,
        };
        with_length(scenario, run_for)
    }
}

/// The same for twice the time after the outage, and twice again, until the backlog is gone; then
/// cut a little after that. As long as it may be if it does not go.
fn simulate_until_drained(
    scenario: &Scenario,
    first: Span,
    most: Span,
) -> Option<(Scenario, SimulationResult)> {
    let recovery = scenario.outage.1;
    let simulate_for = |aftermath: Span| {
        let longer = with_length(scenario.clone(), recovery.plus(aftermath));
        simulate(&longer).ok().map(|simulated| (longer, simulated))
    };
    let mut last = None;
    let mut aftermath = first;
    while aftermath < most {
        aftermath = aftermath.times(2).min(most);
        let Some(longer) = simulate_for(aftermath) else {
            break;
        };
        if let Some(gone_at) = longer.1.backlog_gone_at {
            let enough = round_up(gone_at.minus(recovery).scaled(1.2)).min(aftermath);
            return simulate_for(enough).or(Some(longer));
        }
        last = Some(longer);
    }
    last
}

/// To a round length, a twentieth of it longer at most.
fn round_up(span: Span) -> Span {
    let step = round_step(span, 20).as_micros();
    Span::micros((span.as_micros() + step - 1) / step * step)
}

/// The scenario over another time, in buckets that go with it.
fn with_length(scenario: Scenario, run_for: Span) -> Scenario {
    Scenario {
        run_for,
        bucket: round_step(run_for, BUCKETS_MAX),
        ..scenario
    }
}
