//! The registry of queues: one set, on one master. While a cluster cannot reach that master, queues
//! that this process has seen in the registry keep working, and new entries are made later.

use crate::error::strange;
use crate::keys::KeyNames;
use crate::link::{CallPatience, RedisLink};
use crate::reply;
use backstop_core::QueueName;
use backstop_core::limits::QUEUES_MAX;
use backstop_core::port::{StoreError, StoreResult};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Enters names, unless the registry would exceed a maximum. Returns the first name that has no
/// room.
const ADMIT: &str = include_str!("lua/admit.lua");
/// The wait between two tries to make pending entries.
const PAUSE: Duration = Duration::from_secs(1);

/// The part of the registry that this process knows.
pub(crate) struct QueueRegistry {
    /// The most queues there may be; configured queues do not count.
    max: AtomicUsize,
    known: Mutex<RegistryCache>,
    /// Notified when a pending entry was added.
    pending_added: Notify,
}

#[derive(Default)]
struct RegistryCache {
    /// Queues that this process saw in the registry or entered.
    seen: BTreeSet<QueueName>,
    /// Queues that still have to be entered. Empty while the registry answers.
    pending: BTreeSet<QueueName>,
}

impl Default for QueueRegistry {
    fn default() -> Self {
        Self {
            max: AtomicUsize::new(QUEUES_MAX),
            known: Mutex::default(),
            pending_added: Notify::default(),
        }
    }
}

impl QueueRegistry {
    /// Sets the maximum number of queues.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    fn known(&self) -> MutexGuard<'_, RegistryCache> {
        // A panic elsewhere cannot leave these sets inconsistent, so a poisoned lock is safe to
        // use.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all queues, sorted.
    pub(crate) async fn read(
        &self,
        link: &RedisLink,
        keys: &KeyNames,
        doing: &'static str,
    ) -> StoreResult<Vec<QueueName>> {
        self.read_within(link, keys, doing, CallPatience::Whole)
            .await
    }

    /// As [`QueueRegistry::read`]; if the registry of a cluster does not answer, the queues that
    /// this process has seen.
    pub(crate) async fn read_or_recall(
        &self,
        link: &RedisLink,
        keys: &KeyNames,
        doing: &'static str,
    ) -> StoreResult<Vec<QueueName>> {
        let read = self
            .read_within(link, keys, doing, CallPatience::Parallel)
            .await;
        let lost = |error: &StoreError| link.is_cluster() && error.is_transient();
        match read {
            Err(error) if lost(&error) && !self.known().seen.is_empty() => {
                tracing::debug!(doing, %error, "the registry does not answer; going by what was seen");
                Ok(self.known().seen.iter().cloned().collect())
            }
            read => read,
        }
    }

    async fn read_within(
        &self,
        link: &RedisLink,
        keys: &KeyNames,
        doing: &'static str,
        patience: CallPatience,
    ) -> StoreResult<Vec<QueueName>> {
        let names = link
            .ask_within(doing, redis::cmd("SMEMBERS").arg(keys.queues()), patience)
            .await?;
        let names = reply::list(names).ok_or_else(|| strange(doing))?;
        let names = names.into_iter().filter_map(reply::text);
        let mut queues: Vec<QueueName> = names
            .filter_map(|name| QueueName::new(&name).ok())
            .collect();
        queues.sort_unstable();
        self.known().see_all(&queues);
        Ok(queues)
    }

    /// Whether this process has seen all of these queues.
    pub(crate) fn has_seen(&self, queues: &[QueueName]) -> bool {
        let known = self.known();
        queues.iter().all(|queue| known.seen.contains(queue))
    }

    /// Enters the queues of a push, or refuses the push if there would be too many queues. Queues
    /// that this process has seen are not checked again. If some of those were forgotten meanwhile,
    /// the bound may be exceeded by that many.
    pub(crate) async fn admit(
        &self,
        link: &RedisLink,
        keys: &KeyNames,
        doing: &'static str,
        queues: &[QueueName],
    ) -> StoreResult<()> {
        let unseen: Vec<&QueueName> = {
            let known = self.known();
            queues
                .iter()
                .filter(|queue| !known.seen.contains(*queue))
                .collect()
        };
        if unseen.is_empty() {
            return Ok(());
        }
        let max = self.max.load(Ordering::Relaxed);
        let mut command = redis::cmd("EVAL");
        command.arg(ADMIT).arg(1).arg(keys.queues()).arg(max);
        for queue in &unseen {
            command.arg(queue.as_str());
        }
        let refused = reply::text(
            link.ask_within(doing, &command, CallPatience::Whole)
                .await?,
        );
        if let Some(queue) = refused.and_then(|name| QueueName::new(&name).ok()) {
            return Err(StoreError::too_many_queues(&queue, max));
        }
        self.known().see(unseen.into_iter());
        Ok(())
    }

