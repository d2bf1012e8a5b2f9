//! Reads the store for a scrape: with a deadline, and not more often than it can change anything for whoever looks.

use super::snapshot::{Quick, Slow, Snapshot};
use crate::App;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// What is cheap to ask is asked again after so long.
const QUICK_KEPT: Duration = Duration::from_secs(2);
/// What is not, after so long: the store's examination, missing instants, runs of sweeps.
const SLOW_KEPT: Duration = Duration::from_mins(1);
/// How long the store has to answer all of the cheap questions; a scraper waits ten seconds, usually.
const QUICK_DEADLINE: Duration = Duration::from_secs(3);
/// And how long for the others.
const SLOW_DEADLINE: Duration = Duration::from_secs(5);

/// What was read last, and when.
#[derive(Default, Debug)]
pub(super) struct Desk(Mutex<Kept>);

#[derive(Default, Debug)]
struct Kept {
    quick: Option<(Instant, Option<Quick>)>,
    slow: Option<(Instant, Option<Slow>)>,
}

impl Desk {
    /// The store as it stands, or stood a moment ago. Whoever comes while it is read waits for the same answer.
    pub(super) async fn read(&self, app: &App) -> Snapshot {
        let mut kept = self.0.lock().await;
        let is_old = |at: Option<Instant>, kept: Duration| at.is_none_or(|at| at.elapsed() >= kept);
        if is_old(kept.quick.as_ref().map(|(at, _)| *at), QUICK_KEPT) {
            let read = within(QUICK_DEADLINE, "queues, workers and streams", Quick::read(app)).await;
            kept.quick = Some((Instant::now(), read));
        }
        let is_up = matches!(&kept.quick, Some((_, Some(_))));
        if is_up && is_old(kept.slow.as_ref().map(|(at, _)| *at), SLOW_KEPT) {
            let read = within(SLOW_DEADLINE, "findings, schedules and sweeps", Slow::read(app)).await;
            kept.slow = Some((Instant::now(), read));
        }
        let quick = kept.quick.as_ref().and_then(|(_, quick)| quick.clone());
        let slow = kept.slow.as_ref().and_then(|(_, slow)| slow.clone()).filter(|_| is_up);
        Snapshot { quick, slow }
    }
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
            tracing::warn!(%error, "{what} could not be read for /metrics");
            None
        }
        Err(_) => {
            tracing::warn!("{what} could not be read for /metrics within {deadline:?}");
            None
        }
    }
}
