//! The keys this process has, kept alive while they are worked on.

use super::running::StreamRuntime;
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
pub(super) struct KeyLeases(Mutex<HashMap<LeaseNumber, HashMap<StreamKey, HeldKeyLease>>>);

struct HeldKeyLease {
    /// Cancelled when the lease is lost.
    lost: CancellationToken,
    /// Until then nobody else can have the key, by this process's own monotonic clock.
    certain_until: Instant,
}

impl KeyLeases {
    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseNumber, HashMap<StreamKey, HeldKeyLease>>> {
        // A map is whole between any two of its changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(
        &self,
        number: LeaseNumber,
        keys: impl Iterator<Item = StreamKey>,
        certain_until: Instant,
    ) {
        let lease = |key| {
            (
                key,
                HeldKeyLease {
                    lost: CancellationToken::new(),
                    certain_until,
                },
            )
        };
        let keys: HashMap<_, _> = keys.map(lease).collect();
        if !keys.is_empty() {
            self.lock().insert(number, keys);
        }
    }

    pub(super) fn remove(&self, number: LeaseNumber, key: &StreamKey) {
        self.take_out(number, key);
    }

    fn take_out(&self, number: LeaseNumber, key: &StreamKey) -> Option<HeldKeyLease> {
        let mut takes = self.lock();
        let keys = takes.get_mut(&number)?;
        let lease = keys.remove(key);
        if keys.is_empty() {
            takes.remove(&number);
        }
        lease
    }

    /// Whether a key is in hand here.
    pub(super) fn has(&self, key: &StreamKey) -> bool {
        self.lock().values().any(|keys| keys.contains_key(key))
    }

    /// Those that end within `margin`.
    fn expiring(&self, margin: Duration) -> Vec<(LeaseNumber, StreamKey)> {
        let soon = Instant::now() + margin;
        let takes = self.lock();
        let all = takes
            .iter()
            .flat_map(|(number, keys)| keys.iter().map(|(key, lease)| (*number, key, lease)));
        let expiring = all.filter(|(_, _, lease)| lease.certain_until <= soon);
        expiring
            .map(|(number, key, _)| (number, key.clone()))
            .collect()
    }

    fn extend(&self, leases: &[(LeaseNumber, StreamKey)], certain_until: Instant) {
        let mut takes = self.lock();
        for (number, key) in leases {
            if let Some(lease) = takes.get_mut(number).and_then(|keys| keys.get_mut(key)) {
                lease.certain_until = lease.certain_until.max(certain_until);
            }
        }
    }

    /// The work on a key is called off; `false` if it was done with already.
    fn lose(&self, number: LeaseNumber, key: &StreamKey) -> bool {
        let lease = self.take_out(number, key);
        lease.inspect(|lease| lease.lost.cancel()).is_some()
    }

    /// Whether nobody else can have this key for as long as it takes to begin a call.
    fn is_certain(&self, number: LeaseNumber, key: &StreamKey, margin: Duration) -> bool {
        let takes = self.lock();
        let lease = takes.get(&number).and_then(|keys| keys.get(key));
        lease.is_some_and(|lease| lease.certain_until > Instant::now() + margin)
    }
}

/// The right to call the handler for a key.
pub(super) struct KeyOwnership<'a> {
    /// `None` without the store: nothing else protects the key then.
    lease: Option<(&'a StreamRuntime, LeaseNumber, StreamKey)>,
    lost: CancellationToken,
}

impl<'a> KeyOwnership<'a> {
    pub(super) fn with_lease(
        shared: &'a StreamRuntime,
        number: LeaseNumber,
        key: StreamKey,
    ) -> Self {
        let lease = shared
            .leases
            .lock()
            .get(&number)
            .and_then(|keys| keys.get(&key).map(|lease| lease.lost.clone()));
        Self {
            lease: Some((shared, number, key)),
            lost: lease.unwrap_or_default(),
        }
    }

    pub(super) fn without_store() -> Self {
        Self {
            lease: None,
            lost: CancellationToken::new(),
        }
    }

    /// Whether nobody else can have the key for as long as it takes to begin a call.
    pub(super) fn is_certain(&self) -> bool {
        let certain = |(shared, number, key): &(&StreamRuntime, LeaseNumber, StreamKey)| {
            shared.leases.is_certain(*number, key, margin(shared))
        };
        self.lease.as_ref().is_none_or(certain)
    }

    /// Waits until the lease is lost.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

/// How long before the end of a lease the work on its key is called off: what runs on must have
/// stopped before somebody else can begin.
fn margin(shared: &StreamRuntime) -> Duration {
    Duration::from(shared.settings.lease) / 10
}

/// Keeps leases alive until told to stop; calls off work on keys that are lost, or may be.
pub(super) async fn lease_loop(shared: &StreamRuntime, stop: &CancellationToken) {
    tokio::join!(renew_loop(shared, stop), fence_loop(shared, stop));
}

/// Beside the renewals: one that hangs must not delay this.
async fn fence_loop(shared: &StreamRuntime, stop: &CancellationToken) {
    let margin = margin(shared);
    loop {
        for (number, key) in shared.leases.expiring(margin) {
            if shared.leases.lose(number, &key) {
                tracing::warn!(stream = %shared.name, %key, "the key's lease could not be kept; the work on it is called off");
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(margin / 4) => {}
        }
    }
}

async fn renew_loop(shared: &StreamRuntime, stop: &CancellationToken) {
    let lease: Duration = shared.settings.lease.into();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(lease / 10) => {}
        }
        // Several tries fit between the first one and the end.
        let expiring = shared.leases.expiring(lease * 2 / 3);
        for part in expiring.chunks(STREAM_KEYS_MAX) {
            let _ = tokio::time::timeout(lease / 5, renew_leases(shared, part)).await;
        }
    }
}

async fn renew_leases(shared: &StreamRuntime, part: &[(LeaseNumber, StreamKey)]) {
    let lease = |(number, key): &(LeaseNumber, StreamKey)| KeyLease {
        stream: shared.name.clone(),
        key: key.clone(),
        number: *number,
    };
    let (sent_at, now) = (Instant::now(), shared.now());
    let until = now.after(shared.settings.lease);
    match shared
        .store()
        .keep(part.iter().map(lease).collect(), until, now)
        .await
    {
        Ok(lost) => {
            for lease in lost {
                // One that was given back while this was asked is gone, too, and no loss.
                if shared.leases.lose(lease.number, &lease.key) {
                    tracing::info!(stream = %shared.name, key = %lease.key, "the key's lease is gone; work on it is called off");
                }
            }
            shared
                .leases
                .extend(part, sent_at + shared.settings.lease.into());
        }
        Err(error) => tracing::warn!(%error, stream = %shared.name, "keys not kept"),
    }
}
