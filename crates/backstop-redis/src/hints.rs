//! Hints that there may be jobs to claim or to promote. They reach this process at once and other
//! processes over a pub/sub channel. A hint may get lost, so workers also poll.

use crate::context::StoreContext;
use async_trait::async_trait;
use backstop_core::port::HintSubscription;
use futures_util::StreamExt;
use redis::aio::PubSub;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// After publishing a hint, later hints are gathered for this long.
const GATHER: Duration = Duration::from_millis(2);
/// The timeout for opening a subscription.
const SUBSCRIBE_TIME_MAX: Duration = Duration::from_secs(5);
/// A subscription that was silent for this long is pinged. Without the ping, a subscription whose
/// server is gone would wait for ever.
const ASK_EVERY: Duration = Duration::from_secs(3);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(1);

/// Delivers hints to all subscribers.
pub(crate) struct Notifier {
    hint_count: watch::Sender<u64>,
    publish_signal: Notify,
    /// The sender id in published hints: a process ignores its own.
    own_id: String,
}

impl Notifier {
    /// A notifier that has no subscribers yet.
    pub(crate) fn new() -> Self {
        let own_id = format!("{:016x}", rand::random::<u64>());
        Self {
            hint_count: watch::Sender::new(0),
            publish_signal: Notify::new(),
            own_id,
        }
    }

    pub(crate) fn notify(&self) {
        self.notify_local();
        self.publish_signal.notify_one();
    }

    fn notify_local(&self) {
        self.hint_count.send_modify(|hint_count| *hint_count += 1);
    }

    /// Subscribes to hints from now on.
    pub(crate) fn subscribe(&self) -> Box<dyn HintSubscription> {
        Box::new(HintReceiver(self.hint_count.subscribe()))
    }
}

struct HintReceiver(watch::Receiver<u64>);

#[async_trait]
impl HintSubscription for HintReceiver {
    async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The store was dropped, so no hint will come.
            std::future::pending::<()>().await;
        }
    }
}

/// Publishes hints to other processes; runs as long as the store exists.
pub(crate) async fn publish_hints(base: Arc<StoreContext>) {
    loop {
        base.notifier.publish_signal.notified().await;
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(base.keys.hints()).arg(&base.notifier.own_id);
        if let Err(error) = base.link.ask("giving a hint", &publish).await {
            tracing::debug!(%error, "a hint was lost");
        }
        sleep(GATHER).await;
    }
}

/// Receives hints of other processes; runs as long as the store exists.
pub(crate) async fn receive_hints(base: Arc<StoreContext>) {
    loop {
        if let Err(error) = receive_hints_once(&base).await {
            tracing::debug!(%error, "hints of other processes do not arrive; polling goes on");
        }
        sleep(PAUSE).await;
    }
}

async fn subscribe(base: &StoreContext) -> redis::RedisResult<PubSub> {
    let mut subscriber = base.link.dial().subscriber().await?;
    subscriber.subscribe(base.keys.hints()).await?;
    Ok(subscriber)
}

async fn receive_hints_once(base: &StoreContext) -> redis::RedisResult<()> {
    let subscriber = timeout(SUBSCRIBE_TIME_MAX, subscribe(base))
        .await
        .map_err(std::io::Error::from)??;
    // Hints published before the subscription began are lost, so notify once.
    base.notifier.notify_local();
    let (mut asker, mut messages) = subscriber.split();
    loop {
        match timeout(ASK_EVERY, messages.next()).await {
            Ok(Some(message)) if message.get_payload_bytes() != base.notifier.own_id.as_bytes() => {
                base.notifier.notify_local();
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(_) => {
                let answered = timeout(ANSWER_TIME_MAX, asker.ping::<redis::Value>()).await;
                answered.map_err(std::io::Error::from)??;
            }
        }
    }
}
