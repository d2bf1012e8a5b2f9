//! Testing your own handlers: a store in memory and a clock that you move.
//!
//! ```
//! # use backstop::{testing, RunError, Run, Span, Task};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize)]
//! # struct Charge { cents: u64 }
//! # impl Task for Charge { const KIND: &'static str = "charge"; }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let test = testing::start();
//! test.backstop.push(&Charge { cents: 500 }).await?;
//!
//! let fails_once = |_: Charge, run: Run| async move {
//!     if run.attempt() == 1 { Err(RunError::retry("card service is down")) } else { Ok(()) }
//! };
//! let first = test.backstop.worker().handle(fails_once).drain().await?;
//! assert_eq!((first.retried, first.done), (1, 0));
//!
//! test.clock.advance(Span::secs(2));
//! let second = test.backstop.worker().handle(fails_once).drain().await?;
//! assert_eq!(second.done, 1);
//! # Ok(())
//! # }
//! ```

use crate::client::Backstop;
use crate::clock::{Clock, ClockJumps, ManualClock};
use crate::random::RandomSource;
use backstop_core::{Span, Time};
use backstop_memory::MemoryStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A store in memory and a clock that stands still.
#[derive(Debug)]
pub struct TestBackstop {
    /// To push to and to work from.
    pub backstop: Backstop,
    /// Moves only when told to.
    pub clock: Arc<ManualClock>,
}

/// A clock that goes with Tokio's own, so that a paused runtime moves it, and that can be made to
/// jump.
#[derive(Debug)]
pub struct VirtualClock {
    started: tokio::time::Instant,
    jumped: AtomicI64,
    leaps: ClockJumps,
}

impl VirtualClock {
    /// A clock that starts at a fixed time.
    pub fn start() -> Self {
        Self {
            started: tokio::time::Instant::now(),
            jumped: AtomicI64::new(0),
            leaps: ClockJumps::default(),
        }
    }

    /// Sets it forward, or back, by so many microseconds.
    pub fn jump(&self, micros: i64) {
        self.jumped.fetch_add(micros, Ordering::Relaxed);
        self.leaps.note(micros);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        let moved = START.after(self.started.elapsed().into());
        Time::from_micros(
            moved
                .as_micros()
                .saturating_add(self.jumped.load(Ordering::Relaxed)),
        )
    }

    fn jumped_within(&self, within: Duration) -> Span {
        self.leaps.forward(within)
    }
}

/// 2026-01-01T00:00:00Z: a time as good as any, and the same in every run.
const START: Time = Time::from_millis(1_767_225_600_000);

/// A new, empty store; the same random numbers in every run.
pub fn start() -> TestBackstop {
    let clock = Arc::new(ManualClock::at(START));
    let backstop = Backstop::on(
        Arc::new(MemoryStore::new()),
        Arc::<ManualClock>::clone(&clock),
        RandomSource::seeded(1),
    );
    TestBackstop { backstop, clock }
}
