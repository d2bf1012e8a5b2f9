//! Simulates what a retry policy, with or without a breaker, does to a service during and after an
//! outage.
//!
//! The simulation has one queue: jobs arrive, a few run at a time, and each calls the service once.
//! Calls that overlap the outage fail. Their jobs wait as the policy says, go to the tail of the
//! queue when due, and are dead after their last attempt. A breaker keeps jobs in the queue without
//! counting attempts. The simulation uses the real policy and the real breaker instead of rules of
//! its own. The same scenario gives exactly the same result.

mod run;
mod scenario;

pub use scenario::InvalidScenario;

use crate::breaker::BreakerSettings;
use crate::retry::RetryPolicy;
use crate::time::Span;

/// A queue, and an outage of the service behind it. Times count from the beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// The average number of jobs per second. Each job arrives at a random moment of its own share
    /// of the second.
    pub arrivals_per_second: f64,
    /// The end of the simulation; jobs arrive until then.
    pub run_for: Span,
    /// The beginning and the end of the outage.
    pub outage: (Span, Span),
    /// The duration of a call, whether it fails or not.
    pub service_time: Span,
    pub concurrency: u32,
    /// The retry policy of failed jobs.
    pub policy: RetryPolicy,
    /// The breaker in front of the service, if there is one.
    pub breaker: Option<BreakerSettings>,
    /// The seed of the random draws.
    pub seed: u64,
    pub bucket: Span,
}

/// The result of a simulation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimulationResult {
    /// The buckets in order, from the beginning to the end.
    pub buckets: Vec<SimulationBucket>,
    pub jobs: u64,
    pub done: u64,
    /// Jobs that ran out of attempts, or grew too old.
    pub dead: u64,
    pub calls: u64,
    pub failed_calls: u64,
    /// Calls that began during the outage.
    pub calls_during_outage: u64,
    /// Calls that a half-open breaker let through.
    pub probes: u64,
    /// The most calls that began in one bucket after the outage.
    pub peak_calls_per_bucket_after_recovery: u64,
    /// The start of the first bucket with that many calls; the end of the outage if no call
    /// followed it.
    pub peak_after_recovery_at: Span,
    /// The first time after the outage at which no job waited, neither for its turn nor for its
    /// next attempt.
    pub backlog_gone_at: Option<Span>,
}

/// A short part of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimulationBucket {
    pub at: Span,
    /// Calls that began in the bucket.
    pub calls: u64,
    /// Calls of the bucket that failed, even if they failed later.
    pub failed: u64,
    /// Jobs that had arrived and not ended by the end of the bucket.
    pub backlog: u64,
    /// Jobs that died in the bucket.
    pub dead: u64,
}

pub fn simulate(scenario: &Scenario) -> Result<SimulationResult, InvalidScenario> {
    scenario.check()?;
    run::run(scenario)
}

#[cfg(test)]
mod tests;
