//! Keys out.

use super::stored::stored;
use crate::floor::{Floors, Of};
use crate::link::{Commit, Link};
use crate::row;
use backstop_core::limits::{LEASE_ASKED_MAX, TAKE_BYTES_MAX, WINDOW_RECORDS_MAX};
use backstop_core::port::{Answer, Take, Taken, Wanted};
use backstop_core::{StreamKey, Time};
use tokio_postgres::types::Type;

const DOING: &str = "taking keys";

/// Hands keys out; what is left of them, if this take was made before.
pub(super) async fn take(link: &Link, floors: &Floors, take: &Take, now: Time) -> Answer<Taken> {
    match &take.wanted {
        Wanted::Keys(keys) => named(link, take, keys, false, now).await,
        Wanted::Seized(keys) => named(link, take, keys, true, now).await,
        Wanted::Due(max) => due(link, floors, take, *max, now).await,
    }
}

async fn named(
    link: &Link,
    take: &Take,
    keys: &[StreamKey],
    seize: bool,
    now: Time,
) -> Answer<Taken> {
    if keys.is_empty() {
        return Ok(Taken::default());
    }
    let mut names: Vec<&str> = keys.iter().map(StreamKey::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let params = [
        (&take.stream.as_str() as _, Type::TEXT),
        (&take.number.as_i64() as _, Type::INT8),
        (&take.worker.as_str() as _, Type::TEXT),
        (&take.until.as_micros() as _, Type::INT8),
        (&seize as _, Type::BOOL),
        (&names as _, Type::TEXT_ARRAY),
        (&bytes_max() as _, Type::INT8),
        (&row::number(WINDOW_RECORDS_MAX) as _, Type::INT4),
        (&now.as_micros() as _, Type::INT8),
        (&now.after(LEASE_ASKED_MAX).as_micros() as _, Type::INT8),
    ];
    let rows = link.call(DOING, Commit::Quick, "take", &params).await?;
    Ok(Taken {
        keys: stored(&rows)?,
        next_due: None,
    })
}

async fn due(link: &Link, floors: &Floors, take: &Take, max: usize, now: Time) -> Answer<Taken> {
    let of = Of::Due(take.stream.clone());
    let look = floors.look(&of, now);
    let params = [
        (&take.stream.as_str() as _, Type::TEXT),
        (&take.number.as_i64() as _, Type::INT8),
        (&take.worker.as_str() as _, Type::TEXT),
        (&take.until.as_micros() as _, Type::INT8),
        (&row::number(max) as _, Type::INT4),
        (&bytes_max() as _, Type::INT8),
        (&row::number(WINDOW_RECORDS_MAX) as _, Type::INT4),
        (&now.as_micros() as _, Type::INT8),
        (&now.after(LEASE_ASKED_MAX).as_micros() as _, Type::INT8),
        (&look.begins_at() as _, Type::INT8),
    ];
    let rows = link.call(DOING, Commit::Quick, "take_due", &params).await?;
    let next_due = rows
        .first()
        .map(|row| row::get::<Option<i64>>(row, 14))
        .transpose()?
        .flatten();
    let next_due = next_due.map(Time::from_micros);
    if next_due.is_none_or(|due| due > now) {
        floors.left_nothing(of, look, now);
    }
    Ok(Taken {
        keys: stored(&rows)?,
        next_due,
    })
}

fn bytes_max() -> i64 {
    i64::try_from(TAKE_BYTES_MAX).unwrap_or(i64::MAX)
}
