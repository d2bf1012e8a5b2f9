//! Redrives that servers run: begun from a page or over the API, and gone on with by the servers of
//! the store when the one that had it is gone.

use crate::App;
use backstop::dead::DeadLetters;
use backstop::dead::redrive::RedriveError;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Redrives that are remembered as given up.
const GIVEN_UP_MAX: usize = 1_000;
/// How long a redrive may take to leave its record in good order when the server closes; cut off,
/// it waits for its lease to end.
const LEAVE_MAX: Duration = Duration::from_secs(3);

/// Redrives that broke off here for a reason that will not pass: they wait for somebody who looks
/// at it.
#[derive(Default)]
pub(crate) struct AbandonedRedrives(Mutex<BTreeSet<String>>);

impl AbandonedRedrives {
    fn has(&self, id: &str) -> bool {
        self.ids().contains(id)
    }

    fn add(&self, id: &str) {
        let mut ids = self.ids();
        if ids.len() >= GIVEN_UP_MAX {
            ids.clear();
        }
        ids.insert(id.to_owned());
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one that is written down apart from the request, unless somebody has it.
pub(crate) fn spawn_redrive(app: &App, dead: DeadLetters, id: String) {
    let (tasks, app) = (app.tasks().clone(), app.clone());
    tasks.spawn(async move {
        tokio::select! {
            () = run_to_end(&app, &dead, &id) => {}
            () = wait_for_cutoff(app.closing()) => {}
        }
    });
}

/// Goes on with those that were left.
pub(crate) async fn resume(app: &App) -> backstop::core::port::StoreResult<()> {
    let left = app.backstop().dead().abandoned_redrives().await?;
    for report in left
        .into_iter()
        .filter(|report| !app.abandoned_redrives().has(&report.id))
    {
        spawn_redrive(
            app,
            app.config().dead(app.backstop(), &report.by),
            report.id,
        );
    }
    Ok(())
}

async fn run_to_end(app: &App, dead: &DeadLetters, id: &str) {
    let go_on = |_: &_| {
        if app.closing().is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    match dead.run_redrive(id, go_on).await {
        Ok(report) if report.phase.is_ended() => {
            tracing::info!(redrive = id, phase = %report.phase, requeued = report.requeued, "a redrive has ended");
        }
        Ok(_) => tracing::info!(redrive = id, "a redrive is left for the next server"),
        // Another server was faster.
        Err(RedriveError::Busy { .. } | RedriveError::Ended { .. }) => {}
        Err(error) => {
            if matches!(&error, RedriveError::Store(error) if !error.is_transient()) {
                app.abandoned_redrives().add(id);
            }
            tracing::warn!(redrive = id, %error, "a redrive broke off");
        }
    }
}

async fn wait_for_cutoff(closing: &CancellationToken) {
    closing.cancelled().await;
    tokio::time::sleep(LEAVE_MAX).await;
}

#[cfg(test)]
mod tests;
