//! Ordered streams, one file a method.

mod advance;
mod due;
mod head;
mod keep;
mod list;
mod mend;
mod offer;
mod shard;
mod take;

pub(crate) use mend::{find_streams, mend, mend_what_disagrees, what_disagrees};

use crate::RedisStore;
use async_trait::async_trait;
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::backlog::{check_count, check_term};
use backstop_core::port::streams::{check_advances, check_offer, check_take};
use backstop_core::port::{
    Advance, Advanced, Answer, KeyLease, KeyQuery, KeyStatus, Offered, StreamStatus, Streams, Take,
    Taken, Wanted,
};
use backstop_core::stream::{Record, StoredKey};
use backstop_core::{StreamKey, StreamName, Time};

#[async_trait]
impl Streams for RedisStore {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> Answer<Vec<Offered>> {
        check_offer(&records)?;
        offer::offer(self.base(), &stream, &records, now).await
    }

    async fn take(&self, take: Take, now: Time) -> Answer<Taken> {
        check_take(&take, now)?;
        match &take.wanted {
            Wanted::Keys(keys) | Wanted::Seized(keys) => {
                take::take(self.base(), &take, keys, now).await
            }
            Wanted::Due(max) => due::take_due(self.base(), &take, *max, now).await,
        }
    }

    async fn keep(&self, leases: Vec<KeyLease>, until: Time, now: Time) -> Answer<Vec<KeyLease>> {
        check_count("keep", leases.len(), STREAM_KEYS_MAX)?;
        check_term("keep", until, now)?;
        keep::keep(self.base(), leases, until, now).await
    }

    async fn advance(&self, advances: Vec<Advance>, now: Time) -> Answer<Vec<Advanced>> {
        check_advances(&advances, now)?;
        advance::advance(self.base(), &advances, now).await
    }

    async fn streams(&self) -> Answer<Vec<StreamStatus>> {
        let _turn = self.base().list_turn("listing streams").await?;
        list::streams(self.base()).await
    }

    async fn stream_keys(&self, query: KeyQuery, now: Time) -> Answer<Vec<KeyStatus>> {
        let _turn = self.base().list_turn("listing keys").await?;
        list::stream_keys(self.base(), &query, now).await
    }

    async fn stream_key(&self, stream: StreamName, key: StreamKey) -> Answer<Option<StoredKey>> {
        let _turn = self.base().list_turn("looking at a key").await?;
        list::stream_key(self.base(), &stream, key).await
    }
}
