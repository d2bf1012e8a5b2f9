//! Handlers of rows.

use crate::handler::{Handler, HandlerStates, Run, RunError};
use async_trait::async_trait;
use backstop_core::failure::FailureHistory;
use backstop_core::job_options::JobOptions;
use backstop_core::verdict::RunEnding;
use backstop_core::{
    JobId, Kind, Lease, LeaseNumber, LeasedRun, Payload, Priority, QueueName, Time,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Handles the rows of a table. Closures are the usual form.
#[async_trait]
pub trait RowHandler: Send + Sync + 'static {
    /// Handles one row: done, or why not. Any failure makes the row an error, and counts; only one
    /// that snoozes leaves the row as it was. May be dropped at any await: when it takes too long,
    /// when the row's lease is lost, or when its runner stops.
    async fn handle(&self, row: TableRow) -> Result<(), RunError>;
}

#[async_trait]
impl<F, Fut> RowHandler for F
where
    F: Fn(TableRow) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), RunError>> + Send,
{
    async fn handle(&self, row: TableRow) -> Result<(), RunError> {
        (self)(row).await
    }
}

/// A row as its handler gets it.
#[derive(Clone)]
pub struct TableRow {
    pub table: Arc<str>,
    /// The row's key: a number, or text.
    pub key: Value,
    /// 1 in the first run; what the failures say, where they are counted.
    pub attempt: u32,
    pub inserted: Time,
    pub(super) id: JobId,
    pub(super) queue: QueueName,
    pub(super) number: i64,
    pub(super) json: Bytes,
    pub(super) cancel: CancellationToken,
}

impl TableRow {
    /// The row as a JSON object: its columns by their names, in their order. Numbers have all their
    /// digits, whether or not a double could hold them; bytes are base64; dates are text, as the
    /// database writes them, in UTC.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The row as a type of yours.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.json)
    }

    /// The same in every run of this row: give it to services that take an idempotency key.
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// Waits until the run is called off.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

impl fmt::Debug for TableRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the row holds is its owner's.
        let mut shown = f.debug_struct("Row");
        shown
            .field("table", &self.table)
            .field("key", &self.key)
            .field("attempt", &self.attempt);
        shown.finish_non_exhaustive()
    }
}

/// A handler of jobs that handles rows: a command or a web service. Its payload is the row as JSON;
/// its job is the row's, its queue `tables.NAME` and its kind the table's name.
pub struct RowJobHandler(Arc<dyn Handler>);

impl RowJobHandler {
    pub fn new(handler: impl Handler) -> Self {
        Self(Arc::new(handler))
    }
}

#[async_trait]
impl RowHandler for RowJobHandler {
    async fn handle(&self, row: TableRow) -> Result<(), RunError> {
        let run = Run::new(
            Arc::new(as_job(&row)),
            HandlerStates::default(),
            row.cancel.clone(),
        );
        match self.0.run(run).await {
            RunEnding::Done => Ok(()),
            ending => Err(RunError::from_ending(ending)),
        }
    }
}

/// The job that a row would be.
fn as_job(row: &TableRow) -> LeasedRun {
    let lease = Lease {
        queue: row.queue.clone(),
        job: row.id,
        number: LeaseNumber::from_i64(row.number),
    };
    LeasedRun {
        lease,
        kind: Kind::new(&row.table).unwrap_or_default(),
        payload: Payload::from_stored(row.json.to_vec()),
        priority: Priority::default(),
        attempts_before: row.attempt.saturating_sub(1),
        lost_leases: 0,
        inserted_at: row.inserted,
        run_at: row.inserted,
        options: JobOptions::default(),
        history: FailureHistory::default(),
    }
}
