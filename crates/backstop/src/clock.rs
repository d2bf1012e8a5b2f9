//! The deployment's one time line, as this process sees it.

use backstop_core::limits::CLOCK_COMPARED_EVERY;
use backstop_core::{Span, Time};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Tells the time. Everything that needs `now` asks one of these, so that tests and simulations can
/// move it.
pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Time;

    /// Told the store's time now and then; answers how far off this clock was, in microseconds, if
    /// it followed.
    fn follow(&self, store_time: Time) -> Option<i64> {
        let _ = store_time;
        None
    }

    /// How far this clock was set forward within the last `within`, by time that really passed;
    /// nothing, where nobody can tell.
    fn jumped_within(&self, within: Duration) -> Span {
        let _ = within;
        Span::ZERO
    }
}

/// How far a clock was moved of late, and when.
#[derive(Debug, Default)]
pub(crate) struct ClockJumps(Mutex<VecDeque<(tokio::time::Instant, i64)>>);

impl ClockJumps {
    /// Moves that are remembered: more of them in half a minute are no clock.
    const KEPT_MAX: usize = 20;

    /// The clock was moved by so many microseconds, forward or back.
    pub(crate) fn note(&self, micros: i64) {
        // One list, always whole.
        let mut moves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if moves.len() == Self::KEPT_MAX {
            moves.pop_front();
        }
        moves.push_back((tokio::time::Instant::now(), micros));
    }

    /// How far forward that was, all in all, within the last `within`.
    pub(crate) fn forward(&self, within: Duration) -> Span {
        let moves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = moves.iter().filter(|(at, _)| at.elapsed() <= within);
        Span::micros(
            recent
                .fold(0_i64, |sum, (_, micros)| sum.saturating_add(*micros))
                .max(0),
        )
    }
}

/// The store's clock: read once, then carried on by this machine's monotonic clock, so that a
/// stepping wall clock does not expire leases.
#[derive(Debug)]
pub(crate) struct StoreClock {
    started: Instant,
    /// Store time when `started` was taken, in microseconds.
    base: AtomicI64,
    jumps: ClockJumps,
}

/// When this process's clock was compared with the store's.
#[derive(Debug)]
pub(crate) struct ClockComparison {
    last: Mutex<(tokio::time::Instant, SystemTime)>,
    /// Held by whoever compares: others wait for the outcome.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl ClockComparison {
    /// It was compared just now.
    pub(crate) fn made() -> Self {
        Self {
            last: Mutex::new(both_clocks_now()),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether the last comparison is too old. Measured by both clocks of the machine: the
    /// monotonic one stands still while the machine sleeps.
    pub(crate) fn is_due(&self) -> bool {
        let every = Duration::from(CLOCK_COMPARED_EVERY);
        let (monotonic, wall) = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        monotonic.elapsed() >= every || wall.elapsed().is_ok_and(|elapsed| elapsed >= every)
    }

    /// It was compared, or the store did not say.
    pub(crate) fn note(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = both_clocks_now();
    }
}

fn both_clocks_now() -> (tokio::time::Instant, SystemTime) {
    (tokio::time::Instant::now(), SystemTime::now())
}

/// Below this a difference is scheduling noise between two readings, not a clock that moved.
const FOLLOW_FROM_MICROS: i64 = 1_000_000;

impl StoreClock {
    pub(crate) fn set_to(store_time: Time) -> Self {
        Self {
            started: Instant::now(),
            base: AtomicI64::new(store_time.as_micros()),
            jumps: ClockJumps::default(),
        }
    }

    fn elapsed_micros(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Time {
        Time::from_micros(
            self.base
                .load(Ordering::Relaxed)
                .saturating_add(self.elapsed_micros()),
        )
    }

    /// A machine that slept, or a wall clock that was set right, must not leave this process behind
    /// for ever.
    fn follow(&self, store_time: Time) -> Option<i64> {
        let off = store_time
            .as_micros()
            .saturating_sub(self.now().as_micros());
        if off.abs() < FOLLOW_FROM_MICROS {
            return None;
        }
        self.base.fetch_add(off, Ordering::Relaxed);
        self.jumps.note(off);
        Some(off)
    }

    fn jumped_within(&self, within: Duration) -> Span {
        self.jumps.forward(within)
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

    pub fn advance(&self, span: Span) {
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

    #[test]
    fn small_differences_are_noise_and_large_ones_are_followed() {
        let clock = StoreClock::set_to(Time::from_millis(1_000_000));
        assert_eq!(clock.follow(clock.now().after(Span::millis(900))), None);
        let off = clock
            .follow(clock.now().after(Span::hours(8)))
            .expect("followed");
        assert!((off - Span::hours(8).as_micros()).abs() < 1_000_000);
        assert!(clock.now() >= Time::from_millis(1_000_000).after(Span::hours(8)));
        assert!(
            clock.follow(clock.now().before(Span::hours(1))).is_some(),
            "back as well"
        );
        let jumped_within = clock.jumped_within(Duration::from_secs(30));
        assert!(
            (jumped_within.as_micros() - Span::hours(7).as_micros()).abs() < 1_000_000,
            "{jumped_within}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn moves_are_forgotten_after_a_while_and_add_up_before() {
        let (jumps, while_) = (ClockJumps::default(), Duration::from_secs(30));
        jumps.note(5_000_000);
        tokio::time::advance(Duration::from_secs(20)).await;
        jumps.note(-2_000_000);
        assert_eq!(jumps.forward(while_), Span::secs(3));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(jumps.forward(while_), Span::ZERO, "back is not forward");
        for _ in 0..100 {
            jumps.note(1_000_000);
        }
        assert_eq!(jumps.forward(while_), Span::secs(20));
    }
}
