//! Ordered streams of records, in memory.

use crate::MemoryStore;
use async_trait::async_trait;
use backstop_core::lease::{LeaseNumber, extend_lease, is_expired};
use backstop_core::limits::{
    KEY_RECORDS_MAX, PAGE_BYTES_MAX, PAGE_MAX, STREAM_KEYS_MAX, TAKE_BYTES_MAX, WINDOW_RECORDS_MAX,
};
use backstop_core::port::KeyLeaseHolder;
use backstop_core::port::backlog::{check_count, check_lease_duration};
use backstop_core::port::streams::{check_advances, check_offer, check_take};
use backstop_core::port::{
    AdvanceOutcome, KeyAdvance, KeyFilter, KeyLease, KeyLeaseAction, KeySelection, KeyStatus,
    ListKeysRequest, OfferOutcome, StoreResult, StreamStatus, StreamStore, TakeRequest, TakeResult,
};
use backstop_core::stream::{Record, StoredKey, StoredRecord, StreamCounts};
use backstop_core::{StreamKey, StreamName, Time};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The state of one stream.
#[derive(Debug, Default)]
pub(crate) struct MemoryStream {
    keys: BTreeMap<StreamKey, MemoryKey>,
    counts: StreamCounts,
}

#[derive(Debug, Default)]
struct MemoryKey {
    watermark: Option<i64>,
    state: Vec<u8>,
    arrived: u64,
    records: BTreeMap<i64, StoredRecord>,
    /// When a worker must look at the key: at its wake-up time, at the end of its lease, or when a
    /// record arrived.
    due: Option<Time>,
    holder: Option<KeyLeaseHolder>,
    /// The current or last lease of the key, and the last turn of it that was accepted.
    last: Option<(LeaseNumber, u32)>,
}

#[async_trait]
impl StreamStore for MemoryStore {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> StoreResult<Vec<OfferOutcome>> {
        check_offer(&records)?;
        let mut state = self.lock_state("offering")?;
        let stream = state.streams.entry(stream).or_default();
        let answers = records
            .into_iter()
            .map(|record| {
                stream
                    .keys
                    .entry(record.key.clone())
                    .or_default()
                    .offer(record, now)
            })
            .collect();
        drop(state);
        self.notify_watchers();
        Ok(answers)
    }

    async fn take(&self, take: TakeRequest, now: Time) -> StoreResult<TakeResult> {
        check_take(&take, now)?;
        let mut state = self.lock_state("taking keys")?;
        let stream = state.streams.entry(take.stream.clone()).or_default();
        if !stream.keys.values().any(|key| key.is_under(take.number)) {
            stream.hand_out(&take, now);
        }
        let taken = stream
            .keys
            .iter()
            .filter(|(_, key)| key.is_under(take.number));
        let keys = taken.map(|(name, key)| key.stored(name)).collect();
        let next_due = match take.wanted {
            KeySelection::Due(_) => stream.keys.values().filter_map(|key| key.due).min(),
            KeySelection::Keys(_) | KeySelection::Seized(_) => None,
        };
        Ok(TakeResult { keys, next_due })
    }

    async fn keep(
        &self,
        leases: Vec<KeyLease>,
        until: Time,
        now: Time,
    ) -> StoreResult<Vec<KeyLease>> {
        check_count("keep", leases.len(), STREAM_KEYS_MAX)?;
        check_lease_duration("keep", until, now)?;
        let mut state = self.lock_state("keeping keys")?;
        let lost = leases.into_iter().filter(|lease| {
            let stream = state.streams.get_mut(&lease.stream);
            let key = stream.and_then(|stream| stream.keys.get_mut(&lease.key));
            let Some(key) = key.filter(|key| key.is_under(lease.number)) else {
                return true;
            };
            key.extend(until, now);
            false
        });
        Ok(lost.collect())
    }

