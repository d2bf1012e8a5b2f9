//! The deployment's one time line, as this process sees it.

use backstop_core::Time;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// Tells the time. Everything that needs `now` asks one of these, so that tests and simulations can move it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time.
    fn now(&self) -> Time;

    /// Told the store's time now and then; answers how far off this clock was, in microseconds, if it followed.
    fn follow(&self, store_time: Time) -> Option<i64> {
        let _ = store_time;
        None
    }
}

/// The store's clock: read once, then carried on by this machine's monotonic clock, so that a stepping wall clock
/// does not expire leases.
#[derive(Debug)]
pub(crate) struct StoreClock {
    started: Instant,
    /// Store time when `started` was taken, in microseconds.
    base: AtomicI64,
}

/// Below this a difference is scheduling noise between two readings, not a clock that moved.
const FOLLOW_FROM_MICROS: i64 = 1_000_000;

impl StoreClock {
    pub(crate) fn set_to(store_time: Time) -> Self {
        Self { started: Instant::now(), base: AtomicI64::new(store_time.as_micros()) }
    }

    fn elapsed_micros(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Time {
        Time::from_micros(self.base.load(Ordering::Relaxed).saturating_add(self.elapsed_micros()))
    }

    /// A machine that slept, or a wall clock that was set right, must not leave this process behind for ever.
    fn follow(&self, store_time: Time) -> Option<i64> {
        let off = store_time.as_micros().saturating_sub(self.now().as_micros());
        if off.abs() < FOLLOW_FROM_MICROS {
            return None;
        }
        self.base.fetch_add(off, Ordering::Relaxed);
        Some(off)
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `time`.
    pub const fn at(time: Time) -> Self {
        Self(AtomicI64::new(time.as_micros()))
    }

    /// Moves it forward.
    pub fn advance(&self, span: backstop_core::Span) {
        self.0.fetch_add(span.as_micros(), Ordering::Relaxed);
    }

    /// Sets it, forward or back.
    pub fn set(&self, time: Time) {
        self.0.store(time.as_micros(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_micros(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::Span;

    #[test]
    fn small_differences_are_noise_and_large_ones_are_followed() {
        let clock = StoreClock::set_to(Time::from_millis(1_000_000));
        assert_eq!(clock.follow(clock.now().after(Span::millis(900))), None);
        let off = clock.follow(clock.now().after(Span::hours(8))).expect("followed");
        assert!((off - Span::hours(8).as_micros()).abs() < 1_000_000);
        assert!(clock.now() >= Time::from_millis(1_000_000).after(Span::hours(8)));
        assert!(clock.follow(clock.now().before(Span::hours(1))).is_some(), "back as well");
    }
}
