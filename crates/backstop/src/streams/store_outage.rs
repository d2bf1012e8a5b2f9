//! Keys that go on without the store while it does not answer: records are handled at once, with
//! misses, and the watermark moves in memory until it can be written.
//!
//! A key that was in hand when the store fell silent goes on from there. Of any other only this
//! process's last word is known, and others may have gone on since: see
//! [`backstop_core::stream::RememberedKey`]. What cannot be handled now, since its handler failed
//! or its key is halted, is not kept here: it goes to the store once that is back, or stays with
//! whoever brought it.

use super::dead_letters::DeadLetterTarget;
use super::key_leases::KeyOwnership;
use super::key_worker::{HandlerCallEnd, call_handler, record_note};
use super::running::{RecordOutcome, RecordOutcomes, StreamRuntime};
use backstop_core::port::{StoreError, StoreResult};
use backstop_core::stream::{KeyStep, KeyWindow, Record, RememberedKey, StreamCounter};
use backstop_core::{Span, StreamKey};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Watermarks remembered for when the store is silent, and keys that may be adrift at once.
const KNOWN_MAX: usize = 100_000;
/// How long a key that waits goes without looking whether the store is back.
const LOOK_EVERY: Span = Span::millis(250);

/// What is known without the store.
#[derive(Default)]
pub(super) struct StoreOutage {
    is_down: AtomicBool,
    is_writing_back: AtomicBool,
    /// How far keys were when they were last written.
    watermarks: Mutex<HashMap<StreamKey, RememberedKey>>,
    /// Keys that went on since.
    offline_keys: Mutex<HashMap<StreamKey, OfflineKey>>,
}

/// A key, one record after the other; empty once it was taken back to the store.
type OfflineKey = Arc<tokio::sync::Mutex<Option<KeyWindow>>>;

impl StoreOutage {
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    pub(super) fn note_down(&self) {
        self.is_down.store(true, Ordering::Relaxed);
    }

    pub(super) fn note_answer(&self) {
        if self.is_down.swap(false, Ordering::Relaxed) {
            tracing::info!("the store answers again");
        }
    }

    fn lock_offline_keys(&self) -> MutexGuard<'_, HashMap<StreamKey, OfflineKey>> {
        // A map is whole between any two of its changes.
        self.offline_keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_watermarks(&self) -> MutexGuard<'_, HashMap<StreamKey, RememberedKey>> {
        self.watermarks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a key as it was written.
    pub(super) fn remember(&self, window: &KeyWindow) {
        let (mut known, now) = (self.lock_watermarks(), window.remember());
        if now.is_empty() {
            known.remove(window.key());
            return;
        }
        if known.len() >= KNOWN_MAX && !known.contains_key(window.key()) {
            // Any one will do: what is forgotten is looked up, unless the store falls silent at
            // this very time.
            let one = known.keys().next().cloned();
            one.and_then(|one| known.remove(&one));
        }
        known.insert(window.key().clone(), now);
    }

    /// Some of the keys that went on without the store and that nobody works on; none while others
    /// are taken back.
    pub(super) fn to_write_back(&self, max: usize) -> Vec<StreamKey> {
        let offline_keys = self.lock_offline_keys();
        let idle = offline_keys
            .iter()
            .filter(|(_, offline_key)| offline_key.try_lock().is_ok());
        let keys: Vec<StreamKey> = idle.map(|(key, _)| key.clone()).take(max).collect();
        if keys.is_empty() || self.is_writing_back.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        keys
    }

    pub(super) fn written_back(&self) {
        self.is_writing_back.store(false, Ordering::Relaxed);
    }

    /// A key goes on without the store, or goes on doing so.
    pub(super) async fn put(&self, window: KeyWindow) {
        let key = window.key().clone();
        let offline_key = {
            let mut offline_keys = self.lock_offline_keys();
            let empty = || Arc::new(tokio::sync::Mutex::new(None));
            Arc::clone(offline_keys.entry(key.clone()).or_insert_with(empty))
        };
        let mut slot = offline_key.lock().await;
        let mut window = window;
        if let Some(later) = slot.take() {
            window.catch_up(later);
        }
        *slot = Some(window);
        // Whoever emptied it while this one waited has taken it off the list.
        self.lock_offline_keys()
            .insert(key, Arc::clone(&offline_key));
    }

    /// What was done for a key without the store, once nobody works on it there.
    pub(super) async fn remove(&self, key: &StreamKey) -> Option<KeyWindow> {
        let offline_key = {
            let mut offline_keys = self.lock_offline_keys();
            if offline_keys.is_empty() {
                return None;
            }
            offline_keys.remove(key)?
        };
        offline_key.lock().await.take()
    }