    async fn advance(
        &self,
        advances: Vec<KeyAdvance>,
        now: Time,
    ) -> StoreResult<Vec<AdvanceOutcome>> {
        check_advances(&advances, now)?;
        let mut state = self.lock_state("advancing keys")?;
        let mut is_due = false;
        let answers = advances.into_iter().map(|advance| {
            let lease = advance.lease.clone();
            let stream = state.streams.entry(lease.stream.clone()).or_default();
            let answer = stream.advance(advance, now);
            is_due |= stream
                .keys
                .get(&lease.key)
                .is_some_and(|key| key.due.is_some());
            answer
        });
        let answers = answers.collect();
        drop(state);
        if is_due {
            self.notify_watchers();
        }
        Ok(answers)
    }

    async fn streams(&self) -> StoreResult<Vec<StreamStatus>> {
        let state = self.lock_state("listing streams")?;
        let known = state.streams.iter().filter(|(_, stream)| stream.is_known());
        Ok(known.map(|(name, stream)| stream.status(name)).collect())
    }

    async fn stream_keys(&self, query: ListKeysRequest, now: Time) -> StoreResult<Vec<KeyStatus>> {
        let state = self.lock_state("listing keys")?;
        let Some(stream) = state.streams.get(&query.stream) else {
            return Ok(Vec::new());
        };
        let from = query.after.map_or(Bound::Unbounded, Bound::Excluded);
        let fitting = stream
            .keys
            .range((from, Bound::Unbounded))
            .filter(|(_, key)| query.filter == KeyFilter::All || !key.records.is_empty());
        let limit = query.limit.clamp(1, PAGE_MAX);
        Ok(fitting
            .take(limit)
            .map(|(name, key)| key.status(name, now))
            .collect())
    }

    async fn stream_key(
        &self,
        stream: StreamName,
        key: StreamKey,
    ) -> StoreResult<Option<StoredKey>> {
        let state = self.lock_state("looking at a key")?;
        let found = state
            .streams
            .get(&stream)
            .and_then(|stream| stream.keys.get(&key));
        Ok(found.map(|found| {
            let mut stored = found.stored(&key);
            let mut bytes = 0;
            stored.records.retain(|record| {
                let is_shown = bytes < PAGE_BYTES_MAX;
                bytes += record.payload.len();
                is_shown
            });
            stored
        }))
    }
}

impl MemoryStream {
    fn hand_out(&mut self, take: &TakeRequest, now: Time) {
        let wanted: Vec<StreamKey> = match &take.wanted {
            KeySelection::Keys(keys) | KeySelection::Seized(keys) => keys.clone(),
            KeySelection::Due(max) => self.first_due(*max, now),
        };
        let may_seize = matches!(take.wanted, KeySelection::Seized(_));
        let mut bytes = 0;
        for name in wanted {
            let is_held = self.keys.get(&name).is_some_and(|key| key.is_held(now));
            if is_held && !may_seize || bytes >= TAKE_BYTES_MAX {
                continue;
            }
            let key = self.keys.entry(name).or_default();
            bytes += key
                .records
                .values()
                .take(WINDOW_RECORDS_MAX)
                .map(|record| record.payload.len())
                .sum::<usize>();
            key.holder = Some(KeyLeaseHolder {
                worker: take.worker.clone(),
                until: take.until,
            });
            key.last = Some((take.number, 0));
            key.due = key.due_under_lease();
        }
    }

    fn first_due(&self, max: usize, now: Time) -> Vec<StreamKey> {
        let due = self
            .keys
            .iter()
            .filter_map(|(name, key)| Some((key.due.filter(|_| !key.is_held(now))?, name)));
        let mut due: Vec<_> = due.filter(|(at, _)| *at <= now).collect();
        due.sort();
        due.into_iter()
            .take(max)
            .map(|(_, name)| name.clone())
            .collect()
    }

