//! Ordered streams.

mod advance;
mod keep;
mod list;
mod named;
mod offer;
mod stored;
mod take;

use crate::PostgresStore;
use async_trait::async_trait;
use backstop_core::limits::STREAM_KEYS_MAX;
use backstop_core::port::backlog::{check_count, check_term};
use backstop_core::port::streams::{check_advances, check_offer, check_take};
use backstop_core::port::{
    Advance, Advanced, Answer, KeyLease, KeyQuery, KeyStatus, Offered, StreamStatus, Streams, Take,
    Taken,
};
use backstop_core::stream::{Record, StoredKey};
use backstop_core::{StreamKey, StreamName, Time};

#[async_trait]
impl Streams for PostgresStore {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> Answer<Vec<Offered>> {
        check_offer(&records)?;
        let answers = offer::offer(&self.link, self.commit, &stream, &records, now).await?;
        if answers.contains(&Offered::Held) {
            self.stir();
        }
        Ok(answers)
    }

    async fn take(&self, take: Take, now: Time) -> Answer<Taken> {
        check_take(&take, now)?;
        take::take(&self.link, &self.floors, &take, now).await
    }

    async fn keep(&self, leases: Vec<KeyLease>, until: Time, now: Time) -> Answer<Vec<KeyLease>> {
        check_count("keep", leases.len(), STREAM_KEYS_MAX)?;
        check_term("keep", until, now)?;
        keep::keep(&self.link, leases, until, now).await
    }

    async fn advance(&self, advances: Vec<Advance>, now: Time) -> Answer<Vec<Advanced>> {
        check_advances(&advances, now)?;
        let (answers, is_due) = advance::advance(&self.link, self.commit, &advances, now).await?;
        if is_due {
            self.stir();
        }
        Ok(answers)
    }

    async fn streams(&self) -> Answer<Vec<StreamStatus>> {
        let _turn = self.link.list_turn("listing streams").await?;
        list::streams(&self.link).await
    }

    async fn stream_keys(&self, query: KeyQuery, now: Time) -> Answer<Vec<KeyStatus>> {
        let _turn = self.link.list_turn("listing keys").await?;
        list::keys(&self.link, &query, now).await
    }

    async fn stream_key(&self, stream: StreamName, key: StreamKey) -> Answer<Option<StoredKey>> {
        let _turn = self.link.list_turn("looking at a key").await?;
        list::key(&self.link, &stream, &key).await
    }
}
