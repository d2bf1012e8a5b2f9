//! Running a sweep now.

use super::{link, named};
use crate::pages::{FlashMessage, PageFailure, PageView, PostedForm, text};
use axum::extract::Path;
use axum::response::Response;
use backstop::sweeps::{SweepError, SweepReport};
use std::time::Duration;

/// How long a page waits for a run. It goes on without the page, and is entered among the last
/// runs.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(
    view: PageView,
    Path(name): Path<String>,
    posted: PostedForm,
) -> Result<Response, PageFailure> {
    let sweep = named(&view, &name)?;
    let (changes, now, address) = (view.changes(&posted)?, view.now(), link(&view, &sweep));
    let run = tokio::spawn(async move { changes.sweep(&sweep, now).await });
    let note = match tokio::time::timeout(PATIENCE, run).await {
        Err(_) => FlashMessage::done(format!(
            "Sweep {name} is running; what it finds appears among its last runs."
        )),
        Ok(Ok(Ok(report))) => FlashMessage::done(describe_report(&name, &report)),
        Ok(Ok(Err(SweepError::Store(error)))) => return Err(view.store_failed(error)),
        Ok(Ok(Err(error))) => FlashMessage::refused(format!(
            "Sweep {name} failed, and nothing was enqueued: {error}"
        )),
        Ok(Err(_)) => FlashMessage::refused(format!(
            "Sweep {name} was cut off; the server's log says why."
        )),
    };
    Ok(note.redirect(view.app().base(), &address))
}

fn describe_report(name: &str, report: &SweepReport) -> String {
    let count = |rows: usize| text::count(rows as u64);
    let more = if report.is_cut {
        "; there may be more"
    } else {
        ""
    };
    format!(
        "Sweep {name}: {} found, {} alive, {} dead, {} enqueued, {} given up{more}.",
        count(report.found.len()),
        count(report.alive.len()),
        count(report.dead.len()),
        count(report.enqueued.len()),
        count(report.buried.len()),
    )
}
