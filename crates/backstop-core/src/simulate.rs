//! What a retry policy, with or without a breaker, does to a service that is out for a while.
//!
//! A queue on paper: jobs arrive, a few run at a time, each calls the service once. Calls that
//! overlap the outage fail, and their jobs wait as the policy says, go to the tail when due, and
//! are dead after their last attempt. A breaker keeps jobs in the queue, at no attempt's cost. The
//! rules are not told again here: waits are the policy's own, admissions the breaker's own. The
//! same scenario gives the same answer, to the last bit.

mod run;
mod scenario;

pub use scenario::InvalidScenario;

use crate::breaker::BreakerSettings;
use crate::retry::RetryPolicy;
use crate::time::Span;

/// A queue, and an outage of the service behind it. Times count from the beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Jobs that arrive in a second, on average: each at a random moment of its own share of the
    /// second.
    pub arrivals_per_second: f64,
    /// When the simulation ends; jobs arrive until then.
    pub run_for: Span,
    /// From when until when the service is out.
    pub outage: (Span, Span),
    /// How long a call takes, whether it fails or not.
    pub service_time: Span,
    pub concurrency: u32,
    /// When failed jobs are tried again.
    pub policy: RetryPolicy,
    /// What keeps jobs from a service that fails, if anything does.
    pub breaker: Option<BreakerSettings>,
    /// What the random draws come from.
    pub seed: u64,
    pub bucket: Span,
}

/// What came of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimulationResult {
    /// One after the other, from the beginning to the end.
    pub buckets: Vec<SimulationBucket>,
    pub jobs: u64,
    pub done: u64,
    /// Jobs that ran out of attempts, or grew too old.
    pub dead: u64,
    pub calls: u64,
    pub failed_calls: u64,
    /// Those that began while the service was out.
    pub calls_during_outage: u64,
    /// Those that a half-open breaker let through.
    pub probes: u64,
    /// The most calls that began in one bucket after the outage.
    pub peak_calls_per_bucket_after_recovery: u64,
    /// Where the first bucket with so many begins; the end of the outage if there was no call after
    /// it.
    pub peak_after_recovery_at: Span,
    /// When, after the outage, no job waited any more: neither for its turn nor for its next
    /// attempt.
    pub backlog_gone_at: Option<Span>,
}

/// A short part of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimulationBucket {
    pub at: Span,
    /// Calls that began in it.
    pub calls: u64,
    /// Those of them that failed, be it later.
    pub failed: u64,
    /// Jobs that had arrived and not ended, at its end.
    pub backlog: u64,
    /// Jobs that died in it.
    pub dead: u64,
}

pub fn simulate(scenario: &Scenario) -> Result<SimulationResult, InvalidScenario> {
    scenario.check()?;
    run::run(scenario)
}

#[cfg(test)]
mod tests;
