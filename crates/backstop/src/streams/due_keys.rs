//! Looks after keys that are due: waits that are over, records that arrived elsewhere, keys of dead
//! workers.

use super::batch::{KeySource, take, work_through};
use super::metrics;
use super::running::StreamRuntime;
use backstop_core::limits::DUE_KEYS_MAX;
use backstop_core::port::{KeySelection, StoreResult, TakeRequest};
use backstop_core::stream::AlarmWatch;
use backstop_core::{Span, StreamKey, Time};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Keys taken in one look.
const LOOK_MAX: usize = 200;
/// The shortest time between two looks that found nothing.
const LOOK_AGAIN_MIN: Span = Span::millis(1);
/// Hints that come within this time are one.
const HINTS_TOGETHER: Duration = Duration::from_millis(2);
/// Keys that were due and are in hand at once. Those whose handlers hang do not keep others from
/// being looked at.
pub(super) const LOOKED_AFTER_MAX: usize = 10 * LOOK_MAX;
/// Counts are looked at so often, for metrics and alarms.
const WATCH_EVERY: Duration = Duration::from_mins(1);

const _: () = assert!(LOOK_MAX <= DUE_KEYS_MAX);

/// Takes keys that are due and works them through, until the stream is told to stop.
pub(super) async fn due_keys_loop(shared: &Arc<StreamRuntime>) {
    let mut hints = shared.store().watch();
    while let Some(permits) = permits(shared).await {
        let wait = match look(shared, permits).await {
            Ok(DueKeysLook { taken, .. }) if taken > 0 => Span::ZERO,
            Ok(DueKeysLook { next_due, .. }) => wait_until(shared, next_due),
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

/// Permits for the keys of a look, as soon as there is one; `None` once the stream is told to stop.
async fn permits(shared: &StreamRuntime) -> Option<SemaphorePermit<'_>> {
    let mut permits = tokio::select! {
        biased;
        () = shared.stop.cancelled() => return None,
        permits = shared.due_key_permits.acquire() => permits.ok()?,
    };
    for _ in 1..LOOK_MAX {
        let Ok(more) = shared.due_key_permits.try_acquire() else {
            break;
        };
        permits.merge(more);
    }
    Some(permits)
}

/// How long nothing is due: no longer than a poll, since hints may not come, and some time at
/// least, since a key whose time has come may still be under a lease that ends this very moment.
fn wait_until(shared: &StreamRuntime, next: Option<Time>) -> Span {
    let until = next.map_or(shared.settings.poll, |next| next.since(shared.now()));
    until.max(LOOK_AGAIN_MIN).min(shared.settings.poll)
}

struct DueKeysLook {
    taken: usize,
    next_due: Option<Time>,
}

/// Takes what is due and has it worked on.
async fn look(
    shared: &Arc<StreamRuntime>,
    mut permits: SemaphorePermit<'_>,
) -> StoreResult<DueKeysLook> {
    let number = shared.backstop.random().lease_number();
    let (sent_at, now) = (Instant::now(), shared.now());
    let take = TakeRequest {
        stream: shared.name.clone(),
        number,
        worker: shared.worker.clone(),
        until: now.after(shared.settings.lease),
        wanted: KeySelection::Due(permits.num_permits()),
    };
    let taken = shared.store().take(take, now).await?;
    shared.outage.note_answer();
    let names = taken.keys.iter().map(|stored| stored.key.clone());
    shared
        .leases
        .add(number, names, sent_at + shared.settings.lease.into());
    let look_result = DueKeysLook {
        taken: taken.keys.len(),
        next_due: taken.next_due,
    };
    if look_result.taken > 0 {
        // Each key gives its own back when the work on it has ended.
        if let Some(used) = permits.split(look_result.taken) {
            used.forget();
        }
        let keys = taken
            .keys
            .into_iter()
            .map(|stored| (stored, Vec::new()))
            .collect();
        let shared = Arc::clone(shared);
        shared.batches.clone().spawn(async move {
            if let Err(error) = work_through(&shared, number, keys, KeySource::DueScan).await {
                tracing::error!(%error, stream = %shared.name, "keys that were due could not be worked through");
            }
        });
    }
    let offline_keys = shared.outage.to_write_back(LOOK_MAX);
    if !offline_keys.is_empty() {
        let shared = Arc::clone(shared);
        shared.batches.clone().spawn(async move {
            take_to_work(&shared, offline_keys).await;
            shared.outage.written_back();
        });
    }
    Ok(look_result)
}

/// Takes these keys and works them through: those that went on without the store, now that it
/// answers, and those whose wait must be set anew.
pub(super) async fn take_to_work(shared: &Arc<StreamRuntime>, keys: Vec<StreamKey>) {
    let worked = async {
        let Some((number, taken)) = take(shared, KeySelection::Keys(keys)).await? else {
            return Ok(());
        };
        let keys = taken
            .into_iter()
            .map(|stored| (stored, Vec::new()))
            .collect();
        work_through(shared, number, keys, KeySource::Caller)
            .await
            .map(drop)
    };
    let worked: StoreResult<()> = worked.await;
    if let Err(error) = worked {
        tracing::error!(%error, stream = %shared.name, "keys could not be taken back to the store");
    }
}

/// Looks at the counts of the stream now and then, and says what somebody should know.
pub(super) async fn watch_loop(shared: &StreamRuntime, stop: &CancellationToken) {
    let mut watch = AlarmWatch::default();
    let mut ringing = Vec::new();
    loop {
        if let Ok(streams) = shared.store().streams().await
            && let Some(status) = streams
                .into_iter()
                .find(|status| status.name == shared.name)
        {
            metrics::held(&shared.name, status.counts.held());
            let alarms = watch.observe(status.counts);
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
