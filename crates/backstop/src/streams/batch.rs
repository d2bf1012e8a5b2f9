//! Records that came together: taken to their keys, worked through, and written down, all at once.
//!
//! One take brings all keys. Each key is worked through by a [`KeyWorker`]; what the hands have to
//! say is written together by the [`BatchWriter`]. A batch in order is two round trips: the take,
//! and one advance.

use super::batch_writer::BatchSubmitter;
use super::key_worker::{KeyWorkEnd, KeyWorker};
use super::operate::offer_in_parts;
use super::running::{RecordOutcome, StreamRuntime};
use super::store_outage;
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::{KeySelection, OfferOutcome, StoreError, StoreResult, TakeRequest};
use backstop_core::stream::{KeyWindow, Record, StoredKey};
use backstop_core::{LeaseNumber, StreamKey};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The first wait before a call of the store is tried again; doubled up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(1);

pub(super) struct RecordBatch {
    shared: Arc<StreamRuntime>,
    /// By key, each with its place in the batch.
    records: HashMap<StreamKey, Vec<(usize, Record)>>,
    count: usize,
}

/// Records with their places in the batch.
type PlacedRecords = Vec<(usize, Record)>;
/// What became of records, by their places in the batch.
type PlacedOutcomes = Vec<(usize, RecordOutcome)>;

impl RecordBatch {
    pub(super) fn of(shared: &Arc<StreamRuntime>, records: Vec<Record>) -> Self {
        let count = records.len();
        let mut by_key: HashMap<StreamKey, PlacedRecords> = HashMap::new();
        for (place, record) in records.into_iter().enumerate() {
            by_key
                .entry(record.key.clone())
                .or_default()
                .push((place, record));
        }
        Self {
            shared: Arc::clone(shared),
            records: by_key,
            count,
        }
    }

    /// Works the batch through; whoever waits for the answer may go away, what has begun is brought
    /// to its end.
    pub(super) async fn run(self) -> StoreResult<Vec<RecordOutcome>> {
        let tasks = self.shared.batches.clone();
        let (count, stream) = (self.count, self.shared.name.clone());
        let ended = tasks.spawn(self.work()).await;
        let answers =
            ended.map_err(|error| StoreError::unavailable("handling records", error))??;
        let mut outcomes = vec![None; count];
        for (place, answer) in answers {
            outcomes[place] = Some(answer);
        }
        let missing = || {
            StoreError::corrupt(
                "handling records",
                format!("a record of stream {stream} got no answer"),
            )
        };
        outcomes
            .into_iter()
            .map(|answer| answer.ok_or_else(missing))
            .collect()
    }

    async fn work(self) -> StoreResult<PlacedOutcomes> {
        let Self {
            shared,
            mut records,
            ..
        } = self;
        let mut answers = Vec::with_capacity(self.count);
        while !records.is_empty() {
            let names: Vec<StreamKey> = records.keys().take(STREAM_KEYS_MAX).cloned().collect();
            let mut part: HashMap<StreamKey, PlacedRecords> = names
                .iter()
                .filter_map(|name| records.remove_entry(name))
                .collect();
            let Some((number, taken)) = take(&shared, KeySelection::Keys(names)).await? else {
                let (handled, left) = store_outage::handle(&shared, part).await?;
                answers.extend(handled);
                if shared.outage.is_down() {
                    answers.extend(mark_full(left.into_values().flatten()));
                } else {
                    records.extend(left);
                }
                continue;
            };
            let keys = taken.into_iter().map(|stored| {
                let own = part.remove(&stored.key).unwrap_or_default();
                (stored, own)
            });
            let keys: Vec<(StoredKey, PlacedRecords)> = keys.collect();
            // Whatever becomes of the one, the other is brought to its end: its keys are in our
            // hands.
            let worked = work_through(&shared, number, keys, KeySource::Caller);
            let (busy, worked) = tokio::join!(leave_to_others(&shared, part), worked);
            answers.extend(busy?);
            answers.extend(worked?);
        }
        Ok(answers)
    }
}

