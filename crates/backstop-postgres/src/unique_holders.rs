//! Finds the holders of unique keys.

use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::port::{StoreError, StoreResult, UniqueKeyHolder};
use backstop_core::unique::UniqueKey;
use backstop_core::{QueueName, Time};
use tokio_postgres::types::Type;

const DOING: &str = "looking for holders";

/// Finds the holders of these keys in a queue, in the order of `keys`.
pub(crate) async fn holders(
    link: &PostgresLink,
    queue: &QueueName,
    keys: &[UniqueKey],
    now: Time,
) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
    let texts: Vec<&str> = keys.iter().map(UniqueKey::as_str).collect();
    let params = [
        (&queue.as_str() as _, Type::TEXT),
        (&texts as _, Type::TEXT_ARRAY),
        (&now.as_micros() as _, Type::INT8),
    ];
    let mut holders = vec![None; keys.len()];
    for row in &link
        .call(DOING, CommitMode::Durable, "holders", &params)
        .await?
    {
        let at = usize::try_from(row::get::<i32>(row, 0)?)
            .ok()
            .and_then(|at| at.checked_sub(1));
        let spot = at.and_then(|at| holders.get_mut(at));
        let state = row::get::<Option<i16>>(row, 2)?.map(row::state);
        let holder = UniqueKeyHolder {
            job: row::job_id(row::get(row, 1)?),
            state,
        };
        *spot.ok_or_else(|| {
            StoreError::corrupt(DOING, "an answer for a key that was not asked about")
        })? = Some(holder);
    }
    Ok(holders)
}
