//! Groups dead letters by their fingerprint.

use crate::row;
use backstop_core::limits::GROUPS_MAX;
use backstop_core::port::{DeadLetterGroup, ListGroupsRequest};
use backstop_core::{Fingerprint, JobId, QueueName};
use rusqlite::{Connection, OptionalExtension, Result, Row, Rows, params};

const GROUPS: &str = include_str!("sql/groups.sql");
const GROUPS_OF: &str = include_str!("sql/groups_of.sql");
const GROUPS_SAMPLE: &str = include_str!("sql/groups_sample.sql");
const QUEUE_FIND: &str = include_str!("sql/queue_find.sql");

/// Lists groups of dead letters, the largest first. Counts and times are in the index; of the jobs
/// only samples are read.
pub(crate) fn groups(db: &Connection, query: &ListGroupsRequest) -> Result<Vec<DeadLetterGroup>> {
    let limit = row::number(query.limit.clamp(1, GROUPS_MAX));
    let Some(name) = &query.queue else {
        return read(db, db.prepare_cached(GROUPS)?.query([limit])?);
    };
    let id = db
        .prepare_cached(QUEUE_FIND)?
        .query_row([name.as_str()], |row| row::whole(row, 0))
        .optional()?;
    let Some(id) = id else { return Ok(Vec::new()) };
    read(db, db.prepare_cached(GROUPS_OF)?.query(params![limit, id])?)
}

fn read(db: &Connection, mut rows: Rows<'_>) -> Result<Vec<DeadLetterGroup>> {
    let mut groups = Vec::new();
    while let Some(row) = rows.next()? {
        groups.extend(group(db, row)?);
    }
    Ok(groups)
}

/// Reads a group's row; `None` if the name of its queue cannot be read.
fn group(db: &Connection, row: &Row<'_>) -> Result<Option<DeadLetterGroup>> {
    let Some(queue) = row::text(row, 1)?.and_then(|name| QueueName::new(name).ok()) else {
        tracing::warn!("a row of backstop_queue has no readable name; run `backstop doctor`");
        return Ok(None);
    };
    let (queue_id, fingerprint) = (row::whole(row, 0)?, row::whole(row, 2)?);
    Ok(Some(DeadLetterGroup {
        queue,
        fingerprint: Fingerprint::from_i64(fingerprint),
        count: row::count(row, 3)?,
        first_at: row::time(row, 4)?,
        last_at: row::time(row, 5)?,
        sample: sample(db, queue_id, fingerprint)?,
    }))
}

/// The last job of a group with a readable id.
fn sample(db: &Connection, queue: i64, fingerprint: i64) -> Result<JobId> {
    let mut statement = db.prepare_cached(GROUPS_SAMPLE)?;
    let mut rows = statement.query([queue, fingerprint])?;
    while let Some(row) = rows.next()? {
        if let Some(id) = row::id(row, 0)? {
            return Ok(id);
        }
    }
    // No job of the group has a readable id: the group itself still counts.
    Ok(JobId::from_bytes([0; 16]))
}
