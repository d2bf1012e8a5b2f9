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
use backstop_core::port::{StoreFinding, StoreResult};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Nobody learns more from looking more often.
const EVERY: Duration = Duration::from_secs(30);
/// A look takes at most one part in so many of all time: the store has other work.
const SHARE: u32 = 20;
/// The longest a look may take; it is given up then.
const EXAMINE_MAX: Duration = Duration::from_mins(2);

/// The last look at the store of a server. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct DoctorCache(Arc<Mutex<DoctorState>>);

#[derive(Default)]
struct DoctorState {
    report: DoctorReport,
    /// From when on it may look again; `None` before the first look.
    next: Option<Instant>,
}

/// What is known of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct DoctorReport {
    /// What the last look found that came to its end.
    pub(crate) found: Option<DoctorFindings>,
    /// Why the last look failed; `None` if it did not.
    pub(crate) failed: Option<String>,
    /// Whether a look is under way.
    pub(crate) is_looking: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct DoctorFindings {
    pub(crate) at: Time,
    pub(crate) findings: Arc<Vec<StoreFinding>>,
}

impl DoctorCache {
    /// What is known by now. Where that is old, a new look begins, and nobody waits for it.
    pub(crate) fn report(&self, app: &App) -> DoctorReport {
        let mut state = self.state();
        let is_due =
            state.next.is_none_or(|next| Instant::now() >= next) && !state.report.is_looking;
        state.report.is_looking |= is_due;
        let report = state.report.clone();
        // Before the look begins: one that is dropped at once comes back to this desk.
        drop(state);
        if is_due {
            let (examination, app) = (DoctorExamination(self.clone()), app.clone());
            let tasks = app.tasks().clone();
            tasks.spawn(async move {
                let closing = app.closing().clone();
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = examination.run(&app) => {}
                }
            });
        }
        report
    }

    fn state(&self) -> MutexGuard<'_, DoctorState> {
        // Values that are replaced as a whole: any state of them is a good state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look under way. However it ends, another can begin.
struct DoctorExamination(DoctorCache);

impl DoctorExamination {
    async fn run(&self, app: &App) {
        let (at, began) = (app.backstop().now(), Instant::now());
        let examined = match timeout(EXAMINE_MAX, examine(app)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {EXAMINE_MAX:?}")),
        };
        match examined {
            Ok(findings) => {
                let found = Some(DoctorFindings {
                    at,
                    findings: Arc::new(findings),
                });
                let mut state = self.0.state();
                state.report = DoctorReport {
                    found,
                    failed: None,
                    ..state.report.clone()
                };
                state.next = Some(Instant::now() + EVERY.max(began.elapsed() * SHARE));
            }
            Err(error) => self.record_failure(error),
        }
    }

    fn record_failure(&self, error: String) {
        tracing::warn!(error, "the store could not be examined");
        let mut state = self.0.state();
        state.report.failed = Some(error);
        state.next = Some(Instant::now() + EVERY);
    }
}

impl Drop for DoctorExamination {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.record_failure(
                "the look broke off, which is a fault of backstop; its log says more".to_owned(),
            );
        }
        self.0.state().report.is_looking = false;
    }
}

async fn examine(app: &App) -> StoreResult<Vec<StoreFinding>> {
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
