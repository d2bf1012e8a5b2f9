//! The ordered streams of the port, on PostgreSQL.

mod advance;
mod distinct_names;
mod keep;
mod list;
mod offer;
mod stored;
mod take;

use crate::PostgresStore;
use async_trait::async_trait;
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::backlog::{check_count, check_lease_duration};
use backstop_core::port::streams::{check_advances, check_offer, check_take};
use backstop_core::port::{
    AdvanceOutcome, KeyAdvance, KeyLease, KeyStatus, ListKeysRequest, OfferOutcome, StoreResult,
    StreamStatus, StreamStore, TakeRequest, TakeResult,
};
use backstop_core::stream::{Record, StoredKey};
use backstop_core::{StreamKey, StreamName, Time};

#[async_trait]
impl StreamStore for PostgresStore {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> StoreResult<Vec<OfferOutcome>> {
        check_offer(&records)?;
        let answers = offer::offer(&self.link, self.commit, &stream, &records, now).await?;
        if answers.contains(&OfferOutcome::Held) {
            self.notify_workers();
        }
        Ok(answers)
    }

    async fn take(&self, take: TakeRequest, now: Time) -> StoreResult<TakeResult> {
        check_take(&take, now)?;
        take::take(&self.link, &self.scan_hints, &take, now).await
    }

    async fn keep(
        &self,
        leases: Vec<KeyLease>,
        until: Time,
        now: Time,
    ) -> StoreResult<Vec<KeyLease>> {
        check_count("keep", leases.len(), STREAM_KEYS_MAX)?;
        check_lease_duration("keep", until, now)?;
        keep::keep(&self.link, leases, until, now).await
    }

    async fn advance(
        &self,
        advances: Vec<KeyAdvance>,
        now: Time,
    ) -> StoreResult<Vec<AdvanceOutcome>> {
        check_advances(&advances, now)?;
        let (answers, is_due) = advance::advance(&self.link, self.commit, &advances, now).await?;
        if is_due {
            self.notify_workers();
        }
        Ok(answers)
    }

    async fn streams(&self) -> StoreResult<Vec<StreamStatus>> {
        let _turn = self.link.list_turn("listing streams").await?;
        list::streams(&self.link).await
    }

    async fn stream_keys(&self, query: ListKeysRequest, now: Time) -> StoreResult<Vec<KeyStatus>> {
        let _turn = self.link.list_turn("listing keys").await?;
        list::keys(&self.link, &query, now).await
    }

    async fn stream_key(
        &self,
        stream: StreamName,
        key: StreamKey,
    ) -> StoreResult<Option<StoredKey>> {
        let _turn = self.link.list_turn("looking at a key").await?;
        list::key(&self.link, &stream, &key).await
    }
}
