//! A list of the waits of a policy, to check it before jobs depend on it.

use super::{RandomDraw, RetryCurve, RetryPolicy};
use crate::time::Span;

/// The wait after one failure: between `min` and `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPreview {
    pub failures: u32,
    pub min: Span,
    pub max: Span,
}

/// The lifetime is not computed for policies with more runs.
const ADDED_UP_MAX: u32 = 1_000;

/// How long a job that always fails lives at least: the sum of its waits at the lowest draw. `None`
/// if the number of its runs is unbounded or too large.
pub fn shortest_lifetime(policy: &RetryPolicy) -> Option<Span> {
    let max = policy.max_attempts().filter(|max| *max <= ADDED_UP_MAX)?;
    let waits = preview(policy, max.saturating_sub(1));
    Some(
        waits
            .iter()
            .filter(|wait| wait.failures > 0)
            .fold(Span::ZERO, |sum, wait| sum.plus(wait.min)),
    )
}

/// The waits after 1 to `attempts` failures, not cut by `max_attempts`. A Fibonacci curve begins
/// with zero failures, because a new row is due at once. A progressive list ends with its last
/// band.
pub fn preview(policy: &RetryPolicy, attempts: u32) -> Vec<RetryPreview> {
    let first = u32::from(!matches!(policy.curve(), RetryCurve::Fibonacci { .. }));
    let mut age = Span::ZERO;
    let mut waits = Vec::new();
    for failures in first..=attempts {
        let bounds = policy
            .wait(failures, age, RandomDraw::LOWEST)
            .zip(policy.wait(failures, age, RandomDraw::HIGHEST));
        let Some((min, max)) = bounds else { break };
        waits.push(RetryPreview { failures, min, max });
        age = age.plus(max);
    }
    waits
}
