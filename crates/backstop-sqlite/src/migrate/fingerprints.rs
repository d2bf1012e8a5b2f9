//! Version 2: what the dead of version 1 died of.

use crate::row;
use backstop_core::Fingerprint;
use backstop_core::failure::History;
use rusqlite::{Connection, Result};

const MIGRATE_2_DEAD: &str = include_str!("../sql/migrate_2_dead.sql");
const MIGRATE_2_ADD: &str = include_str!("../sql/migrate_2_add.sql");

/// Gives every dead job its place beside those that died of the same. One job after the other is in memory, however many
/// there are.
pub(super) fn fill(db: &Connection) -> Result<()> {
    let mut dead = db.prepare(MIGRATE_2_DEAD)?;
    let mut add = db.prepare(MIGRATE_2_ADD)?;
    let mut rows = dead.query([])?;
    while let Some(row) = rows.next()? {
        let (no, queue, finished_at) = (row::whole(row, 0)?, row::whole(row, 1)?, row::whole(row, 2)?);
        let reason = row::text(row, 3)?.and_then(|reason| reason.parse().ok());
        let history = History::stored(row::bytes(row, 4)?.map(<[u8]>::to_vec));
        let fingerprint = Fingerprint::of_death(reason, &history);
        add.execute([no, queue, fingerprint.as_i64(), finished_at])?;
    }
    Ok(())
}
