//! A process whose clock was wrong while it did not compare it.

use backstop::core::port::Store;
use backstop::{Backstop, Clock, ManualClock, RandomSource, Span, Time};
use std::sync::Arc;
use std::time::Duration;

/// A clock that stays wherever it was set, until it is compared with the store's.
#[derive(Debug)]
pub struct WrongClock(ManualClock);

impl WrongClock {
    /// An hour behind from now on, when the last comparison is too old. The runtime's time must be
    /// paused.
    pub async fn fall_behind(&self) {
        self.0.set(self.0.now().before(Span::hours(1)));
        tokio::time::advance(Duration::from_secs(11)).await;
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn follow(&self, store_time: Time) -> Option<i64> {
        let off = store_time.as_micros() - self.0.now().as_micros();
        self.0.set(store_time);
        Some(off)
    }
}

/// A process whose clock was right when it opened the store, and is an hour behind the store's by
/// now. The runtime's time must be paused.
pub async fn an_hour_behind(store: Arc<dyn Store>) -> Backstop {
    with_wrong_clock(store).await.0
}

/// The same with its clock, which can fall behind again.
pub async fn with_wrong_clock(store: Arc<dyn Store>) -> (Backstop, Arc<WrongClock>) {
    let clock = Arc::new(WrongClock(ManualClock::at(
        store.time().await.expect("a time"),
    )));
    let backstop = Backstop::on(
        store,
        Arc::clone(&clock) as Arc<dyn Clock>,
        RandomSource::seeded(7),
    );
    clock.fall_behind().await;
    (backstop, clock)
}

/// Whether two times are the same but for what two readings of a clock differ by.
pub fn is_near(one: Time, other: Time) -> bool {
    one.since(other).max(other.since(one)) < Span::secs(30)
}
