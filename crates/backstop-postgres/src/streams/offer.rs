//! Stores the records that producers offer.

use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::limits::{KEY_RECORDS_MAX, LEASE_REQUEST_MAX};
use backstop_core::port::{OfferOutcome, StoreError, StoreResult};
use backstop_core::stream::Record;
use backstop_core::{StreamName, Time};
use std::collections::HashMap;
use tokio_postgres::types::Type;

const DOING: &str = "offering";

pub(super) async fn offer(
    link: &PostgresLink,
    commit: CommitMode,
    stream: &StreamName,
    records: &[Record],
    now: Time,
) -> StoreResult<Vec<OfferOutcome>> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let batch = OfferColumns::of(records);
    let params = [
        (&stream.as_str() as _, Type::TEXT),
        (&batch.keys as _, Type::TEXT_ARRAY),
        (&batch.key_at as _, Type::INT4_ARRAY),
        (
            &batch.column(|record| record.position) as _,
            Type::INT8_ARRAY,
        ),
        (&batch.column(|record| record.step) as _, Type::INT8_ARRAY),
        (
            &batch.column(|record| record.tenant.as_deref()) as _,
            Type::TEXT_ARRAY,
        ),
        (
            &batch.column(|record| record.payload.as_bytes()) as _,
            Type::BYTEA_ARRAY,
        ),
        (
            &i32::try_from(KEY_RECORDS_MAX).unwrap_or(i32::MAX) as _,
            Type::INT4,
        ),
        (&now.as_micros() as _, Type::INT8),
        (&now.after(LEASE_REQUEST_MAX).as_micros() as _, Type::INT8),
    ];
    let mut sent = vec![OfferOutcome::Held; batch.records.len()];
    for row in link.call(DOING, commit, "offer", &params).await? {
        let (at, is_full): (i32, bool) = (row::get(&row, 0)?, row::get(&row, 1)?);
        let answer = usize::try_from(at - 1).ok().and_then(|at| sent.get_mut(at));
        *answer
            .ok_or_else(|| StoreError::corrupt(DOING, format!("an answer for record {at}")))? =
            if is_full {
                OfferOutcome::Full
            } else {
                OfferOutcome::Duplicate
            };
    }
    Ok(batch.answers(&sent))
}

/// Records as the columns that the function `offer` takes: without duplicates, and with sorted
/// keys.
struct OfferColumns<'a> {
    keys: Vec<&'a str>,
    records: Vec<&'a Record>,
    key_at: Vec<i32>,
    /// For each offered record: the index of the sent record with its position, and whether it is
    /// that record itself or a duplicate of it.
    places: Vec<(usize, bool)>,
}

impl<'a> OfferColumns<'a> {
    fn of(offered: &'a [Record]) -> Self {
        let mut keys: Vec<&str> = offered.iter().map(|record| record.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        let numbers: HashMap<&str, i32> = keys.iter().copied().zip(1..).collect();
        let mut batch = Self {
            keys,
            records: Vec::new(),
            key_at: Vec::new(),
            places: Vec::new(),
        };
        let mut first = HashMap::new();
        for record in offered {
            let key_at = numbers[record.key.as_str()];
            let next = batch.records.len();
            let place = *first.entry((key_at, record.position)).or_insert(next);
            if place == next {
                batch.records.push(record);
                batch.key_at.push(key_at);
            }
            batch.places.push((place, place == next));
        }
        batch
    }

    fn column<T>(&self, of: impl Fn(&'a Record) -> T) -> Vec<T> {
        self.records.iter().map(|record| of(record)).collect()
    }

    /// Builds the outcomes of all offered records from those of the sent ones.
    fn answers(&self, sent: &[OfferOutcome]) -> Vec<OfferOutcome> {
        let answer = |(place, is_itself): &(usize, bool)| match sent[*place] {
            OfferOutcome::Held if !is_itself => OfferOutcome::Duplicate,
            answer => answer,
        };
        self.places.iter().map(answer).collect()
    }
}
