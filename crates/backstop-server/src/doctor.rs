//! What the doctor says of the store. A look at a large one takes longer than a request may, so it
//! is made in the background.
//!
//! | what is known | what pages and `/metrics` say |
//! |---|---|
//! | nothing yet | that it is being looked at; no number |
//! | the last look | what it found, and how old it is |
//! | that the last look failed | that, and why; beside it what the last good one found |
//!
//! A look that failed is made again after [`EVERY`], however long it took: whoever knows nothing of
//! the store is not told for long.

use crate::App;
use backstop::QueueSettings;
use backstop_core::Time;
use backstop_core::port::{Answer, Finding};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Nobody learns more from looking more often.
const EVERY: Duration = Duration::from_secs(30);
/// A look takes at most one part in so many of all time: the store has other work.
const SHARE: u32 = 20;
/// The longest a look may take; it is given up then.
const LOOK_MAX: Duration = Duration::from_mins(2);

/// The last look at the store of a server. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Doctor(Arc<Mutex<Desk>>);

#[derive(Default)]
struct Desk {
    opinion: Opinion,
    /// From when on it may look again; `None` before the first look.
    next: Option<Instant>,
}

/// What is known of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opinion {
    /// What the last look found that came to its end.
    pub(crate) found: Option<Found>,
    /// Why the last look failed; `None` if it did not.
    pub(crate) failed: Option<String>,
    /// Whether a look is under way.
    pub(crate) is_looking: bool,
}

/// What a look brought.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// When it began.
    pub(crate) at: Time,
    pub(crate) findings: Arc<Vec<Finding>>,
}

impl Doctor {
    /// What is known by now. Where that is old, a new look begins, and nobody waits for it.
    pub(crate) fn opinion(&self, app: &App) -> Opinion {
        let mut desk = self.desk();
        let is_due =
            desk.next.is_none_or(|next| Instant::now() >= next) && !desk.opinion.is_looking;
        desk.opinion.is_looking |= is_due;
        let opinion = desk.opinion.clone();
        // Before the look begins: one that is dropped at once comes back to this desk.
        drop(desk);
        if is_due {
            let (look, app) = (Look(self.clone()), app.clone());
            let tasks = app.tasks().clone();
            tasks.spawn(async move {
                let closing = app.closing().clone();
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = look.at(&app) => {}
                }
            });
        }
        opinion
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Values that are replaced as a whole: any state of them is a good state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look under way. However it ends, another can begin.
struct Look(Doctor);

impl Look {
    async fn at(&self, app: &App) {
        let (at, began) = (app.backstop().now(), Instant::now());
        let examined = match timeout(LOOK_MAX, examine(app)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {LOOK_MAX:?}")),
        };
        match examined {
            Ok(findings) => {
                let found = Some(Found {
                    at,
                    findings: Arc::new(findings),
                });
                let mut desk = self.0.desk();
                desk.opinion = Opinion {
                    found,
                    failed: None,
                    ..desk.opinion.clone()
                };
                desk.next = Some(Instant::now() + EVERY.max(began.elapsed() * SHARE));
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&self, error: String) {
        tracing::warn!(error, "the store could not be examined");
        let mut desk = self.0.desk();
        desk.opinion.failed = Some(error);
        desk.next = Some(Instant::now() + EVERY);
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail(
                "the look broke off, which is a fault of backstop; its log says more".to_owned(),
            );
        }
        self.0.desk().opinion.is_looking = false;
    }
}

async fn examine(app: &App) -> Answer<Vec<Finding>> {
    let usual = QueueSettings::default().lease;
    let config = app.config();
    let shortest = config
        .queues
        .values()
        .map(|queue| queue.settings.lease)
        .fold(usual, Ord::min);
    Ok(app.backstop().examine_store(shortest).await?.findings)
}

#[cfg(test)]
mod tests;
