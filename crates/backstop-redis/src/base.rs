//! What every method of the store works with.

use crate::arrivals::Arrivals;
use crate::error::strange;
use crate::group::Group;
use crate::guard::Guard;
use crate::hints::Bell;
use crate::keys::Keys;
use crate::link::Link;
use crate::reply;
use crate::script::{Script, ScriptCall};
use backstop_core::QueueName;
use backstop_core::port::{Answer, StoreError};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use redis::{Cmd, Value};

/// Queues that are asked at once.
const QUEUES_AT_ONCE: usize = 64;

/// The way to Redis, and what is known about it.
pub(crate) struct Base {
    pub(crate) link: Link,
    pub(crate) keys: Keys,
    pub(crate) bell: Bell,
    pub(crate) arrivals: Arrivals,
    pub(crate) guard: Guard,
    pub(crate) group: Group,
}

impl Base {
    /// A call of a script on a queue.
    pub(crate) fn script(&self, script: &'static Script, queue: &QueueName) -> ScriptCall {
        script.on(&self.keys, queue)
    }

    /// The names of all queues, in order.
    pub(crate) async fn queues(&self, doing: &'static str) -> Answer<Vec<QueueName>> {
        let names = self.link.ask(doing, redis::cmd("SMEMBERS").arg(self.keys.queues())).await?;
        let names = reply::list(names).ok_or_else(|| strange(doing))?;
        let names = names.into_iter().filter_map(reply::text);
        let mut queues: Vec<QueueName> = names.filter_map(|name| QueueName::new(&name).ok()).collect();
        queues.sort_unstable();
        Ok(queues)
    }

    /// Makes queues known. Said with every enqueue: a registry that a crash set back would hide a queue.
    pub(crate) async fn register(&self, doing: &'static str, queues: &[&QueueName]) -> Answer<()> {
        let mut command = redis::cmd("SADD");
        command.arg(self.keys.queues());
        for queue in queues {
            command.arg(queue.as_str());
        }
        self.link.ask(doing, &command).await.map(drop)
    }

    /// One script call on each of these queues, side by side; answers in their order.
    pub(crate) async fn run_each(&self, doing: &'static str, calls: Vec<ScriptCall>) -> Answer<Vec<Value>> {
        let runs = calls.into_iter().map(|call| async move { self.link.run(doing, &call).await });
        stream::iter(runs).buffered(QUEUES_AT_ONCE).try_collect().await
    }

    /// One command each, side by side; answers in their order.
    pub(crate) async fn ask_each(&self, doing: &'static str, commands: Vec<Cmd>) -> Answer<Vec<Value>> {
        let asks = commands.into_iter().map(|command| async move { self.link.ask(doing, &command).await });
        stream::iter(asks).buffered(QUEUES_AT_ONCE).try_collect().await
    }
}

/// What an answer says, or that it cannot be read.
pub(crate) fn readable<T>(doing: &'static str, read: Option<T>) -> Result<T, StoreError> {
    read.ok_or_else(|| strange(doing))
}
