//! The keys this process has, kept alive while they are worked on.

use super::running::Shared;
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::KeyLease;
use backstop_core::{LeaseNumber, StreamKey};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Keys by the take that brought them.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<LeaseNumber, Taken>>);

struct Taken {
    keys: HashMap<StreamKey, CancellationToken>,
    /// Until then nobody else can have them, by this process's own monotonic clock.
    certain_until: Instant,
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseNumber, Taken>> {
        // A map is whole between any two of its changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(
        &self,
        number: LeaseNumber,
        keys: impl Iterator<Item = StreamKey>,
        certain_until: Instant,
    ) {
        let keys: HashMap<_, _> = keys.map(|key| (key, CancellationToken::new())).collect();
        if !keys.is_empty() {
            self.lock().insert(number, Taken { keys, certain_until });
        }
    }

    /// Cancelled when the lease is lost.
    pub(super) fn token(&self, number: LeaseNumber, key: &StreamKey) -> CancellationToken {
        let found = self.lock().get(&number).and_then(|taken| taken.keys.get(key).cloned());
        found.unwrap_or_default()
    }

    pub(super) fn remove(&self, number: LeaseNumber, key: &StreamKey) {
        let mut takes = self.lock();
        let Some(taken) = takes.get_mut(&number) else { return };
        taken.keys.remove(key);
        if taken.keys.is_empty() {
            takes.remove(&number);
        }
    }

    /// Those that end within `margin`.
    fn ending(&self, margin: Duration) -> Vec<(LeaseNumber, StreamKey)> {
        let soon = Instant::now() + margin;
        let takes = self.lock();
        let ending = takes.iter().filter(|(_, taken)| taken.certain_until <= soon);
        ending.flat_map(|(number, taken)| taken.keys.keys().map(|key| (*number, key.clone()))).collect()
    }

    fn extend(&self, numbers: impl Iterator<Item = LeaseNumber>, certain_until: Instant) {
        let mut takes = self.lock();
        for number in numbers {
            if let Some(taken) = takes.get_mut(&number) {
                taken.certain_until = taken.certain_until.max(certain_until);
            }
        }
    }

    /// The work on a key is called off.
    fn lose(&self, number: LeaseNumber, key: &StreamKey) {
        let mut takes = self.lock();
        let Some(taken) = takes.get_mut(&number) else { return };
        if let Some(token) = taken.keys.remove(key) {
            token.cancel();
        }
        if taken.keys.is_empty() {
            takes.remove(&number);
        }
    }

    /// Whether nobody else can have this key for as long as it takes to begin a call.
    pub(super) fn is_certain(&self, number: LeaseNumber, key: &StreamKey, margin: Duration) -> bool {
        let takes = self.lock();
        let taken = takes.get(&number).filter(|taken| taken.keys.contains_key(key));
        taken.is_some_and(|taken| taken.certain_until > Instant::now() + margin)
    }
}

/// How long before the end of a lease the work on its key is called off: what runs on must have stopped before somebody
/// else can begin.
pub(super) fn margin(shared: &Shared) -> Duration {
    Duration::from(shared.settings.lease) / 10
}

/// Keeps leases alive until told to stop; calls off work on keys that are lost, or may be.
pub(super) async fn keep_loop(shared: &Shared, stop: &CancellationToken) {
    tokio::join!(renew_loop(shared, stop), fence_loop(shared, stop));
}

/// Beside the renewals: one that hangs must not delay this.
async fn fence_loop(shared: &Shared, stop: &CancellationToken) {
    let margin = margin(shared);
    loop {
        for (number, key) in shared.leases.ending(margin) {
            tracing::warn!(stream = %shared.name, %key, "the key's lease could not be kept; the work on it is called off");
            shared.leases.lose(number, &key);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(margin / 4) => {}
        }
    }
}

async fn renew_loop(shared: &Shared, stop: &CancellationToken) {
    let lease: Duration = shared.settings.lease.into();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(lease / 10) => {}
        }
        // Several tries fit between the first one and the end.
        let ending = shared.leases.ending(lease * 2 / 3);
        for part in ending.chunks(STREAM_KEYS_MAX) {
            let _ = tokio::time::timeout(lease / 5, keep(shared, part)).await;
        }
    }
}

async fn keep(shared: &Shared, part: &[(LeaseNumber, StreamKey)]) {
    let lease = |(number, key): &(LeaseNumber, StreamKey)| KeyLease {
        stream: shared.name.clone(),
        key: key.clone(),
        number: *number,
    };
    let (asked, now) = (Instant::now(), shared.now());
    let until = now.after(shared.settings.lease);
    match shared.store().keep(part.iter().map(lease).collect(), until, now).await {
        Ok(lost) => {
            for lease in lost {
                shared.leases.lose(lease.number, &lease.key);
            }
            let numbers = part.iter().map(|(number, _)| *number);
            shared.leases.extend(numbers, asked + shared.settings.lease.into());
        }
        Err(error) => tracing::warn!(%error, stream = %shared.name, "keys not kept"),
    }
}