    fn advance(&mut self, advance: KeyAdvance, now: Time) -> AdvanceOutcome {
        let KeyAdvance {
            lease,
            turn,
            seen,
            change,
            lease_action: then,
        } = advance;
        let Some(key) = self.keys.get_mut(&lease.key) else {
            return if then == KeyLeaseAction::Clear {
                AdvanceOutcome::Applied
            } else {
                AdvanceOutcome::Stale
            };
        };
        match key.last {
            Some((number, last)) if number == lease.number && turn <= last => {
                return AdvanceOutcome::Applied;
            }
            Some((number, _)) if number == lease.number && key.holder.is_some() => {}
            _ => return AdvanceOutcome::Stale,
        }
        key.last = Some((lease.number, turn));
        key.watermark = change.watermark;
        key.state = change.state;
        for position in change.drop {
            key.records.remove(&position);
        }
        for record in change.hold {
            // A record offered meanwhile at this position is the same record, and is counted with
            // this one.
            key.records.entry(record.position).or_insert(record).arrival = 0;
        }
        self.counts.add(&change.counts);
        match then {
            KeyLeaseAction::Keep(until) => key.extend(until, now),
            KeyLeaseAction::Release(wake) => {
                key.holder = None;
                key.due = if key.arrived > seen { Some(now) } else { wake };
            }
            KeyLeaseAction::Clear => {
                key.records.clear();
                (key.holder, key.due) = (None, None);
                if key.watermark.is_none() && key.state.is_empty() {
                    self.keys.remove(&lease.key);
                }
            }
        }
        AdvanceOutcome::Applied
    }

    /// Whether the stream has any keys, or any counts.
    fn is_known(&self) -> bool {
        !self.keys.is_empty() || !self.counts.is_empty()
    }

    fn status(&self, name: &StreamName) -> StreamStatus {
        let records = || self.keys.values().flat_map(|key| key.records.values());
        StreamStatus {
            name: name.clone(),
            keys: self.keys.len() as u64,
            holding: self
                .keys
                .values()
                .filter(|key| !key.records.is_empty())
                .count() as u64,
            records: records().count() as u64,
            oldest: records().map(|record| record.at).min(),
            counts: self.counts,
        }
    }
}

impl MemoryKey {
    fn offer(&mut self, record: Record, now: Time) -> OfferOutcome {
        if self.records.contains_key(&record.position) {
            return OfferOutcome::Duplicate;
        }
        if self.records.len() as u64 >= KEY_RECORDS_MAX {
            return OfferOutcome::Full;
        }
        self.arrived += 1;
        let from = self
            .holder
            .as_ref()
            .map(|holder| holder.until)
            .filter(|_| self.is_held(now))
            .unwrap_or(now);
        self.due = Some(self.due.map_or(from, |due| due.min(from)));
        let Record {
            position,
            step,
            tenant,
            payload,
            ..
        } = record;
        self.records.insert(
            position,
            StoredRecord {
                position,
                step,
                tenant,
                at: now,
                arrival: self.arrived,
                payload,
            },
        );
        OfferOutcome::Held
    }

    fn is_under(&self, number: LeaseNumber) -> bool {
        self.holder.is_some() && self.last.is_some_and(|(last, _)| last == number)
    }

    fn is_held(&self, now: Time) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| !is_expired(holder.until, now))
    }

    fn extend(&mut self, until: Time, now: Time) {
        if let Some(holder) = &mut self.holder {
            holder.until = extend_lease(holder.until, until, now);
        }
        self.due = self.due_under_lease();
    }

    /// If the holder leaves work undone, the key is due again when the lease ends.
    fn due_under_lease(&self) -> Option<Time> {
        self.holder
            .as_ref()
            .map(|holder| holder.until)
            .filter(|_| !self.records.is_empty())
    }

    fn stored(&self, name: &StreamKey) -> StoredKey {
        StoredKey {
            key: name.clone(),
            watermark: self.watermark,
            state: self.state.clone(),
            arrived: self.arrived,
            records: self
                .records
                .values()
                .take(WINDOW_RECORDS_MAX)
                .cloned()
                .collect(),
            count: self.records.len() as u64,
            highest: self.records.last_key_value().map(|(position, _)| *position),
        }
    }

    fn status(&self, name: &StreamKey, now: Time) -> KeyStatus {
        let is_held = self.is_held(now);
        KeyStatus {
            key: name.clone(),
            watermark: self.watermark,
            state: self.state.clone(),
            records: self.records.len() as u64,
            oldest: self.records.values().map(|record| record.at).min(),
            due: self.due.filter(|_| !is_held),
            holder: self.holder.clone().filter(|_| is_held),
        }
    }
}
