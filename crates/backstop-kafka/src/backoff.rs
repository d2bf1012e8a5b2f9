//! The backoff before a batch is tried again. It doubles each time, up to a bound. Half of it is
//! random, so that partitions that failed together do not retry together.

use crate::limits::{RETRY_WAIT_MAX, RETRY_WAIT_MIN};
use std::time::Duration;

/// The backoff after this many failures in a row; `draw` is between 0 and 1.
pub(crate) fn wait(failures: u32, draw: f64) -> Duration {
    let doubled = 1_u32
        .checked_shl(failures.saturating_sub(1))
        .unwrap_or(u32::MAX);
    let whole = RETRY_WAIT_MIN.saturating_mul(doubled).min(RETRY_WAIT_MAX);
    whole.mul_f64(0.5 + draw / 2.0)
}

#[cfg(test)]
mod tests;
