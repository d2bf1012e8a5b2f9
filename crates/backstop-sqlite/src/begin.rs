//! The beginning of runs, noted where a seizer will find it.

use crate::transaction::WriteTransaction;
use backstop_core::Lease;
use rusqlite::{Result, params};

const BEGIN_RUN: &str = include_str!("sql/begin_run.sql");

/// Notes that runs have begun, and tells which leases are lost.
pub(crate) fn begin(tx: &mut WriteTransaction<'_>, leases: &[Lease]) -> Result<Vec<Lease>> {
    let mut begin = tx.db.prepare_cached(BEGIN_RUN)?;
    let mut lost = Vec::new();
    for lease in leases {
        let noted = match tx.queue(&lease.queue)? {
            Some(queue) => begin.execute(params![
                lease.job.as_bytes(),
                lease.number.as_i64(),
                tx.at(queue).id
            ])?,
            None => 0,
        };
        if noted == 0 {
            lost.push(lease.clone());
        }
    }
    Ok(lost)
}
