//! The shared context of every method of the store.

use crate::arrival_clock::ArrivalClock;
use crate::enqueue_batcher::EnqueueBatcher;
use crate::error::strange;
use crate::eviction_check::EvictionCheck;
use crate::hints::Notifier;
use crate::keys::KeyNames;
use crate::link::{CALL_TIME_MAX, CallPatience, RedisLink};
use crate::queue_registry::QueueRegistry;
use crate::script::{Script, ScriptCall};
use backstop_core::QueueName;
use backstop_core::port::{StoreError, StoreResult};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use redis::{Cmd, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// The most queues that are asked at once.
const QUEUES_AT_ONCE: usize = 64;
/// The most lists that are read at once: each asks every queue, and workers share the connections.
pub(crate) const LISTS_AT_ONCE: usize = 2;

/// The connection to Redis, and the state shared by all methods.
pub(crate) struct StoreContext {
    pub(crate) link: RedisLink,
    pub(crate) keys: KeyNames,
    pub(crate) notifier: Notifier,
    pub(crate) arrivals: ArrivalClock,
    pub(crate) eviction_check: EvictionCheck,
    pub(crate) batcher: EnqueueBatcher,
    pub(crate) registry: QueueRegistry,
    pub(crate) lists: Semaphore,
}

impl StoreContext {
    /// A call of a script on a queue.
    pub(crate) fn script(&self, script: &'static Script, queue: &QueueName) -> ScriptCall {
        script.on(&self.keys, queue)
    }

    /// Waits for a free slot to read a list.
    pub(crate) async fn list_turn(&self, doing: &'static str) -> StoreResult<SemaphorePermit<'_>> {
        let turn = timeout(CALL_TIME_MAX, self.lists.acquire()).await;
        let late = || StoreError::unavailable(doing, "too many lists are being read at once");
        turn.map_err(|_| late())?.map_err(|_| late())
    }

    /// The names of all queues, sorted.
    pub(crate) async fn queues(&self, doing: &'static str) -> StoreResult<Vec<QueueName>> {
        self.registry.read(&self.link, &self.keys, doing).await
    }

    /// The names of all queues. If the master with the registry of a cluster is unreachable, the
    /// names that this process knows.
    pub(crate) async fn queues_known(&self, doing: &'static str) -> StoreResult<Vec<QueueName>> {
        self.registry
            .read_or_recall(&self.link, &self.keys, doing)
            .await
    }

    /// Enters queues in the registry. Every enqueue does this, because a crash may set the registry
    /// back, and a queue missing in it would be hidden.
    pub(crate) async fn register(
        &self,
        doing: &'static str,
        queues: &[&QueueName],
    ) -> StoreResult<()> {
        self.registry
            .enter(&self.link, &self.keys, doing, queues)
            .await
    }

    /// Runs one script per queue in parallel; replies in the order of the calls.
    pub(crate) async fn run_each(
        &self,
        doing: &'static str,
        calls: Vec<ScriptCall>,
    ) -> StoreResult<Vec<Value>> {
        self.run_each_within(doing, calls, CallPatience::Whole)
            .await
    }

    /// As [`StoreContext::run_each`], with a limit on the wait for replies.
    pub(crate) async fn run_each_within(
        &self,
        doing: &'static str,
        calls: Vec<ScriptCall>,
        patience: CallPatience,
    ) -> StoreResult<Vec<Value>> {
        let runs = calls
            .into_iter()
            .map(|call| async move { self.link.run_within(doing, &call, patience).await });
        stream::iter(runs)
            .buffered(QUEUES_AT_ONCE)
            .try_collect()
            .await
    }

    /// Sends these commands in parallel; replies in their order.
    pub(crate) async fn ask_each(
        &self,
        doing: &'static str,
        commands: Vec<Cmd>,
    ) -> StoreResult<Vec<Value>> {
        let asks = commands
            .into_iter()
            .map(|command| async move { self.link.ask(doing, &command).await });
        stream::iter(asks)
            .buffered(QUEUES_AT_ONCE)
            .try_collect()
            .await
    }

    /// As [`StoreContext::run_each`], but an unreachable part of a cluster does not stop the rest.
    /// `None` for a queue that did not reply; an error if none replied.
    pub(crate) async fn run_apart(
        &self,
        doing: &'static str,
        calls: Vec<ScriptCall>,
    ) -> StoreResult<Vec<Option<Value>>> {
        let patience = patience(calls.len());
        self.run_apart_within(doing, calls, patience).await
    }

    /// As [`StoreContext::run_apart`], with a limit on the wait for replies.
    pub(crate) async fn run_apart_within(
        &self,
        doing: &'static str,
        calls: Vec<ScriptCall>,
        patience: CallPatience,
    ) -> StoreResult<Vec<Option<Value>>> {
        let runs = calls
            .into_iter()
            .map(|call| async move { self.link.run_within(doing, &call, patience).await });
        apart(
            doing,
            stream::iter(runs).buffered(QUEUES_AT_ONCE).collect().await,
        )
    }

    /// As [`StoreContext::ask_each`], but an unreachable part of a cluster does not stop the rest.
    pub(crate) async fn ask_apart(
        &self,
        doing: &'static str,
        commands: Vec<Cmd>,
    ) -> StoreResult<Vec<Option<Value>>> {
        let patience = patience(commands.len());
        let asks = commands
            .into_iter()
            .map(|command| async move { self.link.ask_within(doing, &command, patience).await });
        apart(
            doing,
            stream::iter(asks).buffered(QUEUES_AT_ONCE).collect().await,
        )
    }
}

/// A call to a single queue waits in full; calls to several have a shorter timeout.
pub(crate) fn patience(count: usize) -> CallPatience {
    if count > 1 {
        CallPatience::Parallel
    } else {
        CallPatience::Whole
    }
}

/// Replaces the errors of unreachable parts by `None`. A permanent error is returned.
fn apart(doing: &'static str, answers: Vec<StoreResult<Value>>) -> StoreResult<Vec<Option<Value>>> {
    let (mut there, mut failure) = (Vec::with_capacity(answers.len()), None);
    for answer in answers {
        match answer {
            Ok(answer) => there.push(Some(answer)),
            Err(error) if error.is_transient() => {
                there.push(None);
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match failure {
        Some(error) if there.iter().all(Option::is_none) => Err(error),
        Some(error) => {
            tracing::debug!(doing, %error, "a part of the cluster does not answer; the rest goes on");
            Ok(there)
        }
        None => Ok(there),
    }
}

/// The decoded reply, or an error that it cannot be read.
pub(crate) fn readable<T>(doing: &'static str, read: Option<T>) -> Result<T, StoreError> {
    read.ok_or_else(|| strange(doing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_gone_is_left_out_and_what_does_not_pass_is_said() {
        let gone = || Err(StoreError::unavailable("testing", "gone"));
        let corrupt = || Err(StoreError::corrupt("testing", "corrupt"));
        assert_eq!(
            apart("testing", vec![gone(), Ok(Value::Nil)]),
            Ok(vec![None, Some(Value::Nil)])
        );
        assert_eq!(apart("testing", Vec::new()), Ok(Vec::new()));
        assert!(apart("testing", vec![gone(), gone()]).is_err_and(|error| error.is_transient()));
        assert!(
            apart("testing", vec![Ok(Value::Nil), corrupt()])
                .is_err_and(|error| !error.is_transient())
        );
    }
}
