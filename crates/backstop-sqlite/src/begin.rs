//! The beginning of runs, noted where a seizer will find it.

use crate::work::Work;
use backstop_core::Lease;
use rusqlite::{Result, params};

const BEGIN_RUN: &str = include_str!("sql/begin_run.sql");

/// Notes that runs have begun, and tells which leases are lost.
pub(crate) fn begin(work: &mut Work<'_>, leases: &[Lease]) -> Result<Vec<Lease>> {
    let mut begin = work.db.prepare_cached(BEGIN_RUN)?;
    let mut lost = Vec::new();
    for lease in leases {
        let noted = match work.queue(&lease.queue)? {
            Some(queue) => begin.execute(params![
                lease.job.as_bytes(),
                lease.number.as_i64(),
                work.at(queue).id
            ])?,
            None => 0,
        };
        if noted == 0 {
            lost.push(lease.clone());
        }
    }
    Ok(lost)
}
