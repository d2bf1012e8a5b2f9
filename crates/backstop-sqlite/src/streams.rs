//! Ordered streams. A key's row is written when it is advanced, and not when it is taken: who has
//! it is kept apart.

mod advance;
mod keep;
mod key;
mod lease;
mod ledger;
mod list;
mod offer;
mod records;
mod take;

pub(crate) use ledger::Ledger;

use crate::writer::Effort;
use crate::{PAGE_BYTES, SqliteStore, task};
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
impl Streams for SqliteStore {
    async fn offer(
        &self,
        stream: StreamName,
        records: Vec<Record>,
        now: Time,
    ) -> Answer<Vec<Offered>> {
        check_offer(&records)?;
        let pages = records
            .iter()
            .map(|record| record.payload.len())
            .sum::<usize>()
            / PAGE_BYTES;
        let task = task("offering", Effort::Durable, records.len() + pages);
        self.writer
            .call(task, move |work| offer::offer(work, &stream, &records, now))
            .await
    }

    async fn take(&self, take: Take, now: Time) -> Answer<Taken> {
        check_take(&take, now)?;
        let rows = match &take.wanted {
            Wanted::Keys(keys) | Wanted::Seized(keys) => keys.len(),
            Wanted::Due(max) => *max,
        };
        let task = task("taking keys", Effort::Claim, rows);
        self.writer
            .call(task, move |work| take::take(work, &take, now))
            .await
    }

    async fn keep(&self, leases: Vec<KeyLease>, until: Time, now: Time) -> Answer<Vec<KeyLease>> {
        check_count("keep", leases.len(), STREAM_KEYS_MAX)?;
        check_term("keep", until, now)?;
        let task = task("keeping keys", Effort::Light, leases.len());
        self.writer
            .call(task, move |work| keep::keep(work, &leases, until, now))
            .await
    }

    async fn advance(&self, advances: Vec<Advance>, now: Time) -> Answer<Vec<Advanced>> {
        check_advances(&advances, now)?;
        let rows = advances.iter().map(advance::rows).sum();
        let task = task("advancing keys", Effort::Durable, rows);
        self.writer
            .call(task, move |work| advance::advance(work, &advances, now))
            .await
    }

    async fn streams(&self) -> Answer<Vec<StreamStatus>> {
        self.lists.call("listing streams", list::streams).await
    }

    async fn stream_keys(&self, query: KeyQuery, now: Time) -> Answer<Vec<KeyStatus>> {
        self.lists
            .call("listing keys", move |db| list::keys(db, &query, now))
            .await
    }

    async fn stream_key(&self, stream: StreamName, key: StreamKey) -> Answer<Option<StoredKey>> {
        self.lists
            .call("looking at a key", move |db| list::key(db, &stream, &key))
            .await
    }
}
