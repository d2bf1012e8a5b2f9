//! What every handler needs.

use crate::database::Database;
use crate::loss::Loss;
use crate::provider::Provider;
use crate::tasks::Row;
use backstop::{Backstop, DraftError};

/// What every handler needs.
#[derive(Clone)]
pub struct Desk {
    /// Where jobs go.
    pub backstop: Backstop,
    /// Where rows are.
    pub database: Database,
    /// Who delivers emails.
    pub provider: Provider,
    /// What gets lost on its way to the queue.
    pub loss: Loss,
    /// Emails made in one go.
    pub email_batch: i64,
}

impl Desk {
    /// Enqueues work on rows that are committed. A process that dies before this leaves rows
    /// without jobs, and so does whatever gets lost here: sweeps find them. Where a row has a job
    /// already it keeps that one.
    pub async fn enqueue_after_commit<R: Row>(&self, rows: &[R]) -> Result<(), DraftError> {
        let mut jobs = Vec::with_capacity(rows.len());
        for row in rows {
            jobs.push(row.draft(&self.backstop).build().await?);
        }
        self.backstop.push_jobs(self.loss.leaves(jobs)).await?;
        Ok(())
    }
}
