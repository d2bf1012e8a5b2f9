//! A stream that is served, from its start to its end.

use super::adrift::Adrift;
use super::batch::Batch;
use super::clock::clock_loop;
use super::dead::{Ground, Unburied, bury, unreadable};
use super::drain::{LOOKED_AFTER_MAX, drain_loop, watch_loop};
use super::handler::{Letters, StreamHandler};
use super::leases::{Leases, keep_loop};
use super::operate::{Stream, in_parts, offer_in_parts};
use super::settings::{BadStream, StreamSettings};
use crate::client::Backstop;
use crate::handler::Handler;
use crate::worker::Services;
use backstop_core::port::{Answer, Offered, Store, StoreError};
use backstop_core::stream::{Record, Rules};
use backstop_core::{StreamName, Time, WorkerName};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Became {
    /// It was handled.
    Handled,
    /// It is kept, durably, until its turn.
    Held,
    /// Its position was handled, passed or held before.
    Duplicate,
    /// It came after it was declared missing, and was dropped.
    Late,
    /// It came after it was declared missing, and was handled as the correction.
    Amended,
    /// Its key is disabled.
    Ignored,
    /// It failed for good: it is a dead letter.
    Dead,
    /// Its key keeps as much as it can. It was not taken: bring it again later.
    Full,
}

/// What all parts of a served stream share.
pub(super) struct Shared {
    pub(super) backstop: Backstop,
    pub(super) name: StreamName,
    pub(super) worker: WorkerName,
    pub(super) settings: StreamSettings,
    /// The rules for when nothing can be waited for.
    pub(super) at_once: Rules,
    pub(super) handler: Arc<dyn StreamHandler>,
    /// One for each call of the handler that may be under way.
    pub(super) calls: Semaphore,
    pub(super) leases: Leases,
    /// One for each key that was due and may be in hand.
    pub(super) looked_after: Semaphore,
    pub(super) adrift: Adrift,
    /// No key is begun any more.
    pub(super) stop: CancellationToken,
    /// Batches under way.
    pub(super) batches: TaskTracker,
}

impl Shared {
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.backstop.store()
    }

    pub(super) fn now(&self) -> Time {
        self.backstop.now()
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.settings.rules
    }
}

/// A stream that is served here. Dropping it stops it without waiting; its leases then run out.
#[must_use = "dropping a running stream stops it"]
pub struct RunningStream {
    shared: Arc<Shared>,
    /// Ends the loops.
    loops: CancellationToken,
    tasks: TaskTracker,
    /// Ends with the loops; they are waited for when it is stopped.
    thread: Option<std::thread::JoinHandle<()>>,
}

impl RunningStream {
    pub(super) fn start(
        stream: &Stream,
        settings: StreamSettings,
        handler: Arc<dyn StreamHandler>,
        services: Services,
    ) -> Result<Self, BadStream> {
        let bad = |problem| BadStream::Settings {
            stream: stream.name().to_string(),
            problem,
        };
        settings.check().map_err(bad)?;
        let backstop = stream.backstop().clone();
        let shared = Arc::new(Shared {
            name: stream.name().clone(),
            worker: crate::worker::usual_worker(&backstop),
            at_once: settings.rules.at_once(),
            calls: Semaphore::new(settings.concurrency),
            leases: Leases::default(),
            looked_after: Semaphore::new(LOOKED_AFTER_MAX),
            adrift: Adrift::default(),
            stop: CancellationToken::new(),
            batches: TaskTracker::new(),
            backstop,
            settings,
            handler,
        });
        let (loops, tasks) = (CancellationToken::new(), TaskTracker::new());
        let keep = {
            let (shared, stop) = (Arc::clone(&shared), loops.clone());
            async move { keep_loop(&shared, &stop).await }
        };
        let thread = match services {
            Services::CallersRuntime => {
                tasks.spawn(keep);
                None
            }
            Services::OwnThread => Some(own_thread(keep)?),
        };
        // Among the batches, as it begins some: one it is about to take when the stream is stopped
        // is waited for, too.
        shared.batches.spawn({
            let shared = Arc::clone(&shared);
            async move { drain_loop(&shared).await }
        });
        tasks.spawn({
            let (shared, stop) = (Arc::clone(&shared), loops.clone());
            async move { watch_loop(&shared, &stop).await }
        });
        tasks.spawn({
            let (shared, stop) = (Arc::clone(&shared), loops.clone());
            async move { clock_loop(&shared, &stop).await }
        });
        Ok(Self {
            shared,
            loops,
            tasks,
            thread,
        })
    }

