//! A simulation in words.

use crate::words::{about, count, counted};
use backstop_core::Span;
use backstop_core::simulate::{Scenario, SimulationResult};

/// What happened, a sentence a line.
pub fn summarize(scenario: &Scenario, simulated: &SimulationResult) -> Vec<String> {
    vec![
        describe_outage(scenario, simulated),
        describe_recovery(scenario, simulated),
        describe_backlog(scenario, simulated),
        describe_deaths(scenario, simulated),
        describe_settings(scenario),
    ]
}

fn describe_outage(scenario: &Scenario, simulated: &SimulationResult) -> String {
    let (from, until) = scenario.outage;
    let length = until.minus(from);
    let calls = simulated.calls_during_outage;
    let called = format!(
        "Outage:    {} hit the service in the {} it was out, {} a second",
        counted(calls, "call"),
        about(length),
        per_second_text(calls, length)
    );
    match scenario.breaker {
        None => format!("{called}."),
        Some(_) => {
            format!(
                "{called}; the breaker let through {} in all.",
                counted(simulated.probes, "probe")
            )
        }
    }
}

fn describe_recovery(scenario: &Scenario, simulated: &SimulationResult) -> String {
    let peak = simulated.peak_calls_per_bucket_after_recovery;
    if peak == 0 {
        return "Recovery:  no call came after the outage.".to_owned();
    }
    format!(
        "Recovery:  at most {} calls a second came after it, first at {}.",
        per_second_text(peak, scenario.bucket),
        about(simulated.peak_after_recovery_at)
    )
}

fn describe_backlog(scenario: &Scenario, simulated: &SimulationResult) -> String {
    let most = simulated
        .buckets
        .iter()
        .map(|bucket| bucket.backlog)
        .max()
        .unwrap_or_default();
    let seen = format!("Backlog:   at most {}", counted(most, "job"));
    match simulated.backlog_gone_at {
        Some(at) => {
            let after = about(at.minus(scenario.outage.1));
            format!(
                "{seen}; gone at {}, {after} after the service was back.",
                about(at)
            )
        }
        None if !catches_up(scenario) => format!(
            "{seen}; it never goes: {} at a time, {} each, are no more than arrive.",
            count(u64::from(scenario.concurrency)),
            scenario.service_time
        ),
        None => format!("{seen}; not gone after {}.", about(scenario.run_for)),
    }
}

fn describe_deaths(scenario: &Scenario, simulated: &SimulationResult) -> String {
    let jobs = counted(simulated.jobs, "job");
    match (simulated.dead, scenario.breaker) {
        (0, _) => format!("Deaths:    none of {jobs}."),
        (dead, None) => {
            format!(
                "Deaths:    {} of {jobs}. With a breaker jobs wait for the service instead.",
                count(dead)
            )
        }
        (dead, Some(_)) => format!("Deaths:    {} of {jobs}.", count(dead)),
    }
}

/// What was played through, to be copied.
fn describe_settings(scenario: &Scenario) -> String {
    let policy = String::from_utf8_lossy(&scenario.policy.to_json()).into_owned();
    let breaker = scenario
        .breaker
        .as_ref()
        .and_then(|breaker| serde_json::to_string(breaker).ok());
    format!(
        "Policy:    {policy}\nBreaker:   {}",
        breaker.as_deref().unwrap_or("none")
    )
}

/// Whether there is room for more than arrives.
pub fn catches_up(scenario: &Scenario) -> bool {
    scenario.arrivals_per_second * scenario.service_time.as_secs_f64()
        < f64::from(scenario.concurrency)
}

/// So many in so long, for one second: whole numbers from ten on.
#[expect(
    clippy::cast_precision_loss,
    reason = "the number of calls is far below 2^53"
)]
#[expect(clippy::cast_sign_loss, reason = "nothing here is negative")]
fn per_second_text(number: u64, span: Span) -> String {
    let per_second = number as f64 / span.as_secs_f64();
    if per_second >= 10.0 {
        count(per_second.round() as u64)
    } else {
        format!("{per_second:.1}")
    }
}
