//! A stream that is served, from its start to its end.

use super::batch::RecordBatch;
use super::clock::clock_loop;
use super::dead_letters::{BuryError, DeadLetterTarget, bury, unreadable_burial};
use super::due_keys::{LOOKED_AFTER_MAX, due_keys_loop, watch_loop};
use super::handler::{DeadLetterHandler, StreamHandler};
use super::key_leases::{KeyLeases, lease_loop};
use super::operate::{Stream, in_parts, offer_in_parts};
use super::settings::{StreamSettings, StreamSetupError};
use super::store_outage::StoreOutage;
use crate::client::Backstop;
use crate::handler::Handler;
use crate::worker::ServicePlacement;
use backstop_core::port::{OfferOutcome, Store, StoreError, StoreResult};
use backstop_core::stream::{Record, StreamRules};
use backstop_core::{StreamName, Time, WorkerName};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordOutcome {
    Handled,
    /// It is kept, durably, until its turn.
    Held,
    /// Its position was handled, passed or held before.
    Duplicate,
    /// It came after it was declared missing, and was dropped.
    Late,
    /// It came after it was declared missing, and was handled as the correction.
    Amended,
    Ignored,
    /// It failed for good: it is a dead letter.
    Dead,
    /// Its key keeps as much as it can. It was not taken: bring it again later.
    Full,
}

/// What all parts of a served stream share.
pub(super) struct StreamRuntime {
    pub(super) backstop: Backstop,
    pub(super) name: StreamName,
    pub(super) worker: WorkerName,
    pub(super) settings: StreamSettings,
    /// The rules for when nothing can be waited for.
    pub(super) at_once: StreamRules,
    pub(super) handler: Arc<dyn StreamHandler>,
    /// One for each call of the handler that may be under way.
    pub(super) calls: Semaphore,
    pub(super) leases: KeyLeases,
    /// One for each key that was due and may be in hand.
    pub(super) due_key_permits: Semaphore,
    pub(super) outage: StoreOutage,
    /// No key is begun any more.
    pub(super) stop: CancellationToken,
    pub(super) batches: TaskTracker,
}

impl StreamRuntime {
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.backstop.store()
    }

    pub(super) fn now(&self) -> Time {
        self.backstop.now()
    }

    pub(super) fn rules(&self) -> &StreamRules {
        &self.settings.rules
    }
}

/// A stream that is served here. Dropping it stops it without waiting; its leases then run out.
#[must_use = "dropping a running stream stops it"]
pub struct RunningStream {
    shared: Arc<StreamRuntime>,
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
        services: ServicePlacement,
    ) -> Result<Self, StreamSetupError> {
        let bad = |problem| StreamSetupError::Settings {
            stream: stream.name().to_string(),
            problem,
        };
        settings.check().map_err(bad)?;
        let backstop = stream.backstop().clone();
        let shared = Arc::new(StreamRuntime {
            name: stream.name().clone(),
            worker: crate::worker::default_worker_name(&backstop),
            at_once: settings.rules.without_waiting(),
            calls: Semaphore::new(settings.concurrency),
            leases: KeyLeases::default(),
            due_key_permits: Semaphore::new(LOOKED_AFTER_MAX),
            outage: StoreOutage::default(),
            stop: CancellationToken::new(),
            batches: TaskTracker::new(),
            backstop,
            settings,
            handler,
        });
        let (loops, tasks) = (CancellationToken::new(), TaskTracker::new());
        let keep = {
            let (shared, stop) = (Arc::clone(&shared), loops.clone());
            async move { lease_loop(&shared, &stop).await }
        };
        let thread = match services {
            ServicePlacement::CallersRuntime => {
                tasks.spawn(keep);
                None
            }
            ServicePlacement::OwnThread => Some(spawn_lease_thread(keep)?),
        };
        // Among the batches, as it begins some: one it is about to take when the stream is stopped
        // is waited for, too.
        shared.batches.spawn({
            let shared = Arc::clone(&shared);
            async move { due_keys_loop(&shared).await }
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
    pub async fn handle(&self, records: Vec<Record>) -> StoreResult<Vec<RecordOutcome>> {
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
            became.extend(RecordBatch::of(&self.shared, part).run().await?);
        }
        Ok(became)
    }

    /// Puts records by, without handling any here and now; they are dealt with in the background.
    pub async fn offer(&self, records: Vec<Record>) -> StoreResult<Vec<OfferOutcome>> {
        offer_in_parts(&self.shared.backstop, &self.shared.name, records).await
    }

    /// Puts something aside that is no record of this stream, as a dead letter, so that what comes
    /// behind it can go on. `origin` says where it came from, such as topic, partition and offset:
    /// put aside twice it is one letter.
    pub async fn put_aside(&self, origin: &str, bytes: &[u8], error: &str) -> StoreResult<()> {
        let StreamRuntime {
            backstop,
            name,
            worker,
            ..
        } = &*self.shared;
        tracing::warn!(stream = %name, origin, error, "what came is no record of the stream; it is put aside as a dead letter");
        let letter = unreadable_burial(name, origin, bytes, error, worker, backstop.now());
        bury(backstop, letter, DeadLetterTarget::Store)
            .await
            .map_err(|unburied| match unburied {
                BuryError::Store(error) => error,
                BuryError::NoRoom => StoreError::unavailable("putting a record aside", unburied),
            })
    }

    /// Runs dead letters of this stream that somebody requeued: for a worker of the queue
    /// [`super::dead_letter_queue`].
    pub fn dead_letter_handler(&self) -> impl Handler + use<> {
        let StreamRuntime {
            backstop,
            name,
            handler,
            ..
        } = &*self.shared;
        DeadLetterHandler {
            handler: Arc::clone(handler),
            stream: Stream::of(backstop.clone(), name.clone()),
        }
    }

    /// The name under which it takes keys.
    pub fn worker(&self) -> &WorkerName {
        &self.shared.worker
    }

    /// Whether the store has not answered for so long that records are handled without it.
    pub fn is_offline(&self) -> bool {
        self.shared.outage.is_down()
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
fn spawn_lease_thread(
    keep: impl Future<Output = ()> + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, StreamSetupError> {
    let failed = |error: std::io::Error| StreamSetupError::Thread(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let thread = std::thread::Builder::new().name("backstop-streams".to_owned());
    thread.spawn(move || runtime.block_on(keep)).map_err(failed)
}

/// What became of the records of one key, by position.
pub(super) type RecordOutcomes = HashMap<i64, RecordOutcome>;
