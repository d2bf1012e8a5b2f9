//! Hints that there may be something to claim or to promote: rung within the process at once, and
//! told to the other processes over a channel. Those may miss some; polling is the truth.

use crate::base::Base;
use async_trait::async_trait;
use backstop_core::port::Hints;
use futures_util::StreamExt;
use redis::aio::PubSub;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// After a hint was told, the next ones are gathered for so long.
const GATHER: Duration = Duration::from_millis(2);
/// How long a subscription may take to be made.
const SUBSCRIBE_TIME_MAX: Duration = Duration::from_secs(5);
/// A subscription on which nothing came for so long is asked whether it still hears; one whose
/// other end is gone would listen for ever.
const ASK_EVERY: Duration = Duration::from_secs(3);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// After a subscription failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Gives hints to everybody who watches.
pub(crate) struct Bell {
    rings: watch::Sender<u64>,
    told: Notify,
    /// Who rings: a process does not listen to itself.
    name: String,
}

impl Bell {
    /// A bell nobody has heard yet.
    pub(crate) fn new() -> Self {
        let name = format!("{:016x}", rand::random::<u64>());
        Self {
            rings: watch::Sender::new(0),
            told: Notify::new(),
            name,
        }
    }

    /// Gives a hint.
    pub(crate) fn ring(&self) {
        self.ring_here();
        self.told.notify_one();
    }

    fn ring_here(&self) {
        self.rings.send_modify(|rings| *rings += 1);
    }

    /// A subscription from now on.
    pub(crate) fn listen(&self) -> Box<dyn Hints> {
        Box::new(Rings(self.rings.subscribe()))
    }
}

struct Rings(watch::Receiver<u64>);

#[async_trait]
impl Hints for Rings {
    async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The store is gone, and with it every hint.
            std::future::pending::<()>().await;
        }
    }
}

/// Tells the other processes, as long as the store is there.
pub(crate) async fn tell(base: Arc<Base>) {
    loop {
        base.bell.told.notified().await;
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(base.keys.hints()).arg(&base.bell.name);
        if let Err(error) = base.link.ask("giving a hint", &publish).await {
            tracing::debug!(%error, "a hint was lost");
        }
        sleep(GATHER).await;
    }
}

/// Listens to the other processes, as long as the store is there.
pub(crate) async fn hear(base: Arc<Base>) {
    loop {
        if let Err(error) = hear_once(&base).await {
            tracing::debug!(%error, "hints of other processes do not arrive; polling goes on");
        }
        sleep(PAUSE).await;
    }
}

async fn subscribe(base: &Base) -> redis::RedisResult<PubSub> {
    let mut subscriber = base.link.dial().subscriber().await?;
    subscriber.subscribe(base.keys.hints()).await?;
    Ok(subscriber)
}

async fn hear_once(base: &Base) -> redis::RedisResult<()> {
    let subscriber = timeout(SUBSCRIBE_TIME_MAX, subscribe(base))
        .await
        .map_err(std::io::Error::from)??;
    // What was told before the subscription began is not heard any more.
    base.bell.ring_here();
    let (mut asker, mut messages) = subscriber.split();
    loop {
        match timeout(ASK_EVERY, messages.next()).await {
            Ok(Some(message)) if message.get_payload_bytes() != base.bell.name.as_bytes() => {
                base.bell.ring_here();
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
