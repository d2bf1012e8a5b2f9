//! The registry of queues: one set, on one master. Where a cluster has lost that master for now, a
//! queue that this process has seen in it goes on, and what is to be entered is entered later.

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

/// Enters names, unless there would be more than so many. Answers the first name that there is no
/// room for.
const ADMIT: &str = include_str!("lua/admit.lua");
/// Between two tries to enter what is owed.
const PAUSE: Duration = Duration::from_secs(1);

/// What this process knows of the registry.
pub(crate) struct QueueRegistry {
    /// How many queues there may be, configured ones aside.
    max: AtomicUsize,
    known: Mutex<RegistryCache>,
    /// Rings when something is to be entered later.
    pending_added: Notify,
}

#[derive(Default)]
struct RegistryCache {
    /// Queues that were seen there, or entered.
    seen: BTreeSet<QueueName>,
    /// Queues that may not be there. While there are any, the registry does not answer.
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
    /// Sets how many queues there may be.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    fn known(&self) -> MutexGuard<'_, RegistryCache> {
        // Sets are whole between any two of their changes.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all queues, in order.
    pub(crate) async fn read(
        &self,
        link: &RedisLink,
        keys: &KeyNames,
        doing: &'static str,
    ) -> StoreResult<Vec<QueueName>> {
        self.read_within(link, keys, doing, CallPatience::Whole)
            .await
    }

    /// The same; or, of a cluster whose registry does not answer, the queues that this process has
    /// seen.
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

    /// Whether this process has seen all of these.
    pub(crate) fn has_seen(&self, queues: &[QueueName]) -> bool {
        let known = self.known();
        queues.iter().all(|queue| known.seen.contains(queue))
    }

    /// Enters the queues that a push names, or refuses the push if there would be too many. Queues
    /// that this process has seen are not asked about again: those that were forgotten meanwhile
    /// may exceed the bound by as many.
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

    /// Takes a queue that is about to be forgotten out of the registry.
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

    /// Enters queues: at once, or later where it may be later.
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

    /// Enters what is owed, as long as the store is there.
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

    /// Knows these and what is owed, and no others.
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

    /// Whether something is owed already: then this is, too.
    fn add_if_pending(&mut self, queues: &[&QueueName]) -> bool {
        let is_owing = !self.pending.is_empty();
        if is_owing {
            self.add_pending(queues);
        }
        is_owing
    }

    /// Whether nothing is owed any more once this is paid.
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
