//! The JSON shape of a simulation.

use backstop::{RetryPolicy, Span};
use backstop_core::breaker::BreakerSettings;
use backstop_core::simulate::{Scenario, SimulationBucket, SimulationResult};
use serde::Serialize;

/// A simulation: what was asked, and what came of it.
#[derive(Serialize)]
pub(super) struct SimulatedShape<'a> {
    scenario: ScenarioShape<'a>,
    jobs: u64,
    done: u64,
    dead: u64,
    calls: u64,
    failed_calls: u64,
    calls_during_outage: u64,
    probes: u64,
    peak_calls_per_bucket_after_recovery: u64,
    peak_after_recovery_at_ms: i64,
    backlog_gone_at_ms: Option<i64>,
    buckets: Vec<SimulationBucketShape>,
}

#[derive(Serialize)]
struct ScenarioShape<'a> {
    arrivals_per_second: f64,
    run_for_ms: i64,
    outage_from_ms: i64,
    outage_until_ms: i64,
    service_time_ms: f64,
    concurrency: u32,
    policy: &'a RetryPolicy,
    breaker: Option<BreakerSettings>,
    seed: u64,
    bucket_ms: i64,
}

#[derive(Serialize)]
struct SimulationBucketShape {
    at_ms: i64,
    calls: u64,
    failed: u64,
    backlog: u64,
    dead: u64,
}

impl<'a> SimulatedShape<'a> {
    /// The shape of a simulation.
    pub(super) fn new(scenario: &'a Scenario, simulated: &SimulationResult) -> Self {
        Self {
            scenario: ScenarioShape::new(scenario),
            jobs: simulated.jobs,
            done: simulated.done,
            dead: simulated.dead,
            calls: simulated.calls,
            failed_calls: simulated.failed_calls,
            calls_during_outage: simulated.calls_during_outage,
            probes: simulated.probes,
            peak_calls_per_bucket_after_recovery: simulated.peak_calls_per_bucket_after_recovery,
            peak_after_recovery_at_ms: simulated.peak_after_recovery_at.as_millis(),
            backlog_gone_at_ms: simulated.backlog_gone_at.map(Span::as_millis),
            buckets: simulated
                .buckets
                .iter()
                .map(SimulationBucketShape::new)
                .collect(),
        }
    }
}

impl<'a> ScenarioShape<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        Self {
            arrivals_per_second: scenario.arrivals_per_second,
            run_for_ms: scenario.run_for.as_millis(),
            outage_from_ms: scenario.outage.0.as_millis(),
            outage_until_ms: scenario.outage.1.as_millis(),
            // Of some services a fraction of a millisecond.
            service_time_ms: scenario.service_time.as_secs_f64() * 1_000.0,
            concurrency: scenario.concurrency,
            policy: &scenario.policy,
            breaker: scenario.breaker,
            seed: scenario.seed,
            bucket_ms: scenario.bucket.as_millis(),
        }
    }
}

impl SimulationBucketShape {
    fn new(bucket: &SimulationBucket) -> Self {
        let SimulationBucket {
            at,
            calls,
            failed,
            backlog,
            dead,
        } = *bucket;
        Self {
            at_ms: at.as_millis(),
            calls,
            failed,
            backlog,
            dead,
        }
    }
}
