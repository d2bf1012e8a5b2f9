//! The limits of a scenario that can be simulated.

use super::Scenario;
use crate::breaker::InvalidBreaker;
use crate::limits::{DELAY_MAX, LEASE_MAX, SIMULATED_BUCKETS_MAX, SIMULATED_EVENTS_MAX};
use crate::time::Span;

/// A scenario that makes no sense, or is too large to simulate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidScenario {
    /// The rate of jobs is not a positive number.
    #[error("{0} jobs a second is no rate; it must be above 0")]
    Rate(f64),
    #[error("a concurrency of 0 runs nothing; it must be at least 1")]
    Concurrency,
    /// A call takes no time, or too long.
    #[error(
        "a service time of {0} cannot be simulated; it must be longer than nothing and at most {LEASE_MAX}"
    )]
    ServiceTime(Span),
    /// There is no outage, or it does not end in time.
    #[error(
        "an outage from {from} to {until} cannot be simulated over {run_for}: it must take some time, and end before the simulation"
    )]
    Outage {
        from: Span,
        until: Span,
        /// The end of the simulation.
        run_for: Span,
    },
    #[error("{0} is too long to simulate; it must be at most {DELAY_MAX}")]
    TooLong(Span),
    /// There are too few buckets, or too many.
    #[error(
        "buckets of {bucket} over {run_for} cannot be reported; there must be 1 to {SIMULATED_BUCKETS_MAX} of them"
    )]
    Buckets {
        bucket: Span,
        /// The end of the simulation.
        run_for: Span,
    },
    /// The scenario has too many events to simulate.
    #[error(
        "more than {SIMULATED_EVENTS_MAX} arrivals, calls and waits are too many to simulate; lower the rate, or simulate \
         a shorter time"
    )]
    TooLarge,
    /// The breaker's settings cannot work.
    #[error(transparent)]
    Breaker(#[from] InvalidBreaker),
}

impl Scenario {
    /// Checks whether the scenario can be simulated, as far as that is known in advance.
    pub(super) fn check(&self) -> Result<(), InvalidScenario> {
        let (from, until) = self.outage;
        if !self.arrivals_per_second.is_finite() || self.arrivals_per_second <= 0.0 {
            return Err(InvalidScenario::Rate(self.arrivals_per_second));
        }
        if self.concurrency == 0 {
            return Err(InvalidScenario::Concurrency);
        }
        if self.service_time.is_zero() || self.service_time > LEASE_MAX {
            return Err(InvalidScenario::ServiceTime(self.service_time));
        }
        if self.run_for > DELAY_MAX {
            return Err(InvalidScenario::TooLong(self.run_for));
        }
        if from >= until || until >= self.run_for {
            return Err(InvalidScenario::Outage {
                from,
                until,
                run_for: self.run_for,
            });
        }
        if self.bucket.is_zero() || bucket_count(self) > SIMULATED_BUCKETS_MAX {
            return Err(InvalidScenario::Buckets {
                bucket: self.bucket,
                run_for: self.run_for,
            });
        }
        self.breaker.map_or(Ok(()), |breaker| breaker.check())?;
        #[expect(clippy::cast_precision_loss, reason = "the limit is far below 2^53")]
        let jobs_max = SIMULATED_EVENTS_MAX as f64;
        if self.arrivals_per_second * self.run_for.as_secs_f64() > jobs_max {
            return Err(InvalidScenario::TooLarge);
        }
        Ok(())
    }
}

/// The number of buckets; the last one may be shorter.
pub(super) fn bucket_count(scenario: &Scenario) -> i64 {
    let (whole, bucket) = (scenario.run_for.as_micros(), scenario.bucket.as_micros());
    whole / bucket + i64::from(whole % bucket != 0)
}
