//! Hints to workers that there may be new jobs to claim or to promote.
//!
//! Within the process a hint is a change of a `watch` channel. To other processes it is a NOTIFY on
//! a connection of its own. It is never part of the transaction that inserts the jobs: NOTIFY would
//! make its commit wait for every other such commit. All changes while one NOTIFY is under way
//! share the next one.

use crate::address::PoolerMode;
use crate::error::store_error;
use crate::link::{PostgresLink, ServerMessages, TRY_MAX};
use async_trait::async_trait;
use backstop_core::port::{HintSubscription, StoreError, StoreResult};
use futures_util::StreamExt;
use rand::RngExt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

const DOING: &str = "listening for hints";
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_LAST: Duration = Duration::from_secs(5);
/// The least time between two NOTIFYs: a caller that pushes a thousand times a second need not send
/// as many.
const SEND_PAUSE: Duration = Duration::from_millis(2);
/// After this time without a message the connection is tested with an empty query. If its other end
/// is gone, it would listen for ever.
const ASK_EVERY: Duration = Duration::from_secs(3);
const ANSWER_MAX: Duration = Duration::from_secs(2);
const NOTIFY: &str = "WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)) \
    SELECT pg_notify($1, $2) FROM quick";

/// Sends hints to all subscribers, in this process and in others.
pub(crate) struct Notifier {
    hint_count: watch::Sender<u64>,
    remote: Arc<Notify>,
    started: std::sync::Once,
}

impl Notifier {
    /// A notifier without subscribers, before its first hint.
    pub(crate) fn new() -> Self {
        Self {
            hint_count: watch::Sender::new(0),
            remote: Arc::new(Notify::new()),
            started: std::sync::Once::new(),
        }
    }

    /// Sends a hint to all subscribers.
    pub(crate) fn notify(&self, link: &Arc<PostgresLink>) {
        self.hint_count.send_modify(|hint_count| *hint_count += 1);
        self.start(link);
        self.remote.notify_one();
    }

    /// Subscribes to the hints from now on.
    pub(crate) fn subscribe(&self, link: &Arc<PostgresLink>) -> Box<dyn HintSubscription> {
        self.start(link);
        Box::new(HintReceiver(self.hint_count.subscribe()))
    }

    /// Starts the exchange with other processes at the first use. Without a runtime it cannot
    /// start.
    fn start(&self, link: &Arc<PostgresLink>) {
        self.started.call_once(|| {
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let exchange = HintExchange {
                    link: Arc::downgrade(link),
                    hint_count: self.hint_count.clone(),
                    remote: Arc::clone(&self.remote),
                    own_id: format!("{:016x}", rand::rng().random::<u64>()),
                };
                runtime.spawn(exchange.run());
            }
        });
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // Wakes the exchange, which then finds that its store is gone and ends.
        self.remote.notify_one();
    }
}

struct HintReceiver(watch::Receiver<u64>);

#[async_trait]
impl HintSubscription for HintReceiver {
    async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The store was dropped, so no hint comes any more.
            std::future::pending::<()>().await;
        }
    }
}

/// Exchanges hints with other processes until its store is dropped.
struct HintExchange {
    link: Weak<PostgresLink>,
    hint_count: watch::Sender<u64>,
    remote: Arc<Notify>,
    own_id: String,
}

impl HintExchange {
    async fn run(self) {
        let mut wait = WAIT_FIRST;
        while let Some(link) = self.link.upgrade() {
            let connected = match link.pooler() {
                PoolerMode::None => self.listen(&link).await,
                PoolerMode::Transaction => {
                    self.send_only(link).await;
                    continue;
                }
            };
            let channel = channel(link.schema());
            drop(link);
            match connected {
                Ok((client, messages)) => {
                    let connected_at = Instant::now();
                    // Hints that others sent before this connection listened are lost, so hint
                    // once.
                    self.hint_count.send_modify(|hint_count| *hint_count += 1);
                    self.exchange_hints(&client, messages, &channel).await;
                    // Resets the backoff only after a connection that lasted. Otherwise one that
                    // ends at once would be reopened ten times a second.
                    if connected_at.elapsed() > WAIT_LAST {
                        wait = WAIT_FIRST;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "no hints from other processes; polling goes on");
                }
            }
            let pause = wait.mul_f64(rand::rng().random_range(0.5..1.0));
            sleep(pause).await;
            wait = (wait * 2).min(WAIT_LAST);
        }
    }

    async fn listen(&self, link: &PostgresLink) -> StoreResult<(Client, ServerMessages)> {
        let (client, mut messages) = link.connect(DOING).await?;
        let listen = format!("LISTEN \"{}\"", channel(link.schema()));
        let listening = timeout(TRY_MAX, client.batch_execute(&listen));
        match self.while_reading(&mut messages, listening).await {
            Some(Ok(Ok(()))) => Ok((client, messages)),
            Some(Ok(Err(error))) => Err(store_error(DOING, &error)),
            Some(Err(_)) | None => Err(StoreError::unavailable(DOING, "no answer to LISTEN")),
        }
    }

    /// Passes on hints of other processes and sends our own, until the connection ends or does not
    /// answer, or the store is dropped.
    async fn exchange_hints(&self, client: &Client, mut messages: ServerMessages, channel: &str) {
        let params = [(&channel as _, Type::TEXT), (&self.own_id as _, Type::TEXT)];
        loop {
            let rung = timeout(ASK_EVERY, self.remote.notified());
            let Some(rung) = self.while_reading(&mut messages, rung).await else {
                return;
            };
            if self.link.strong_count() == 0 {
                return;
            }
            if rung.is_err() {
                let asking = timeout(ANSWER_MAX, client.simple_query(""));
                let Some(Ok(Ok(_))) = self.while_reading(&mut messages, asking).await else {
                    return;
                };
                continue;
            }
            let saying = timeout(WAIT_LAST, client.query_typed(NOTIFY, &params));
            let Some(Ok(Ok(_))) = self.while_reading(&mut messages, saying).await else {
                return;
            };
            if self
                .while_reading(&mut messages, sleep(SEND_PAUSE))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    /// Runs `work` while it reads messages, which drives the connection and passes on hints of
    /// others; `None` if the connection ends first.
    async fn while_reading<T>(
        &self,
        messages: &mut ServerMessages,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                worked = &mut work => return Some(worked),
                message = messages.next() => match message {
                    Some(Ok(AsyncMessage::Notification(notification))) if notification.payload() != self.own_id => {
                        self.hint_count.send_modify(|hint_count| *hint_count += 1);
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                },
            }
        }
    }

    /// Sends hints only: LISTEN does not work behind a pooler, but processes that connect directly
    /// can receive them.
    async fn send_only(&self, link: Arc<PostgresLink>) {
        let channel = channel(link.schema());
        drop(link);
        self.remote.notified().await;
        let Some(link) = self.link.upgrade() else {
            return;
        };
        let params = [(&channel as _, Type::TEXT), (&self.own_id as _, Type::TEXT)];
        if let Err(error) = link.rows("giving a hint", NOTIFY, &params).await {
            tracing::debug!(%error, "a hint to other processes is lost; their polling finds the work");
        }
        drop(link);
        sleep(SEND_PAUSE).await;
    }
}

/// The NOTIFY channel of a schema.
fn channel(schema: &str) -> String {
    format!("backstop:{schema}")
}
