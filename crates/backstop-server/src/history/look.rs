//! A moment: every queue and stream that is followed, all other queues together, and the total.

use super::block::Row;
use super::figures::{Figures as _, QUEUE_COUNTS, QueueFigures, STREAM_COUNTS, StreamFigures};
use super::roster::Roster;
use backstop::core::port::QueueStatus;
use backstop::streams::StreamStatus;
use backstop_core::{QueueName, StreamName, Time};
use std::collections::BTreeMap;
use std::fmt;

/// What a row is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    /// All queues.
    Total,
    /// The queues that are not followed one by one, together.
    Others,
    /// One queue.
    Queue(QueueName),
    /// One stream.
    Stream(StreamName),
}

impl Subject {
    /// How many of its numbers only grow.
    pub(super) const fn counts(&self) -> usize {
        match self {
            Self::Total | Self::Others | Self::Queue(_) => QUEUE_COUNTS,
            Self::Stream(_) => STREAM_COUNTS,
        }
    }
}

impl fmt::Display for Subject {
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
pub(super) struct Look {
    pub(super) at: Time,
    pub(super) rows: BTreeMap<Subject, Row>,
}

impl Look {
    /// What these say at `at`, by the names of `roster`. There are others only if there are.
    pub(super) fn new(
        at: Time,
        queues: &[QueueStatus],
        streams: &[StreamStatus],
        roster: &Roster,
    ) -> Self {
        let mut rows = BTreeMap::new();
        let (mut total, mut others) = (QueueFigures::default(), None::<QueueFigures>);
        for status in queues {
            let figures = QueueFigures::new(status, at);
            total = total.plus(figures);
            if roster.queues.contains(&status.name) {
                rows.insert(Subject::Queue(status.name.clone()), figures.row());
            } else {
                others = Some(others.unwrap_or_default().plus(figures));
            }
        }
        rows.insert(Subject::Total, total.row());
        rows.extend(others.map(|others| (Subject::Others, others.row())));
        let followed = streams
            .iter()
            .filter(|status| roster.streams.contains(&status.name));
        rows.extend(followed.map(|status| {
            (
                Subject::Stream(status.name.clone()),
                StreamFigures::new(status).row(),
            )
        }));
        Self { at, rows }
    }
}
