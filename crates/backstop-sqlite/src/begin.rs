//! Records that runs have begun, in the row where a seizure reads it.

use crate::transaction::WriteTransaction;
use backstop_core::Lease;
use rusqlite::{Result, params};

const BEGIN_RUN: &str = include_str!("sql/begin_run.sql");

/// Records that runs have begun; returns the leases that are lost.
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
