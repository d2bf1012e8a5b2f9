//! The registry of queues: one set, on one master. Where a cluster has lost that master for now, a
//! queue that this process has seen in it goes on, and what is to be entered is entered later.

use crate::error::strange;
use crate::keys::Keys;
use crate::link::{Link, Patience};
use crate::reply;
use backstop_core::QueueName;
use backstop_core::limits::QUEUES_MAX;
use backstop_core::port::{Answer, StoreError};
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
pub(crate) struct Registry {
    /// How many queues there may be, configured ones aside.
    max: AtomicUsize,
    known: Mutex<Known>,
    /// Rings when something is to be entered later.
    owes: Notify,
}

#[derive(Default)]
struct Known {
    /// Queues that were seen there, or entered.
    seen: BTreeSet<QueueName>,
    /// Queues that may not be there. While there are any, the registry does not answer.
    owed: BTreeSet<QueueName>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            max: AtomicUsize::new(QUEUES_MAX),
            known: Mutex::default(),
            owes: Notify::default(),
        }
    }
}

impl Registry {
    /// Sets how many queues there may be.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Sets are whole between any two of their changes.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all queues, in order.
    pub(crate) async fn read(
        &self,
        link: &Link,
        keys: &Keys,
        doing: &'static str,
    ) -> Answer<Vec<QueueName>> {
        self.read_within(link, keys, doing, Patience::Whole).await
    }

    /// The same; or, of a cluster whose registry does not answer, the queues that this process has
    /// seen.
    pub(crate) async fn read_or_recall(
        &self,
        link: &Link,
        keys: &Keys,
        doing: &'static str,
    ) -> Answer<Vec<QueueName>> {
        let read = self.read_within(link, keys, doing, Patience::Beside).await;
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
        link: &Link,
        keys: &Keys,
        doing: &'static str,
        patience: Patience,
    ) -> Answer<Vec<QueueName>> {
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
        link: &Link,
        keys: &Keys,
        doing: &'static str,
        queues: &[QueueName],
    ) -> Answer<()> {
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
        let refused = reply::text(link.ask_within(doing, &command, Patience::Whole).await?);
        if let Some(queue) = refused.and_then(|name| QueueName::new(&name).ok()) {
            return Err(StoreError::too_many_queues(&queue, max));
        }
        self.known().see(unseen.into_iter());
        Ok(())
    }

    /// Takes a queue that is about to be forgotten out of the registry.
    pub(crate) async fn leave(
        &self,
        link: &Link,
        keys: &Keys,
        doing: &'static str,
        queue: &QueueName,
    ) -> Answer<()> {
        self.known().seen.remove(queue);
        let mut command = redis::cmd("SREM");
        command.arg(keys.queues()).arg(queue.as_str());
        link.ask(doing, &command).await.map(drop)
    }

    /// Enters queues: at once, or later where it may be later.
    pub(crate) async fn enter(
        &self,
        link: &Link,
        keys: &Keys,
        doing: &'static str,
        queues: &[&QueueName],
    ) -> Answer<()> {
        let may_be_later = link.is_cluster() && self.known().has_seen(queues);
        if may_be_later && self.known().owe_more(queues) {
            return Ok(());
        }
        let patience = if may_be_later {
            Patience::Beside
        } else {
            Patience::Whole
        };
        match add(link, keys, doing, queues.iter().copied(), patience).await {
            Err(error) if may_be_later && error.is_transient() => {
                tracing::warn!(%error, "the registry of queues does not answer; queues are entered when it does");
                self.known().owe(queues);
                self.owes.notify_one();
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
    pub(crate) async fn pay(&self, link: &Link, keys: &Keys) {
        loop {
            self.owes.notified().await;
            loop {
                sleep(PAUSE).await;
                let owed = self.known().owed.clone();
                match add(link, keys, "entering queues", owed.iter(), Patience::Whole).await {
                    Ok(()) if self.known().paid(&owed) => break,
                    Ok(()) => {}
                    Err(error) => {
                        tracing::debug!(%error, "the registry of queues still does not answer");
                    }
                }
            }
        }
    }
}

impl Known {
    fn see<'a>(&mut self, queues: impl Iterator<Item = &'a QueueName>) {
        for queue in queues {
            if !self.seen.contains(queue) {
                self.seen.insert(queue.clone());
            }
        }
    }

    /// Knows these and what is owed, and no others.
    fn see_all(&mut self, queues: &[QueueName]) {
        self.seen = queues.iter().chain(&self.owed).cloned().collect();
    }

    fn has_seen(&self, queues: &[&QueueName]) -> bool {
        queues.iter().all(|queue| self.seen.contains(*queue))
    }

    fn owe(&mut self, queues: &[&QueueName]) {
        self.owed
            .extend(queues.iter().map(|queue| (*queue).clone()));
    }

    /// Whether something is owed already: then this is, too.
    fn owe_more(&mut self, queues: &[&QueueName]) -> bool {
        let is_owing = !self.owed.is_empty();
        if is_owing {
            self.owe(queues);
        }
        is_owing
    }

    /// Whether nothing is owed any more once this is paid.
    fn paid(&mut self, queues: &BTreeSet<QueueName>) -> bool {
        self.owed.retain(|queue| !queues.contains(queue));
        self.owed.is_empty()
    }
}

async fn add<'a>(
    link: &Link,
    keys: &Keys,
    doing: &'static str,
    queues: impl Iterator<Item = &'a QueueName>,
    patience: Patience,
) -> Answer<()> {
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
        let mut known = Known::default();
        known.see([&a].into_iter());
        assert!(known.has_seen(&[&a]) && !known.has_seen(&[&a, &b]));
        assert!(
            !known.owe_more(&[&a]),
            "nothing is owed: it is to be entered now"
        );
        known.owe(&[&a]);
        let paying = known.owed.clone();
        assert!(known.owe_more(&[&b]));
        assert!(!known.paid(&paying), "b came in between");
        assert!(known.paid(&known.owed.clone()));
    }
}
