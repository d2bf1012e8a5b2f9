//! Looks after keys that are due: waits that are over, records that arrived elsewhere, keys of dead workers.

use super::batch::work_through;
use super::metrics;
use super::running::Shared;
use backstop_core::limits::DUE_KEYS_MAX;
use backstop_core::port::{Answer, Take, Wanted};
use backstop_core::stream::Watch;
use backstop_core::{Span, StreamKey, Time};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Keys taken in one look.
const LOOK_MAX: usize = 200;
/// The shortest time between two looks that found nothing.
const LOOK_AGAIN_MIN: Span = Span::millis(1);
/// Hints that come within this time are one.
const HINTS_TOGETHER: Duration = Duration::from_millis(2);
/// Looks whose keys are still worked on.
const LOOKS_UNDER_WAY_MAX: usize = 16;
/// Counts are looked at so often, for metrics and alarms.
const WATCH_EVERY: Duration = Duration::from_mins(1);

const _: () = assert!(LOOK_MAX <= DUE_KEYS_MAX);

/// Takes keys that are due and works them through, until the stream is told to stop.
pub(super) async fn drain_loop(shared: &Arc<Shared>) {
    let mut hints = shared.store().watch();
    let under_way = Arc::new(Semaphore::new(LOOKS_UNDER_WAY_MAX));
    while !shared.stop.is_cancelled() {
        let Ok(room) = Arc::clone(&under_way).acquire_owned().await else { return };
        let wait = match look(shared, room).await {
            Ok(Looked { taken, .. }) if taken > 0 => Span::ZERO,
            Ok(Looked { next_due, .. }) => wait_until(shared, next_due),
            Err(error) => {
                tracing::warn!(%error, stream = %shared.name, "keys that are due could not be taken");
                shared.settings.poll
            }
        };
        if wait.is_zero() {
            continue;
        }
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = hints.next() => {
                // Hints are about anything in the store; those of a moment are one.
                tokio::time::sleep(HINTS_TOGETHER).await;
            }
            () = tokio::time::sleep(wait.into()) => {}
        }
    }
}

/// How long nothing is due: no longer than a poll, since hints may not come, and some time at least, since a key whose time has
/// come may still be under a lease that ends this very moment.
fn wait_until(shared: &Shared, next: Option<Time>) -> Span {
    let until = next.map_or(shared.settings.poll, |next| next.since(shared.now()));
    until.max(LOOK_AGAIN_MIN).min(shared.settings.poll)
}

/// What a look showed.
struct Looked {
    taken: usize,
    next_due: Option<Time>,
}

/// Takes what is due and has it worked on.
async fn look(shared: &Arc<Shared>, room: OwnedSemaphorePermit) -> Answer<Looked> {
    let number = shared.backstop.random().lease_number();
    let (asked, now) = (Instant::now(), shared.now());
    let take = Take {
        stream: shared.name.clone(),
        number,
        worker: shared.worker.clone(),
        until: now.after(shared.settings.lease),
        wanted: Wanted::Due(LOOK_MAX),
    };
    let taken = shared.store().take(take, now).await?;
    shared.adrift.answered();
    let names = taken.keys.iter().map(|stored| stored.key.clone());
    shared.leases.add(number, names, asked + shared.settings.lease.into());
    let looked = Looked { taken: taken.keys.len(), next_due: taken.next_due };
    if looked.taken > 0 {
        let keys = taken.keys.into_iter().map(|stored| (stored, Vec::new())).collect();
        let shared = Arc::clone(shared);
        shared.batches.clone().spawn(async move {
            let _room = room;
            if let Err(error) = work_through(&shared, number, keys).await {
                tracing::error!(%error, stream = %shared.name, "keys that were due could not be worked through");
            }
        });
    }
    write_back(shared).await;
    Ok(looked)
}

/// Keys that went on without the store are written now that it answers.
async fn write_back(shared: &Arc<Shared>) {
    let adrift: Vec<StreamKey> = shared.adrift.keys(LOOK_MAX);
    if adrift.is_empty() {
        return;
    }
    match super::batch::take(shared, Wanted::Keys(adrift)).await {
        Ok(Some((number, taken))) => {
            let keys = taken.into_iter().map(|stored| (stored, Vec::new())).collect();
            if let Err(error) = work_through(shared, number, keys).await {
                tracing::error!(%error, stream = %shared.name, "keys could not be written back");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, stream = %shared.name, "keys could not be written back"),
    }
}

/// Looks at the counts of the stream now and then, and says what somebody should know.
pub(super) async fn watch_loop(shared: &Shared, stop: &CancellationToken) {
    let mut watch = Watch::default();
    let mut ringing = Vec::new();
    loop {
        if let Ok(streams) = shared.store().streams().await
            && let Some(status) = streams.into_iter().find(|status| status.name == shared.name)
        {
            metrics::held(&shared.name, status.counts.held());
            let alarms = watch.look(status.counts);
            for alarm in alarms.iter().filter(|alarm| !ringing.contains(*alarm)) {
                tracing::warn!(stream = %shared.name, alarm = alarm.as_str(), "{alarm}");
            }
            metrics::alarms(&shared.name, &alarms);
            ringing = alarms;
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(WATCH_EVERY) => {}
        }
    }
}