    /// The lane of a key, with what is known of it.
    fn offline_key(&self, key: &StreamKey) -> StoreResult<OfflineKey> {
        let mut offline_keys = self.lock_offline_keys();
        if let Some(offline_key) = offline_keys.get(key) {
            return Ok(Arc::clone(offline_key));
        }
        if offline_keys.len() >= KNOWN_MAX {
            let cause = format!("{KNOWN_MAX} keys went on without it, and no more can");
            return Err(StoreError::unavailable("handling records", cause));
        }
        let known = self.lock_watermarks().get(key).cloned().unwrap_or_default();
        let window = KeyWindow::offline_without_lease(key.clone(), known);
        let offline_key = Arc::new(tokio::sync::Mutex::new(Some(window)));
        offline_keys.insert(key.clone(), Arc::clone(&offline_key));
        Ok(offline_key)
    }
}

type OfflineRecords = Vec<(usize, Record)>;
type OfflineOutcomes = Vec<(usize, RecordOutcome)>;
/// What became of records, and those that have to wait for the store.
type OfflineResult = (OfflineOutcomes, HashMap<StreamKey, OfflineRecords>);

/// Handles records without the store.
pub(super) async fn handle(
    shared: &Arc<StreamRuntime>,
    records: HashMap<StreamKey, OfflineRecords>,
) -> StoreResult<OfflineResult> {
    let (mut answers, mut left) = (Vec::new(), HashMap::new());
    let keys = records
        .into_iter()
        .map(|(key, placed)| handle_key(shared, key, placed));
    for handled in futures_util::future::join_all(keys).await {
        let (key, answered, unanswered) = handled?;
        answers.extend(answered);
        if !unanswered.is_empty() {
            left.insert(key, unanswered);
        }
    }
    Ok((answers, left))
}

async fn handle_key(
    shared: &Arc<StreamRuntime>,
    key: StreamKey,
    placed: OfflineRecords,
) -> StoreResult<(StreamKey, OfflineOutcomes, OfflineRecords)> {
    // Whoever has it in hand here knows how far it is, and will say so.
    while shared.leases.has(&key) {
        if !shared.outage.is_down() {
            return Ok((key, Vec::new(), placed));
        }
        tokio::time::sleep(LOOK_EVERY.into()).await;
    }
    let mut offline_key = loop {
        let offline_key = shared.outage.offline_key(&key)?.lock_owned().await;
        // Somebody took it back to the store while it was waited for: the next one begins with what
        // is known now.
        if offline_key.is_some() {
            break offline_key;
        }
    };
    let Some(window) = offline_key.as_mut() else {
        return Ok((key, Vec::new(), placed));
    };
    for _ in &placed {
        window.count(StreamCounter::StoreFailures);
    }
    window.arrive(
        placed.iter().map(|(_, record)| record.clone()),
        shared.now(),
    );
    let became = work_key(shared, window).await;
    let became = |record: &Record| {
        became
            .get(&record.position)
            .copied()
            .unwrap_or(RecordOutcome::Duplicate)
    };
    let (left, finished): (OfflineRecords, OfflineRecords) = placed
        .into_iter()
        .partition(|(_, record)| became(record) == RecordOutcome::Held);
    window.release(left.iter().map(|(_, record)| record.position));
    Ok((
        key,
        finished
            .iter()
            .map(|(place, record)| (*place, became(record)))
            .collect(),
        left,
    ))
}

/// Does all there is to do; a failing event is tried again here until the store is back, since
/// nothing else would remember it.
async fn work_key(shared: &Arc<StreamRuntime>, window: &mut KeyWindow) -> RecordOutcomes {
    let (mut became, tenure) = (RecordOutcomes::new(), KeyOwnership::without_store());
    loop {
        let now = shared.now();
        match window.next(&shared.at_once, now) {
            Some(KeyStep::Event(note)) => record_note(shared, &mut became, window.key(), note),
            Some(KeyStep::Call(call)) => {
                if window.state().failing.is_some() && shared.stop.is_cancelled() {
                    return became;
                }
                let on = (&shared.at_once, DeadLetterTarget::Anywhere, &tenure);
                match call_handler(shared, window, on, call, &mut became).await {
                    HandlerCallEnd::GoesOn | HandlerCallEnd::Waits | HandlerCallEnd::Lost => {}
                }
            }
            None => {
                let wake = window.wake(&shared.at_once, now).filter(|wake| *wake > now);
                let (Some(wake), true) = (wake, shared.outage.is_down()) else {
                    return became;
                };
                tokio::select! {
                    () = shared.stop.cancelled() => return became,
                    () = tokio::time::sleep(wake.since(now).min(LOOK_EVERY).into()) => {}
                }
            }
        }
    }
}
