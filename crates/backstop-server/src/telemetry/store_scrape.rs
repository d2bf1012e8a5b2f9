//! Reads the store for a scrape: with a deadline, and not more often than it can change anything
//! for whoever looks.

use super::snapshot::{QuickReadings, SlowReadings, StoreReadings};
use crate::App;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// What is cheap to ask is asked again after so long.
const QUICK_KEPT: Duration = Duration::from_secs(2);
/// What is not, after so long: missing instants, runs of sweeps.
const SLOW_KEPT: Duration = Duration::from_mins(1);
/// Whether the store answers at all is asked again after so long.
const ANSWER_KEPT: Duration = Duration::from_secs(1);
/// How long the store has to answer that.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);
/// How long the store has to answer all of the cheap questions; a scraper waits ten seconds,
/// usually.
const QUICK_DEADLINE: Duration = Duration::from_secs(3);
/// And how long for the others.
const SLOW_DEADLINE: Duration = Duration::from_secs(5);

/// What was read last, and when. The three are apart: whoever asks for the one never waits for the
/// other.
#[derive(Default, Debug)]
pub(super) struct StoreScrape {
    quick: Mutex<ScrapeCache<QuickReadings>>,
    slow: Mutex<ScrapeCache<SlowReadings>>,
    answer: Mutex<ScrapeCache<()>>,
}

/// When it was read, and what; `None` inside if it could not be.
type ScrapeCache<T> = Option<(Instant, Option<T>)>;

impl StoreScrape {
    /// The store as it stands, or stood a moment ago. Whoever comes while it is read waits for the
    /// same answer.
    pub(super) async fn read(&self, app: &App) -> StoreReadings {
        let quick = self.quick(app).await;
        let slow = if quick.is_some() {
            self.slow(app).await
        } else {
            None
        };
        StoreReadings {
            quick,
            slow,
            doctor_report: app.doctor().report(app),
        }
    }

    /// Whether the store answers for one cell, which takes it no time and waits for no list;
    /// anybody may ask that. Whoever comes while it is asked waits for the same answer.
    pub(super) async fn is_up(&self, app: &App) -> bool {
        let mut cache = self.answer.lock().await;
        if is_old(cache.as_ref(), ANSWER_KEPT) {
            let asking = app.backstop().store().cells(vec!["ready".to_owned()]);
            let answer = read_within(ANSWER_DEADLINE, "whether the store answers", asking).await;
            *cache = Some((Instant::now(), answer.map(drop)));
        }
        cache.as_ref().is_some_and(|(_, answer)| answer.is_some())
    }

    async fn quick(&self, app: &App) -> Option<QuickReadings> {
        let mut cache = self.quick.lock().await;
        if is_old(cache.as_ref(), QUICK_KEPT) {
            let read = read_within(
                QUICK_DEADLINE,
                "queues, workers and streams",
                QuickReadings::read(app),
            )
            .await;
            *cache = Some((Instant::now(), read));
        }
        cache.as_ref().and_then(|(_, quick)| quick.clone())
    }

    async fn slow(&self, app: &App) -> Option<SlowReadings> {
        let mut cache = self.slow.lock().await;
        if is_old(cache.as_ref(), SLOW_KEPT) {
            let read = read_within(
                SLOW_DEADLINE,
                "schedules and sweeps",
                SlowReadings::read(app),
            )
            .await;
            *cache = Some((Instant::now(), read));
        }
        cache.as_ref().and_then(|(_, slow)| slow.clone())
    }
}

fn is_old<T>(cache: Option<&(Instant, T)>, after: Duration) -> bool {
    cache.is_none_or(|(at, _)| at.elapsed() >= after)
}

/// What was read in time; `None` if it was not.
async fn read_within<T>(
    deadline: Duration,
    what: &str,
    reading: impl Future<Output = backstop_core::port::StoreResult<T>>,
) -> Option<T> {
    match tokio::time::timeout(deadline, reading).await {
        Ok(Ok(read)) => Some(read),
        Ok(Err(error)) => {
            tracing::warn!(%error, "{what} could not be read for /metrics or /readyz");
            None
        }
        Err(_) => {
            tracing::warn!("{what} could not be read for /metrics or /readyz within {deadline:?}");
            None
        }
    }
}
