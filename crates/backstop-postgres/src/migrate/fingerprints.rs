//! Version 2: what the dead of version 1 died of.
//!
//! Done after the step, a few jobs at a time, while everybody works on: a mark in the version's table stays until all of it is
//! done, so that whoever migrates after one that was killed goes on with it.

use super::DOING;
use crate::link::{Commit, Link};
use crate::row;
use backstop_core::Fingerprint;
use backstop_core::failure::History;
use backstop_core::port::Answer;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// Jobs at a time: a history may be long.
const BATCH: usize = 100;

/// Gives every dead job its fingerprint, and takes the mark away.
pub(super) async fn fill(link: &Link, mark: i32) -> Answer<()> {
    for (queue, _) in crate::list::queues(link, None).await? {
        let mut after = (i64::MIN, i64::MIN);
        loop {
            let dead = unprinted(link, queue, after).await?;
            let Some(last) = dead.last() else { break };
            after = (row::get(last, 3)?, row::get(last, 4)?);
            print(link, &dead).await?;
        }
    }
    let done = format!("DELETE FROM \"{}\".version WHERE number = $1", link.schema());
    link.rows(DOING, &done, &[(&mark, Type::INT4)]).await.map(drop)
}

async fn unprinted(link: &Link, queue: i32, (at, no): (i64, i64)) -> Answer<Vec<Row>> {
    let params = [
        (&queue as _, Type::INT4),
        (&at as _, Type::INT8),
        (&no as _, Type::INT8),
        (&row::number(BATCH) as _, Type::INT4),
    ];
    link.call(DOING, Commit::Durable, "unprinted", &params).await
}

async fn print(link: &Link, dead: &[Row]) -> Answer<()> {
    let (mut ids, mut fingerprints): (Vec<Uuid>, Vec<i64>) = (Vec::new(), Vec::new());
    for row in dead {
        if !row::get::<bool>(row, 5)? {
            ids.push(row::get(row, 0)?);
            fingerprints.push(fingerprint(row)?);
        }
    }
    let params = [(&ids as _, Type::UUID_ARRAY), (&fingerprints as _, Type::INT8_ARRAY)];
    link.call(DOING, Commit::Quick, "print_dead", &params).await.map(drop)
}

fn fingerprint(row: &Row) -> Answer<i64> {
    let reason = row::get::<Option<&str>>(row, 1)?.and_then(|reason| reason.parse().ok());
    let history = History::stored(row::get(row, 2)?);
    Ok(Fingerprint::of_death(reason, &history).as_i64())
}