    /// Takes records in. When it answers, each was handled, is held durably, or is known not to be
    /// wanted; answers in the order of `records`. When it fails, some may have been handled:
    /// bringing the same records again is harmless.
    pub async fn handle(&self, records: Vec<Record>) -> Answer<Vec<Became>> {
        if self.shared.stop.is_cancelled() {
            return Err(StoreError::unavailable(
                "handling records",
                "this stream was told to stop",
            ));
        }
        for record in &records {
            record
                .check()
                .map_err(|error| StoreError::misuse("handling records", error))?;
        }
        let mut became = Vec::with_capacity(records.len());
        for part in in_parts(records) {
            became.extend(Batch::of(&self.shared, part).run().await?);
        }
        Ok(became)
    }

    /// Puts records by, without handling any here and now; they are dealt with in the background.
    pub async fn offer(&self, records: Vec<Record>) -> Answer<Vec<Offered>> {
        offer_in_parts(&self.shared.backstop, &self.shared.name, records).await
    }

    /// Puts something aside that is no record of this stream, as a dead letter, so that what comes
    /// behind it can go on. `origin` says where it came from, such as topic, partition and offset:
    /// put aside twice it is one letter.
    pub async fn put_aside(&self, origin: &str, bytes: &[u8], error: &str) -> Answer<()> {
        let Shared {
            backstop,
            name,
            worker,
            ..
        } = &*self.shared;
        tracing::warn!(stream = %name, origin, error, "what came is no record of the stream; it is put aside as a dead letter");
        let letter = unreadable(name, origin, bytes, error, worker, backstop.now());
        bury(backstop, letter, Ground::Store)
            .await
            .map_err(|unburied| match unburied {
                Unburied::Store(error) => error,
                Unburied::NoRoom => StoreError::unavailable("putting a record aside", unburied),
            })
    }

    /// Runs dead letters of this stream that somebody requeued: for a worker of the queue
    /// [`super::letters_queue`].
    pub fn letters(&self) -> impl Handler + use<> {
        let Shared {
            backstop,
            name,
            handler,
            ..
        } = &*self.shared;
        Letters {
            handler: Arc::clone(handler),
            stream: Stream::of(backstop.clone(), name.clone()),
        }
    }

    /// The name under which it takes keys.
    pub fn worker(&self) -> &WorkerName {
        &self.shared.worker
    }

    /// Whether the store has not answered for so long that records are handled without it.
    pub fn is_adrift(&self) -> bool {
        self.shared.adrift.is_down()
    }

    /// Stops: calls under way may end, everything else is put by for others.
    pub async fn stop(mut self) {
        self.shared.stop.cancel();
        self.shared.batches.close();
        let grace: Duration = self.shared.settings.grace.into();
        if tokio::time::timeout(grace, self.shared.batches.wait())
            .await
            .is_err()
        {
            tracing::warn!(stream = %self.shared.name, "calls did not end within {grace:?}; their keys' leases run out");
        }
        self.loops.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(grace, self.tasks.wait()).await;
        if let Some(thread) = self.thread.take() {
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
        }
    }
}

impl Drop for RunningStream {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.loops.cancel();
    }
}

/// A handler that blocks its runtime cannot stop what keeps leases alive.
fn own_thread(
    keep: impl Future<Output = ()> + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, BadStream> {
    let failed = |error: std::io::Error| BadStream::Thread(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let thread = std::thread::Builder::new().name("backstop-streams".to_owned());
    thread.spawn(move || runtime.block_on(keep)).map_err(failed)
}

/// What became of the records of one key, by position.
pub(super) type Told = HashMap<i64, Became>;
