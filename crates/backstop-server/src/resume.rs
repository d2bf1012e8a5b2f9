//! Goes on with what a server that is gone left unfinished: redrives and bulk actions. Safe on
//! every server of a store at once: each is taken by a change of its cell, which only the first one
//! makes.

use crate::{App, bulk, redrives};
use backstop::core::port::StoreResult;
use std::time::Duration;

/// How often a server looks.
const EVERY: Duration = Duration::from_secs(5);

/// Looks until the server closes; the first time at once.
pub(crate) async fn run_resume_loop(app: App) {
    loop {
        if let Err(error) = resume_once(&app).await {
            tracing::warn!(%error, "what other servers left unfinished could not be looked for; it is looked for again");
        }
        tokio::select! {
            () = app.closing().cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Looks once, and goes on with what nobody has in the background.
pub async fn resume_once(app: &App) -> StoreResult<()> {
    let (redrives, bulk) = (redrives::resume(app).await, bulk::resume(app).await);
    // Either is looked for whatever became of the other.
    redrives.and(bulk)
}
