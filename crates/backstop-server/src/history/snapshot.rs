//! A moment: every queue and stream that is followed, all other queues together, and the total.

use super::block::SampleValues;
use super::sample::{HistorySample as _, QUEUE_COUNTS, QueueSample, STREAM_COUNTS, StreamSample};
use super::tracked_names::TrackedNames;
use backstop::core::port::QueueStatus;
use backstop::streams::StreamStatus;
use backstop_core::{QueueName, StreamName, Time};
use std::collections::BTreeMap;
use std::fmt;

/// What a row is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HistorySubject {
    Total,
    /// The queues that are not followed one by one, together.
    Others,
    Queue(QueueName),
    Stream(StreamName),
}

impl HistorySubject {
    /// How many of its numbers only grow.
    pub(super) const fn counts(&self) -> usize {
        match self {
            Self::Total | Self::Others | Self::Queue(_) => QUEUE_COUNTS,
            Self::Stream(_) => STREAM_COUNTS,
        }
    }
}

impl fmt::Display for HistorySubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total => f.write_str("total"),
            Self::Others => f.write_str("others"),
            Self::Queue(name) => write!(f, "q/{name}"),
            Self::Stream(name) => write!(f, "s/{name}"),
        }
    }
}

/// What was seen at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HistorySnapshot {
    pub(super) at: Time,
    pub(super) rows: BTreeMap<HistorySubject, SampleValues>,
}

impl HistorySnapshot {
    /// What these say at `at`, by the names of `roster`. There are others only if there are.
    pub(super) fn new(
        at: Time,
        queues: &[QueueStatus],
        streams: &[StreamStatus],
        names: &TrackedNames,
    ) -> Self {
        let mut rows = BTreeMap::new();
        let (mut total, mut others) = (QueueSample::default(), None::<QueueSample>);
        for status in queues {
            let figures = QueueSample::new(status, at);
            total = total.plus(figures);
            if names.queues.contains(&status.name) {
                rows.insert(HistorySubject::Queue(status.name.clone()), figures.row());
            } else {
                others = Some(others.unwrap_or_default().plus(figures));
            }
        }
        rows.insert(HistorySubject::Total, total.row());
        rows.extend(others.map(|others| (HistorySubject::Others, others.row())));
        let followed = streams
            .iter()
            .filter(|status| names.streams.contains(&status.name));
        rows.extend(followed.map(|status| {
            (
                HistorySubject::Stream(status.name.clone()),
                StreamSample::new(status).row(),
            )
        }));
        Self { at, rows }
    }
}
