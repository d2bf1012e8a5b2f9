//! Runs that were alive while another worker could have had their job.
//!
//! A lease keeps two workers from running one job at once, unless a run goes on after its lease is
//! over: a handler that blocks its thread and cannot be called off, a process that was stopped and
//! went on, a machine that slept. Each such run is written down when it ends, with what it would
//! take to look into it; the newest [`OVERLAPS_MAX`] are kept. Its outcome did not count.
//!
//! Not seen is what never tells of its end: a process that is killed while its run is late, and a
//! command that lives on after its worker was killed.

use crate::client::Backstop;
use crate::journal::CellJournal;
use backstop_core::limits::OVERLAPS_MAX;
use backstop_core::port::StoreResult;
use backstop_core::{JobId, Kind, QueueName, Time};
use serde::{Deserialize, Serialize};

const PREFIX: &str = "overlaps/";

/// A run that was alive while another worker could have had its job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunOverlap {
    pub job: JobId,
    pub queue: QueueName,
    pub kind: Kind,
    pub worker: String,
    /// The number of the lease that was lost; as text, because it is wider than some readers'
    /// numbers.
    pub lease: String,
    pub began_at: Time,
    /// When the worker noticed that the lease was lost; of a worker elsewhere, when somebody else
    /// did.
    pub noticed_at: Time,
    pub ended_at: Time,
}

impl Backstop {
    /// Runs that were alive while another worker could have had their job, the newest first.
    pub async fn overlaps(&self, limit: usize) -> StoreResult<Vec<RunOverlap>> {
        CellJournal::new(self, PREFIX, OVERLAPS_MAX)
            .newest(limit)
            .await
    }

    pub(crate) async fn note_overlap(&self, overlap: &RunOverlap) -> StoreResult<()> {
        CellJournal::new(self, PREFIX, OVERLAPS_MAX)
            .add(overlap.ended_at, overlap)
            .await
            .map(drop)
    }
}
