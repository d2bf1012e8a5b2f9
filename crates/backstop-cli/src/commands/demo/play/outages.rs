//! How the services behind the demo's handlers fare: by the clock, so that it can be foretold.

use std::time::Instant;

/// A service goes down once in so many seconds …
const OUTAGE_EVERY_S: u64 = 60;
const OUTAGE_FROM_S: u64 = 20;
const OUTAGE_TO_S: u64 = 32;
/// What one customer has wrong is mended and broken again in this time.
const CUSTOMER_S: u64 = 120;

/// The time since the demo began, and what it means.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemoOutages {
    since: Instant,
}

impl DemoOutages {
    pub(super) fn start() -> Self {
        Self {
            since: Instant::now(),
        }
    }

    fn second(self) -> u64 {
        self.since.elapsed().as_secs()
    }

    /// Whether the service of the webhooks is down: its breaker opens, probes, and closes again.
    pub(super) fn is_down(self) -> bool {
        outage(self.second())
    }

    /// Whether the customer who answered badly has mended that: what is redriven then succeeds.
    pub(super) fn is_mended(self) -> bool {
        is_customer_fixed(self.second())
    }
}

const fn outage(second: u64) -> bool {
    let at = second % OUTAGE_EVERY_S;
    OUTAGE_FROM_S <= at && at < OUTAGE_TO_S
}

const fn is_customer_fixed(second: u64) -> bool {
    second % CUSTOMER_S >= CUSTOMER_S / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_goes_down_within_the_first_minute_and_comes_back() {
        let seen: Vec<bool> = [0, 19, 20, 31, 32, 79, 80]
            .into_iter()
            .map(outage)
            .collect();
        assert_eq!(seen, [false, false, true, true, false, false, true]);
        assert_eq!(
            [59, 60, 119, 120].map(is_customer_fixed),
            [false, true, true, false]
        );
    }
}
