//! The waits of a policy laid out, before anybody depends on them.

use super::{Curve, RetryPolicy, Roll};
use crate::time::Span;

/// The wait after one failure: somewhere between `min` and `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preview {
    /// After so many failures.
    pub failures: u32,
    /// At the lowest draw.
    pub min: Span,
    /// At the highest draw.
    pub max: Span,
}

/// The waits after 1 to `attempts` failures, not cut by `max_attempts`. Where zero failures have a wait of their own
/// (Fibonacci: a new row is due at once) it comes first; a progressive list ends with its last band.
pub fn preview(policy: &RetryPolicy, attempts: u32) -> Vec<Preview> {
    let first = u32::from(!matches!(policy.curve(), Curve::Fibonacci { .. }));
    let mut age = Span::ZERO;
    let mut waits = Vec::new();
    for failures in first..=attempts {
        let bounds = policy.wait(failures, age, Roll::LOWEST).zip(policy.wait(failures, age, Roll::HIGHEST));
        let Some((min, max)) = bounds else { break };
        waits.push(Preview { failures, min, max });
        age = age.plus(max);
    }
    waits
}
