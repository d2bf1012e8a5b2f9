//! Records that came together: taken to their keys, worked through, and written down, all at once.
//!
//! One take brings all keys. Each key is worked through by a [`Hand`]; what the hands have to say
//! is written together by the [`Outlet`]. A batch in order is two round trips: the take, and one
//! advance.

use super::adrift;
use super::hand::{Ended, Hand};
use super::operate::offer_in_parts;
use super::outlet::Outlet;
use super::running::{Became, Shared};
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::{Answer, Offered, StoreError, Take, Wanted};
use backstop_core::stream::{Record, StoredKey, Window};
use backstop_core::{LeaseNumber, StreamKey};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The first wait before a call of the store is tried again; doubled up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// Records that came together.
pub(super) struct Batch {
    shared: Arc<Shared>,
    /// By key, each with its place in the batch.
    records: HashMap<StreamKey, Vec<(usize, Record)>>,
    count: usize,
}

/// Records with their places in the batch.
type Placed = Vec<(usize, Record)>;
/// What became of records, by their places in the batch.
type Answers = Vec<(usize, Became)>;

impl Batch {
    pub(super) fn of(shared: &Arc<Shared>, records: Vec<Record>) -> Self {
        let count = records.len();
        let mut by_key: HashMap<StreamKey, Placed> = HashMap::new();
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
    pub(super) async fn run(self) -> Answer<Vec<Became>> {
        let tasks = self.shared.batches.clone();
        let (count, stream) = (self.count, self.shared.name.clone());
        let ended = tasks.spawn(self.work()).await;
        let answers =
            ended.map_err(|error| StoreError::unavailable("handling records", error))??;
        let mut became = vec![None; count];
        for (place, answer) in answers {
            became[place] = Some(answer);
        }
        let missing = || {
            StoreError::corrupt(
                "handling records",
                format!("a record of stream {stream} got no answer"),
            )
        };
        became
            .into_iter()
            .map(|answer| answer.ok_or_else(missing))
            .collect()
    }

    async fn work(self) -> Answer<Answers> {
        let Self {
            shared,
            mut records,
            ..
        } = self;
        let mut answers = Vec::with_capacity(self.count);
        while !records.is_empty() {
            let names: Vec<StreamKey> = records.keys().take(STREAM_KEYS_MAX).cloned().collect();
            let mut part: HashMap<StreamKey, Placed> = names
                .iter()
                .filter_map(|name| records.remove_entry(name))
                .collect();
            let Some((number, taken)) = take(&shared, Wanted::Keys(names)).await? else {
                let (handled, left) = adrift::handle(&shared, part).await?;
                answers.extend(handled);
                if shared.adrift.is_down() {
                    answers.extend(not_taken(left.into_values().flatten()));
                } else {
                    records.extend(left);
                }
                continue;
            };
            let hands = taken.into_iter().map(|stored| {
                let own = part.remove(&stored.key).unwrap_or_default();
                (stored, own)
            });
            let hands: Vec<(StoredKey, Placed)> = hands.collect();
            // Whatever becomes of the one, the other is brought to its end: its keys are in our
            // hands.
            let worked = work_through(&shared, number, hands, Brought::Here);
            let (busy, worked) = tokio::join!(put_by(&shared, part), worked);
            answers.extend(busy?);
            answers.extend(worked?);
        }
        Ok(answers)
    }
}

/// Takes keys; `None` if the store does not answer, and what is to be done is to be done without
/// it.
pub(super) async fn take(
    shared: &Arc<Shared>,
    wanted: Wanted,
) -> Answer<Option<(LeaseNumber, Vec<StoredKey>)>> {
    if shared.adrift.is_down() {
        return Ok(None);
    }
    let number = shared.backstop.random().lease_number();
    let (began, mut wait) = (Instant::now(), RETRY_FIRST);
    loop {
        let now = shared.now();
        let take = Take {
            stream: shared.name.clone(),
            number,
            worker: shared.worker.clone(),
            until: now.after(shared.settings.lease),
            wanted: wanted.clone(),
        };
        match shared.store().take(take, now).await {
            Ok(taken) => {
                shared.adrift.answered();
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
                shared.adrift.went_down();
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
async fn put_by(shared: &Arc<Shared>, busy: HashMap<StreamKey, Placed>) -> Answer<Answers> {
    if busy.is_empty() {
        return Ok(Vec::new());
    }
    let (places, records): (Vec<usize>, Vec<Record>) = busy.into_values().flatten().unzip();
    let offered = offer_in_parts(&shared.backstop, &shared.name, records).await?;
    Ok(places
        .into_iter()
        .zip(offered.into_iter().map(became))
        .collect())
}

fn became(offered: Offered) -> Became {
    match offered {
        Offered::Held => Became::Held,
        Offered::Duplicate => Became::Duplicate,
        Offered::Full => Became::Full,
    }
}

/// What can only wait for the store is left to whoever brought it.
fn not_taken(left: impl Iterator<Item = (usize, Record)>) -> impl Iterator<Item = (usize, Became)> {
    left.map(|(place, _)| (place, Became::Full))
}

/// Who brought keys here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Brought {
    /// Whoever has records for them.
    Here,
    /// The look for what is due: each of them has a permit of [`Shared::looked_after`].
    Looked,
}

/// Works keys through that are under the lease `number`, each with the records that came for it.
pub(super) async fn work_through(
    shared: &Arc<Shared>,
    number: LeaseNumber,
    keys: Vec<(StoredKey, Placed)>,
    brought: Brought,
) -> Answer<Answers> {
    let (outlet, written) = Outlet::new(shared, keys.len());
    let shares = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(keys.len().max(1));
    let mut parts: Vec<Vec<(StoredKey, Placed)>> = (0..shares).map(|_| Vec::new()).collect();
    for (at, key) in keys.into_iter().enumerate() {
        parts[at % shares].push(key);
    }
    let parts: Vec<_> = parts
        .into_iter()
        .map(|part| {
            tokio::spawn(work_share(
                Arc::clone(shared),
                (number, brought),
                part,
                outlet.clone(),
            ))
        })
        .collect();
    drop(outlet);
    written.run().await;
    let (mut answers, mut again) = (Vec::new(), HashMap::new());
    for part in parts {
        let ended = part
            .await
            .map_err(|error| StoreError::unavailable("handling records", error))?;
        for (key, placed, ended) in ended {
            match ended {
                Ended::Written(became) => {
                    answers.extend(placed.into_iter().map(|(place, record)| {
                        (
                            place,
                            became
                                .get(&record.position)
                                .copied()
                                .unwrap_or(Became::Duplicate),
                        )
                    }));
                }
                // Whoever has the key now knows nothing of these.
                Ended::Lost { .. } => {
                    again.insert(key, placed);
                }
                Ended::Adrift(_, became) => {
                    let known = |record: &Record| became.get(&record.position).copied();
                    let (told, untold): (Placed, Placed) = placed
                        .into_iter()
                        .partition(|(_, record)| known(record).is_some_and(is_final));
                    answers.extend(
                        told.iter()
                            .filter_map(|(place, record)| Some((*place, known(record)?))),
                    );
                    let (handled, left) =
                        adrift::handle(shared, HashMap::from([(key, untold)])).await?;
                    answers.extend(handled);
                    if shared.adrift.is_down() {
                        answers.extend(not_taken(left.into_values().flatten()));
                    } else {
                        again.extend(left);
                    }
                }
            }
        }
    }
    answers.extend(put_by(shared, again).await?);
    Ok(answers)
}

/// Whether a record needs nothing more, with or without the store.
const fn is_final(became: Became) -> bool {
    !matches!(became, Became::Held | Became::Full)
}

/// A key in one's hands. However the work on it ends, it is no longer kept alive then.
struct InHand<'a> {
    shared: &'a Arc<Shared>,
    outlet: &'a Outlet,
    number: LeaseNumber,
    key: StreamKey,
    brought: Brought,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.shared.leases.remove(self.number, &self.key);
        self.outlet.leave();
        if self.brought == Brought::Looked {
            self.shared.looked_after.add_permits(1);
        }
    }
}

async fn work_share(
    shared: Arc<Shared>,
    (number, brought): (LeaseNumber, Brought),
    keys: Vec<(StoredKey, Placed)>,
    outlet: Outlet,
) -> Vec<(StreamKey, Placed, Ended)> {
    let hands = keys.into_iter().map(|(stored, placed)| {
        let in_hand = InHand {
            shared: &shared,
            outlet: &outlet,
            number,
            key: stored.key.clone(),
            brought,
        };
        async move {
            let ended = work_key(in_hand.shared, number, stored, &placed, in_hand.outlet).await;
            (in_hand.key.clone(), placed, ended)
        }
    });
    let mut hands: FuturesUnordered<_> = hands.collect();
    let mut ended = Vec::with_capacity(hands.len());
    while let Some(end) = hands.next().await {
        ended.push(end);
    }
    ended
}

async fn work_key(
    shared: &Arc<Shared>,
    number: LeaseNumber,
    stored: StoredKey,
    placed: &Placed,
    outlet: &Outlet,
) -> Ended {
    let seen = stored.arrived;
    let key = stored.key.clone();
    let mut window = match Window::load(stored) {
        Ok(window) => window,
        // Its records are put by like those of a key that somebody else has; other keys go on.
        Err(error) => {
            tracing::error!(%error, stream = %shared.name, %key, "a key cannot be read; forget it with `backstop stream forget`");
            return Ended::Lost { has_written: true };
        }
    };
    let meanwhile = shared.adrift.remove(window.key()).await;
    if let Some(meanwhile) = &meanwhile {
        window.catch_up(meanwhile.clone());
    }
    window.arrive(
        placed.iter().map(|(_, record)| record.clone()),
        shared.now(),
    );
    let ended = Hand::new(shared, window, number, seen).work(outlet).await;
    // The key is still in hand: nobody here goes on with it before it is known how far it is.
    match (&ended, meanwhile) {
        (Ended::Adrift(window, _), _) => shared.adrift.put(window.as_ref().clone()).await,
        (Ended::Lost { has_written: false }, Some(meanwhile)) => shared.adrift.put(meanwhile).await,
        _ => {}
    }
    ended
}