    /// Removes a queue from the registry before it is forgotten.
    pub(crate) async fn leave(
        &self,
        link: &RedisLink,
        keys: &KeyNames,
        doing: &'static str,
        queue: &QueueName,
    ) -> StoreResult<()> {
        self.known().seen.remove(queue);
        let mut command = redis::cmd("SREM");
        command.arg(keys.queues()).arg(queue.as_str());
        link.ask(doing, &command).await.map(drop)
    }

    /// Enters queues now, or later if the registry does not answer and this process has seen them
    /// all.
    pub(crate) async fn enter(
        &self,
        link: &RedisLink,
        keys: &KeyNames,
        doing: &'static str,
        queues: &[&QueueName],
    ) -> StoreResult<()> {
        let may_be_later = link.is_cluster() && self.known().has_seen(queues);
        if may_be_later && self.known().add_if_pending(queues) {
            return Ok(());
        }
        let patience = if may_be_later {
            CallPatience::Parallel
        } else {
            CallPatience::Whole
        };
        match add(link, keys, doing, queues.iter().copied(), patience).await {
            Err(error) if may_be_later && error.is_transient() => {
                tracing::warn!(%error, "the registry of queues does not answer; queues are entered when it does");
                self.known().add_pending(queues);
                self.pending_added.notify_one();
                Ok(())
            }
            Ok(()) => {
                self.known().see(queues.iter().copied());
                Ok(())
            }
            failed => failed,
        }
    }

    /// Makes the pending entries; runs as long as the store exists.
    pub(crate) async fn enter_pending(&self, link: &RedisLink, keys: &KeyNames) {
        loop {
            self.pending_added.notified().await;
            loop {
                sleep(PAUSE).await;
                let pending = self.known().pending.clone();
                match add(
                    link,
                    keys,
                    "entering queues",
                    pending.iter(),
                    CallPatience::Whole,
                )
                .await
                {
                    Ok(()) if self.known().remove_pending(&pending) => break,
                    Ok(()) => {}
                    Err(error) => {
                        tracing::debug!(%error, "the registry of queues still does not answer");
                    }
                }
            }
        }
    }
}

impl RegistryCache {
    fn see<'a>(&mut self, queues: impl Iterator<Item = &'a QueueName>) {
        for queue in queues {
            if !self.seen.contains(queue) {
                self.seen.insert(queue.clone());
            }
        }
    }

    /// Keeps only these queues and the pending ones as seen.
    fn see_all(&mut self, queues: &[QueueName]) {
        self.seen = queues.iter().chain(&self.pending).cloned().collect();
    }

    fn has_seen(&self, queues: &[&QueueName]) -> bool {
        queues.iter().all(|queue| self.seen.contains(*queue))
    }

    fn add_pending(&mut self, queues: &[&QueueName]) {
        self.pending
            .extend(queues.iter().map(|queue| (*queue).clone()));
    }

    /// Makes these queues pending if others already are; returns whether it did.
    fn add_if_pending(&mut self, queues: &[&QueueName]) -> bool {
        let is_owing = !self.pending.is_empty();
        if is_owing {
            self.add_pending(queues);
        }
        is_owing
    }

    /// Removes pending queues that were entered; returns whether none is left.
    fn remove_pending(&mut self, queues: &BTreeSet<QueueName>) -> bool {
        self.pending.retain(|queue| !queues.contains(queue));
        self.pending.is_empty()
    }
}

async fn add<'a>(
    link: &RedisLink,
    keys: &KeyNames,
    doing: &'static str,
    queues: impl Iterator<Item = &'a QueueName>,
    patience: CallPatience,
) -> StoreResult<()> {
    let mut command = redis::cmd("SADD");
    command.arg(keys.queues());
    for queue in queues {
        command.arg(queue.as_str());
    }
    link.ask_within(doing, &command, patience).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_owed_until_it_is_paid() {
        let [a, b] = ["a", "b"].map(|name| QueueName::new(name).expect("a name"));
        let mut known = RegistryCache::default();
        known.see([&a].into_iter());
        assert!(known.has_seen(&[&a]) && !known.has_seen(&[&a, &b]));
        assert!(
            !known.add_if_pending(&[&a]),
            "nothing is owed: it is to be entered now"
        );
        known.add_pending(&[&a]);
        let paying = known.pending.clone();
        assert!(known.add_if_pending(&[&b]));
        assert!(!known.remove_pending(&paying), "b came in between");
        assert!(known.remove_pending(&known.pending.clone()));
    }
}
