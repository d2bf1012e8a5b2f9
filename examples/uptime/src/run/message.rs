//! What a run and its workers say to each other: one line of JSON each.

use crate::consumer::Counts;
use crate::sequencer::Hold;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Results for a worker, each as a line of the trace.
#[derive(Serialize, Deserialize)]
pub(super) struct Batch {
    pub(super) batch: u64,
    pub(super) arrivals: Vec<Box<RawValue>>,
}

/// What a worker says.
#[derive(Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// A batch was taken.
    Taken {
        batch: u64,
        counts: Counts,
        broken: Vec<String>,
    },
    /// Everything was taken, and nothing is held any more.
    Finished { hold: Option<Hold> },
}
