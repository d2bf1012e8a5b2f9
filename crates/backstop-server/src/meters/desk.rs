//! Reads the store for a scrape: with a deadline, and not more often than it can change anything
//! for whoever looks.

use super::snapshot::{Quick, Slow, Snapshot};
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
pub(super) struct Desk {
    quick: Mutex<Kept<Quick>>,
    slow: Mutex<Kept<Slow>>,
    answer: Mutex<Kept<()>>,
}

/// When it was read, and what; `None` inside if it could not be.
type Kept<T> = Option<(Instant, Option<T>)>;

impl Desk {
    /// The store as it stands, or stood a moment ago. Whoever comes while it is read waits for the
    /// same answer.
    pub(super) async fn read(&self, app: &App) -> Snapshot {
        let quick = self.quick(app).await;
        let slow = if quick.is_some() {
            self.slow(app).await
        } else {
            None
        };
        Snapshot {
            quick,
            slow,
            opinion: app.doctor().opinion(app),
        }
    }

    /// Whether the store answers for one cell, which takes it no time and waits for no list;
    /// anybody may ask that. Whoever comes while it is asked waits for the same answer.
    pub(super) async fn is_up(&self, app: &App) -> bool {
        let mut kept = self.answer.lock().await;
        if is_old(kept.as_ref(), ANSWER_KEPT) {
            let asking = app.backstop().store().cells(vec!["ready".to_owned()]);
            let answer = within(ANSWER_DEADLINE, "whether the store answers", asking).await;
            *kept = Some((Instant::now(), answer.map(drop)));
        }
        kept.as_ref().is_some_and(|(_, answer)| answer.is_some())
    }

    async fn quick(&self, app: &App) -> Option<Quick> {
        let mut kept = self.quick.lock().await;
        if is_old(kept.as_ref(), QUICK_KEPT) {
            let read = within(
                QUICK_DEADLINE,
                "queues, workers and streams",
                Quick::read(app),
            )
            .await;
            *kept = Some((Instant::now(), read));
        }
        kept.as_ref().and_then(|(_, quick)| quick.clone())
    }

    async fn slow(&self, app: &App) -> Option<Slow> {
        let mut kept = self.slow.lock().await;
        if is_old(kept.as_ref(), SLOW_KEPT) {
            let read = within(SLOW_DEADLINE, "schedules and sweeps", Slow::read(app)).await;
            *kept = Some((Instant::now(), read));
        }
        kept.as_ref().and_then(|(_, slow)| slow.clone())
    }
}

fn is_old<T>(kept: Option<&(Instant, T)>, after: Duration) -> bool {
    kept.is_none_or(|(at, _)| at.elapsed() >= after)
}

/// What was read in time; `None` if it was not.
async fn within<T>(
    deadline: Duration,
    what: &str,
    reading: impl Future<Output = backstop_core::port::Answer<T>>,
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
