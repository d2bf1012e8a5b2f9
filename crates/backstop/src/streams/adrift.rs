//! Keys that go on without the store while it does not answer: records are handled at once, with misses, and the watermark
//! moves in memory until it can be written.

use super::dead::Ground;
use super::hand::{Called, call_handler, note_down};
use super::running::{Became, Shared, Told};
use backstop_core::port::{Answer, StoreError};
use backstop_core::stream::{Count, Record, Step, Window};
use backstop_core::{StreamKey, Time};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Watermarks remembered for when the store is silent, and keys that may be adrift at once.
const KNOWN_MAX: usize = 100_000;

/// What is known without the store.
#[derive(Default)]
pub(super) struct Adrift {
    is_down: AtomicBool,
    /// How far keys were when they were last written.
    known: Mutex<HashMap<StreamKey, Known>>,
    /// Keys that went on since.
    lanes: Mutex<HashMap<StreamKey, Lane>>,
}

/// How far a key is, in few bytes: there may be many.
#[derive(Clone, Copy)]
struct Known {
    watermark: i64,
    step: Option<i64>,
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
        let Some(watermark) = window.watermark() else { return };
        let mut known = self.known();
        if known.len() >= KNOWN_MAX && !known.contains_key(window.key()) {
            // Any one will do: what is forgotten is looked up, unless the store falls silent at this very time.
            let one = known.keys().next().cloned();
            one.and_then(|one| known.remove(&one));
        }
        known.insert(window.key().clone(), Known { watermark, step: window.standing().step });
    }

    /// Some of the keys that went on without the store.
    pub(super) fn keys(&self, max: usize) -> Vec<StreamKey> {
        self.lanes().keys().take(max).cloned().collect()
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
        let mut window = Window::new(key.clone());
        if let Some(known) = self.known().get(key) {
            window.pass_to(known.watermark, known.step);
        }
        let lane = Arc::new(tokio::sync::Mutex::new(Some(window)));
        lanes.insert(key.clone(), Arc::clone(&lane));
        Ok(lane)
    }
}

type Placed = Vec<(usize, Record)>;
type Answers = Vec<(usize, Became)>;

/// Handles records without the store.
pub(super) async fn handle(shared: &Arc<Shared>, records: HashMap<StreamKey, Placed>) -> Answer<Answers> {
    let mut answers = Vec::new();
    let keys = records.into_iter().map(|(key, placed)| handle_key(shared, key, placed, None));
    for answer in futures_util::future::join_all(keys).await {
        answers.extend(answer?);
    }
    Ok(answers)
}

/// A key whose last change was not written goes on with it.
pub(super) async fn go_on(shared: &Arc<Shared>, window: Window, untold: Placed) -> Answer<Answers> {
    handle_key(shared, window.key().clone(), untold, Some(window)).await
}

async fn handle_key(
    shared: &Arc<Shared>,
    key: StreamKey,
    placed: Placed,
    mut unwritten: Option<Window>,
) -> Answer<Answers> {
    let lane = loop {
        let lane = shared.adrift.lane(&key)?.lock_owned().await;
        // Somebody took it back to the store while it was waited for: the next one begins with what is known now.
        if lane.is_some() {
            break lane;
        }
    };
    let mut lane = lane;
    let Some(window) = lane.as_mut() else { return Ok(Vec::new()) };
    if let Some(unwritten) = unwritten.take() {
        window.catch_up(unwritten);
    }
    for _ in &placed {
        window.count(Count::StoreFailures);
    }
    window.arrive(placed.iter().map(|(_, record)| record.clone()), shared.now());
    let became = work(shared, window).await;
    let answer = |record: &Record| became.get(&record.position).copied().unwrap_or(Became::Duplicate);
    Ok(placed.iter().map(|(place, record)| (*place, answer(record))).collect())
}

/// Does all there is to do; a failing event is tried again here, since nothing else would remember it.
async fn work(shared: &Arc<Shared>, window: &mut Window) -> Told {
    let (mut became, never) = (Told::new(), CancellationToken::new());
    loop {
        match window.next(&shared.at_once, shared.now()) {
            Some(Step::Note(note)) => note_down(shared, &mut became, window.key(), note),
            Some(Step::Call(call)) => {
                if window.standing().failing.is_some() && shared.stop.is_cancelled() {
                    return became;
                }
                let on = (&shared.at_once, Ground::Anywhere, &never);
                match call_handler(shared, window, on, call, &mut became).await {
                    Called::GoesOn | Called::Waits | Called::Lost => {}
                }
            }
            None => {
                let Some(wake) = window.wake(&shared.at_once, shared.now()) else { return became };
                wait_until(shared, wake).await;
            }
        }
    }
}

async fn wait_until(shared: &Shared, wake: Time) {
    let wait = wake.since(shared.now());
    tokio::select! {
        () = shared.stop.cancelled() => {}
        () = tokio::time::sleep(wait.into()) => {}
    }
}