/// Takes keys; `None` if the store does not answer, and what is to be done is to be done without
/// it.
pub(super) async fn take(
    shared: &Arc<StreamRuntime>,
    wanted: KeySelection,
) -> StoreResult<Option<(LeaseNumber, Vec<StoredKey>)>> {
    if shared.outage.is_down() {
        return Ok(None);
    }
    let number = shared.backstop.random().lease_number();
    let (began, mut wait) = (Instant::now(), RETRY_FIRST);
    loop {
        let now = shared.now();
        let take = TakeRequest {
            stream: shared.name.clone(),
            number,
            worker: shared.worker.clone(),
            until: now.after(shared.settings.lease),
            wanted: wanted.clone(),
        };
        match shared.store().take(take, now).await {
            Ok(taken) => {
                shared.outage.note_answer();
                let names = taken.keys.iter().map(|stored| stored.key.clone());
                // The first try may have been the one that counted.
                shared
                    .leases
                    .add(number, names, began + shared.settings.lease.into());
                return Ok(Some((number, taken.keys)));
            }
            Err(error) if !error.is_transient() => return Err(error),
            Err(error) if began.elapsed() >= shared.settings.patience.into() => {
                tracing::error!(%error, stream = %shared.name, "the store does not answer; records are handled without it, at once and with misses");
                shared.outage.note_down();
                return Ok(None);
            }
            Err(error) => {
                tracing::warn!(%error, stream = %shared.name, "keys not taken; trying again in {wait:?}");
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_LAST);
    }
}

/// Puts records by whose keys somebody else works on: that one, or the next to look, deals with
/// them.
async fn leave_to_others(
    shared: &Arc<StreamRuntime>,
    busy: HashMap<StreamKey, PlacedRecords>,
) -> StoreResult<PlacedOutcomes> {
    if busy.is_empty() {
        return Ok(Vec::new());
    }
    let (places, records): (Vec<usize>, Vec<Record>) = busy.into_values().flatten().unzip();
    let offered = offer_in_parts(&shared.backstop, &shared.name, records).await?;
    Ok(places
        .into_iter()
        .zip(offered.into_iter().map(outcome_of))
        .collect())
}

fn outcome_of(offered: OfferOutcome) -> RecordOutcome {
    match offered {
        OfferOutcome::Held => RecordOutcome::Held,
        OfferOutcome::Duplicate => RecordOutcome::Duplicate,
        OfferOutcome::Full => RecordOutcome::Full,
    }
}

/// What can only wait for the store is left to whoever brought it.
fn mark_full(
    left: impl Iterator<Item = (usize, Record)>,
) -> impl Iterator<Item = (usize, RecordOutcome)> {
    left.map(|(place, _)| (place, RecordOutcome::Full))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySource {
    /// Whoever has records for them.
    Caller,
    /// The look for what is due: each of them has a permit of [`Shared::due_key_permits`].
    DueScan,
}

/// Works keys through that are under the lease `number`, each with the records that came for it.
pub(super) async fn work_through(
    shared: &Arc<StreamRuntime>,
    number: LeaseNumber,
    keys: Vec<(StoredKey, PlacedRecords)>,
    source: KeySource,
) -> StoreResult<PlacedOutcomes> {
    let (submitter, writer) = BatchSubmitter::new(shared, keys.len());
    let shares = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(keys.len().max(1));
    let mut parts: Vec<Vec<(StoredKey, PlacedRecords)>> = (0..shares).map(|_| Vec::new()).collect();
    for (at, key) in keys.into_iter().enumerate() {
        parts[at % shares].push(key);
    }
    let parts: Vec<_> = parts
        .into_iter()
        .map(|part| {
            tokio::spawn(work_share(
                Arc::clone(shared),
                (number, source),
                part,
                submitter.clone(),
            ))
        })
        .collect();
    drop(submitter);
    writer.run().await;
    let (mut answers, mut again) = (Vec::new(), HashMap::new());
    for part in parts {
        let ended = part
            .await
            .map_err(|error| StoreError::unavailable("handling records", error))?;
        for (key, placed, ended) in ended {
            match ended {
                KeyWorkEnd::Written(outcomes) => {
                    answers.extend(placed.into_iter().map(|(place, record)| {
                        (
                            place,
                            outcomes
                                .get(&record.position)
                                .copied()
                                .unwrap_or(RecordOutcome::Duplicate),
                        )
                    }));
                }
                // Whoever has the key now knows nothing of these.
                KeyWorkEnd::Lost { .. } => {
                    again.insert(key, placed);
                }
                KeyWorkEnd::Offline(_, outcomes) => {
                    let known = |record: &Record| outcomes.get(&record.position).copied();
                    let (finished, unfinished): (PlacedRecords, PlacedRecords) = placed
                        .into_iter()
                        .partition(|(_, record)| known(record).is_some_and(is_final));
                    answers.extend(
                        finished
                            .iter()
                            .filter_map(|(place, record)| Some((*place, known(record)?))),
                    );
                    let (handled, left) =
                        store_outage::handle(shared, HashMap::from([(key, unfinished)])).await?;
                    answers.extend(handled);
                    if shared.outage.is_down() {
                        answers.extend(mark_full(left.into_values().flatten()));
                    } else {
                        again.extend(left);
                    }
                }
            }
        }
    }
    answers.extend(leave_to_others(shared, again).await?);
    Ok(answers)
}

/// Whether a record needs nothing more, with or without the store.
const fn is_final(outcome: RecordOutcome) -> bool {
    !matches!(outcome, RecordOutcome::Held | RecordOutcome::Full)
}

/// A key in one's hands. However the work on it ends, it is no longer kept alive then.
struct WorkedKeyGuard<'a> {
    shared: &'a Arc<StreamRuntime>,
    submitter: &'a BatchSubmitter,
    number: LeaseNumber,
    key: StreamKey,
    source: KeySource,
}

impl Drop for WorkedKeyGuard<'_> {
    fn drop(&mut self) {
        self.shared.leases.remove(self.number, &self.key);
        self.submitter.finish();
        if self.source == KeySource::DueScan {
            self.shared.due_key_permits.add_permits(1);
        }
    }
}

