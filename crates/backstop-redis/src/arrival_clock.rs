//! Numbers in the order of arrival, comparable over all queues.
//!
//! An arrival is the server's time in microseconds, as this process extrapolates it. There is no
//! counter to ask, so an enqueue takes one round trip and no key is hot. Within a process, arrivals
//! only grow. Between processes they are off by as much as their clocks are. Equal arrivals are
//! ordered by the job id, which follows the arrival wherever it orders something.

use crate::link::machine_micros;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

#[derive(Default)]
pub(crate) struct ArrivalClock {
    next: AtomicI64,
}

impl ArrivalClock {
    /// Draws `count` arrivals, where the server's clock is ahead of ours by `clock_offset_micros`.
    pub(crate) fn draw(&self, count: usize, clock_offset_micros: i64) -> Range<i64> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let first = self.draw_at(machine_micros() + clock_offset_micros, count);
        first..first + count
    }

    fn draw_at(&self, now_micros: i64, count: i64) -> i64 {
        // A concurrent draw between these two steps only makes the number larger; no number is
        // drawn twice.
        self.next.fetch_max(now_micros, Ordering::Relaxed);
        self.next.fetch_add(count, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_grow_whatever_the_clock_does() {
        let arrivals = ArrivalClock::default();
        assert_eq!(arrivals.draw_at(1_000, 10), 1_000);
        assert_eq!(arrivals.draw_at(1_000, 1), 1_010);
        assert_eq!(arrivals.draw_at(500, 1), 1_011);
        assert_eq!(arrivals.draw_at(2_000, 1), 2_000);
    }
}
