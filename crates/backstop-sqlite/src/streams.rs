//! Ordered streams. A take does not write a key's row, only an advance does: leases of keys have a
//! table of their own.

mod advance;
mod changes;
mod keep;
mod key;
mod lease;
mod list;
mod offer;
mod records;
mod take;

pub(crate) use changes::StreamChanges;

use crate::writer::WriteDurability;
use crate::{PAGE_BYTES, SqliteStore, task};
use async_trait::async_trait;
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::backlog::{check_count, check_lease_duration};
use backstop_core::port::streams::{check_advances, check_offer, check_take};
use backstop_core::port::{
    AdvanceOutcome, KeyAdvance, KeyLease, KeySelection, KeyStatus, ListKeysRequest, OfferOutcome,
    StoreResult, StreamStatus, StreamStore, TakeRequest, TakeResult,
};
use backstop_core::stream::{Record, StoredKey};
use backstop_core::{StreamKey, StreamName, Time};

#[async_trait]
impl StreamStore for SqliteStore {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> StoreResult<Vec<OfferOutcome>> {
        check_offer(&records)?;
        let pages = records
            .iter()
            .map(|record| record.payload.len())
            .sum::<usize>()
            / PAGE_BYTES;
        let task = task("offering", WriteDurability::Durable, records.len() + pages);
        self.writer
            .call(task, move |tx| offer::offer(tx, &stream, &records, now))
            .await
    }

    async fn take(&self, take: TakeRequest, now: Time) -> StoreResult<TakeResult> {
        check_take(&take, now)?;
        let rows = match &take.wanted {
            KeySelection::Keys(keys) | KeySelection::Seized(keys) => keys.len(),
            KeySelection::Due(max) => *max,
        };
        let task = task("taking keys", WriteDurability::Claim, rows);
        self.writer
            .call(task, move |tx| take::take(tx, &take, now))
            .await
    }

    async fn keep(
        &self,
        leases: Vec<KeyLease>,
        until: Time,
        now: Time,
    ) -> StoreResult<Vec<KeyLease>> {
        check_count("keep", leases.len(), STREAM_KEYS_MAX)?;
        check_lease_duration("keep", until, now)?;
        let task = task("keeping keys", WriteDurability::Light, leases.len());
        self.writer
            .call(task, move |tx| keep::keep(tx, &leases, until, now))
            .await
    }

    async fn advance(
        &self,
        advances: Vec<KeyAdvance>,
        now: Time,
    ) -> StoreResult<Vec<AdvanceOutcome>> {
        check_advances(&advances, now)?;
        let rows = advances.iter().map(advance::rows).sum();
        let task = task("advancing keys", WriteDurability::Durable, rows);
        self.writer
            .call(task, move |tx| advance::advance(tx, &advances, now))
            .await
    }

    async fn streams(&self) -> StoreResult<Vec<StreamStatus>> {
        self.lists.call("listing streams", list::streams).await
    }

    async fn stream_keys(&self, query: ListKeysRequest, now: Time) -> StoreResult<Vec<KeyStatus>> {
        self.lists
            .call("listing keys", move |db| list::keys(db, &query, now))
            .await
    }

    async fn stream_key(
        &self,
        stream: StreamName,
        key: StreamKey,
    ) -> StoreResult<Option<StoredKey>> {
        self.lists
            .call("looking at a key", move |db| list::key(db, &stream, &key))
            .await
    }
}