async fn work_share(
    shared: Arc<StreamRuntime>,
    (number, source): (LeaseNumber, KeySource),
    keys: Vec<(StoredKey, PlacedRecords)>,
    submitter: BatchSubmitter,
) -> Vec<(StreamKey, PlacedRecords, KeyWorkEnd)> {
    let keys = keys.into_iter().map(|(stored, placed)| {
        let in_hand = WorkedKeyGuard {
            shared: &shared,
            submitter: &submitter,
            number,
            key: stored.key.clone(),
            source,
        };
        async move {
            let ended = work_key(in_hand.shared, number, stored, &placed, in_hand.submitter).await;
            (in_hand.key.clone(), placed, ended)
        }
    });
    let mut keys: FuturesUnordered<_> = keys.collect();
    let mut ended = Vec::with_capacity(keys.len());
    while let Some(end) = keys.next().await {
        ended.push(end);
    }
    ended
}

async fn work_key(
    shared: &Arc<StreamRuntime>,
    number: LeaseNumber,
    stored: StoredKey,
    placed: &PlacedRecords,
    submitter: &BatchSubmitter,
) -> KeyWorkEnd {
    let seen = stored.arrived;
    let key = stored.key.clone();
    let mut window = match KeyWindow::load(stored) {
        Ok(window) => window,
        // Its records are put by like those of a key that somebody else has; other keys go on.
        Err(error) => {
            tracing::error!(%error, stream = %shared.name, %key, "a key cannot be read; forget it with `backstop stream forget`");
            return KeyWorkEnd::Lost { has_written: true };
        }
    };
    let meanwhile = shared.outage.remove(window.key()).await;
    if let Some(meanwhile) = &meanwhile {
        window.catch_up(meanwhile.clone());
    }
    window.arrive(
        placed.iter().map(|(_, record)| record.clone()),
        shared.now(),
    );
    let ended = KeyWorker::new(shared, window, number, seen)
        .work(submitter)
        .await;
    // The key is still in hand: nobody here goes on with it before it is known how far it is.
    match (&ended, meanwhile) {
        (KeyWorkEnd::Offline(window, _), _) => shared.outage.put(window.as_ref().clone()).await,
        (KeyWorkEnd::Lost { has_written: false }, Some(meanwhile)) => {
            shared.outage.put(meanwhile).await;
        }
        _ => {}
    }
    ended
}
