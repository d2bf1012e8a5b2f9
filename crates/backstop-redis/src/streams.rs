//! Ordered streams, one file per method.

mod advance;
mod due;
mod head;
mod keep;
mod list;
mod offer;
mod repair;
mod shard;
mod take;

pub(crate) use repair::{find_mismatches, find_streams, mend, repair_mismatches};

use crate::RedisStore;
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
impl StreamStore for RedisStore {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> StoreResult<Vec<OfferOutcome>> {
        check_offer(&records)?;
        offer::offer(self.base(), &stream, &records, now).await
    }

    async fn take(&self, take: TakeRequest, now: Time) -> StoreResult<TakeResult> {
        check_take(&take, now)?;
        match &take.wanted {
            KeySelection::Keys(keys) | KeySelection::Seized(keys) => {
                take::take(self.base(), &take, keys, now).await
            }
            KeySelection::Due(max) => due::take_due(self.base(), &take, *max, now).await,
        }
    }

    async fn keep(
        &self,
        leases: Vec<KeyLease>,
        until: Time,
        now: Time,
    ) -> StoreResult<Vec<KeyLease>> {
        check_count("keep", leases.len(), STREAM_KEYS_MAX)?;
        check_lease_duration("keep", until, now)?;
        keep::keep(self.base(), leases, until, now).await
    }

    async fn advance(
        &self,
        advances: Vec<KeyAdvance>,
        now: Time,
    ) -> StoreResult<Vec<AdvanceOutcome>> {
        check_advances(&advances, now)?;
        advance::advance(self.base(), &advances, now).await
    }

    async fn streams(&self) -> StoreResult<Vec<StreamStatus>> {
        let _turn = self.base().list_turn("listing streams").await?;
        list::streams(self.base()).await
    }

    async fn stream_keys(&self, query: ListKeysRequest, now: Time) -> StoreResult<Vec<KeyStatus>> {
        let _turn = self.base().list_turn("listing keys").await?;
        list::stream_keys(self.base(), &query, now).await
    }

    async fn stream_key(
        &self,
        stream: StreamName,
        key: StreamKey,
    ) -> StoreResult<Option<StoredKey>> {
        let _turn = self.base().list_turn("looking at a key").await?;
        list::stream_key(self.base(), &stream, key).await
    }
}
