//! What the doctor says of the store. A look at a large one takes longer than a request may, so it is made in the background.
//!
//! | what is known | what pages and `/metrics` say |
//! |---|---|
//! | nothing yet | that it is being looked at; no number |
//! | the last look | what it found, and how old it is |
//! | that the last look failed | why; no number |

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
    opinion: Option<Opinion>,
    is_looking: bool,
    /// From when on it may look again; `None` before the first look.
    next: Option<Instant>,
}

/// What the last look brought.
#[derive(Clone, Debug)]
pub(crate) struct Opinion {
    /// When it began.
    pub(crate) at: Time,
    /// What was found, or why nothing was.
    pub(crate) findings: Arc<Result<Vec<Finding>, String>>,
}

impl Doctor {
    /// What is known by now; `None` before the first look has ended. Where it is old, a new look begins, and nobody waits for it.
    pub(crate) fn opinion(&self, app: &App) -> Option<Opinion> {
        let mut desk = self.desk();
        let is_due = desk.next.is_none_or(|next| Instant::now() >= next);
        if is_due && !desk.is_looking {
            desk.is_looking = true;
            let (doctor, app) = (self.clone(), app.clone());
            let tasks = app.tasks().clone();
            tasks.spawn(async move {
                let closing = app.closing().clone();
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = doctor.look(&app) => {}
                }
            });
        }
        desk.opinion.clone()
    }

    async fn look(&self, app: &App) {
        let (at, began) = (app.backstop().now(), Instant::now());
        let findings = match timeout(LOOK_MAX, examine(app)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {LOOK_MAX:?}")),
        };
        if let Err(error) = &findings {
            tracing::warn!(error, "the store could not be examined");
        }
        let next = Instant::now() + EVERY.max(began.elapsed() * SHARE);
        let opinion = Some(Opinion { at, findings: Arc::new(findings) });
        *self.desk() = Desk { opinion, is_looking: false, next: Some(next) };
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Values that are replaced as a whole: any state of them is a good state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn examine(app: &App) -> Answer<Vec<Finding>> {
    let usual = QueueSettings::default().lease;
    let config = app.config();
    let shortest = config.queues.values().map(|queue| queue.settings.lease).fold(usual, Ord::min);
    Ok(app.backstop().examine_store(shortest).await?.findings)
}

#[cfg(test)]
mod tests;
