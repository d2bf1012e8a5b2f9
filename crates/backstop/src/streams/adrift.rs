//! Keys that go on without the store while it does not answer: records are handled at once, with
//! misses, and the watermark moves in memory until it can be written.
//!
//! A key that was in hand when the store fell silent goes on from there. Of any other only this
//! process's last word is known, and others may have gone on since: see
//! [`backstop_core::stream::Known`]. What cannot be handled now, since its handler failed or its
//! key is halted, is not kept here: it goes to the store once that is back, or stays with whoever
//! brought it.

use super::dead::Ground;
use super::hand::{Called, call_handler, note_down};
use super::leases::Tenure;
use super::running::{Became, Shared, Told};
use backstop_core::port::{Answer, StoreError};
use backstop_core::stream::{Count, Known, Record, Step, Window};
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
pub(super) struct Adrift {
    is_down: AtomicBool,
    is_writing_back: AtomicBool,
    /// How far keys were when they were last written.
    known: Mutex<HashMap<StreamKey, Known>>,
    /// Keys that went on since.
    lanes: Mutex<HashMap<StreamKey, Lane>>,
}

/// A key, one record after the other; empty once it was taken back to the store.
type Lane = Arc<tokio::sync::Mutex<Option<Window>>>;

impl Adrift {
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    pub(super) fn went_down(&self) {
        self.is_down.store(true, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        if self.is_down.swap(false, Ordering::Relaxed) {
            tracing::info!("the store answers again");
        }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<StreamKey, Lane>> {
        // A map is whole between any two of its changes.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<StreamKey, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a key as it was written.
    pub(super) fn remember(&self, window: &Window) {
        let (mut known, now) = (self.known(), window.to_remember());
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
        let lanes = self.lanes();
        let idle = lanes.iter().filter(|(_, lane)| lane.try_lock().is_ok());
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
    pub(super) async fn put(&self, window: Window) {
        let key = window.key().clone();
        let lane = {
            let mut lanes = self.lanes();
            let empty = || Arc::new(tokio::sync::Mutex::new(None));
            Arc::clone(lanes.entry(key.clone()).or_insert_with(empty))
        };
        let mut slot = lane.lock().await;
        let mut window = window;
        if let Some(later) = slot.take() {
            window.catch_up(later);
        }
        *slot = Some(window);
        // Whoever emptied it while this one waited has taken it off the list.
        self.lanes().insert(key, Arc::clone(&lane));
    }

    /// What was done for a key without the store, once nobody works on it there.
    pub(super) async fn remove(&self, key: &StreamKey) -> Option<Window> {
        let lane = {
            let mut lanes = self.lanes();
            if lanes.is_empty() {
                return None;
            }
            lanes.remove(key)?
        };
        lane.lock().await.take()
    }

    /// The lane of a key, with what is known of it.
    fn lane(&self, key: &StreamKey) -> Answer<Lane> {
        let mut lanes = self.lanes();
        if let Some(lane) = lanes.get(key) {
            return Ok(Arc::clone(lane));
        }
        if lanes.len() >= KNOWN_MAX {
            let cause = format!("{KNOWN_MAX} keys went on without it, and no more can");
            return Err(StoreError::unavailable("handling records", cause));
        }
        let known = self.known().get(key).cloned().unwrap_or_default();
        let window = Window::without_lease(key.clone(), known);
        let lane = Arc::new(tokio::sync::Mutex::new(Some(window)));
        lanes.insert(key.clone(), Arc::clone(&lane));
        Ok(lane)
    }
}

type Placed = Vec<(usize, Record)>;
type Answers = Vec<(usize, Became)>;
/// What became of records, and those that have to wait for the store.
type Handled = (Answers, HashMap<StreamKey, Placed>);

/// Handles records without the store.
pub(super) async fn handle(
    shared: &Arc<Shared>,
    records: HashMap<StreamKey, Placed>,
) -> Answer<Handled> {
    let (mut answers, mut left) = (Vec::new(), HashMap::new());
    let keys = records
        .into_iter()
        .map(|(key, placed)| handle_key(shared, key, placed));
    for handled in futures_util::future::join_all(keys).await {
        let (key, told, untold) = handled?;
        answers.extend(told);
        if !untold.is_empty() {
            left.insert(key, untold);
        }
    }
    Ok((answers, left))
}

async fn handle_key(
    shared: &Arc<Shared>,
    key: StreamKey,
    placed: Placed,
) -> Answer<(StreamKey, Answers, Placed)> {
    // Whoever has it in hand here knows how far it is, and will say so.
    while shared.leases.has(&key) {
        if !shared.adrift.is_down() {
            return Ok((key, Vec::new(), placed));
        }
        tokio::time::sleep(LOOK_EVERY.into()).await;
    }
    let mut lane = loop {
        let lane = shared.adrift.lane(&key)?.lock_owned().await;
        // Somebody took it back to the store while it was waited for: the next one begins with what
        // is known now.
        if lane.is_some() {
            break lane;
        }
    };
    let Some(window) = lane.as_mut() else {
        return Ok((key, Vec::new(), placed));
    };
    for _ in &placed {
        window.count(Count::StoreFailures);
    }
    window.arrive(
        placed.iter().map(|(_, record)| record.clone()),
        shared.now(),
    );
    let became = work(shared, window).await;
    let became = |record: &Record| {
        became
            .get(&record.position)
            .copied()
            .unwrap_or(Became::Duplicate)
    };
    let (left, told): (Placed, Placed) = placed
        .into_iter()
        .partition(|(_, record)| became(record) == Became::Held);
    window.let_go(left.iter().map(|(_, record)| record.position));
    Ok((
        key,
        told.iter()
            .map(|(place, record)| (*place, became(record)))
            .collect(),
        left,
    ))
}

/// Does all there is to do; a failing event is tried again here until the store is back, since
/// nothing else would remember it.
async fn work(shared: &Arc<Shared>, window: &mut Window) -> Told {
    let (mut became, tenure) = (Told::new(), Tenure::without_store());
    loop {
        let now = shared.now();
        match window.next(&shared.at_once, now) {
            Some(Step::Note(note)) => note_down(shared, &mut became, window.key(), note),
            Some(Step::Call(call)) => {
                if window.standing().failing.is_some() && shared.stop.is_cancelled() {
                    return became;
                }
                let on = (&shared.at_once, Ground::Anywhere, &tenure);
                match call_handler(shared, window, on, call, &mut became).await {
                    Called::GoesOn | Called::Waits | Called::Lost => {}
                }
            }
            None => {
                let wake = window.wake(&shared.at_once, now).filter(|wake| *wake > now);
                let (Some(wake), true) = (wake, shared.adrift.is_down()) else {
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
