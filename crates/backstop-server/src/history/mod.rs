//! What happened in the last week, minute by minute: kept in the store, bounded, for charts.
//!
//! | file | what it does |
//! |---|---|
//! | `sample` | what is noted of a queue or a stream at a moment |
//! | `snapshot` | a moment: every queue and stream that is followed, all others together, and the total |
//! | `tracked_names` | which queues and streams are followed |
//! | `block` | an hour or a day of rows in one cell, and how minutes become ten minutes |
//! | `alarms` | which streams somebody should look at, by their last minutes |
//! | `durations` | how long runs took, as percentiles over a window; `backstop::spreads` keeps it |
//! | `series` | rows as points of a chart; where nobody looked there is a gap |
//! | `cells` | the cells: who comes second changes nothing |
//! | `recorder` | the loop that looks and writes |
//!
//! What is kept are totals as they stood, not what was added since: several servers on one store
//! agree on them, and whoever writes a minute first has written it for all.
//!
//! | cell | what is in it | kept for |
//! |---|---|---|
//! | `history/roster` | the names that are followed | |
//! | `history/m/HOUR/SUBJECT` | a row a minute | 25 hours |
//! | `history/t/DAY/SUBJECT` | a row every ten minutes | 7 days |

mod alarms;
mod block;
mod cells;
mod durations;
mod recorder;
mod sample;
mod series;
mod snapshot;
mod tracked_names;

pub use alarms::StreamAlarms;
pub use durations::{DurationSeries, PERCENTS, percentile_seconds, read_kinds};
pub use recorder::{HistoryRecorder, run_recorder};
pub use sample::{QueueSample, StreamSample};
pub use series::{QueueSeries, SeriesPoint, StreamSeries, TimeSeries, TimeWindow};
pub use snapshot::HistorySubject;
pub use tracked_names::{QUEUES_MAX, STREAMS_MAX};

use backstop::Backstop;
use backstop::core::port::StoreResult;
use backstop_core::{QueueName, Span, StreamName, Time};
use snapshot::HistorySnapshot;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How often a server looks.
pub const SNAPSHOT_EVERY: Span = Span::secs(5);
/// Looks that a server remembers: those of the shortest window, and one before it.
const SNAPSHOTS_MAX: usize = 62;

/// The looks of the last minutes, in this process; all else is in the store. Cheap to clone.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<VecDeque<HistorySnapshot>>>);

impl History {
    /// A queue, or all of them, over a window. The shortest comes from what this process saw, all
    /// others from the store.
    pub async fn queue(
        &self,
        backstop: &Backstop,
        of: &HistorySubject,
        window: TimeWindow,
    ) -> StoreResult<QueueSeries> {
        let (rows, now) = (self.rows(backstop, of, window).await?, backstop.now());
        Ok(QueueSeries::of(&rows, window, now))
    }

    /// A stream over a window.
    pub async fn stream(
        &self,
        backstop: &Backstop,
        name: &StreamName,
        window: TimeWindow,
    ) -> StoreResult<StreamSeries> {
        let of = HistorySubject::Stream(name.clone());
        let (rows, now) = (self.rows(backstop, &of, window).await?, backstop.now());
        Ok(StreamSeries::of(&rows, window, now))
    }

    /// The last five minutes of a queue as this process saw them: for lists, where a look into the
    /// store for each would be dear.
    pub fn recent_queue(&self, name: &QueueName, now: Time) -> QueueSeries {
        QueueSeries::of(
            &self.recent_rows(&HistorySubject::Queue(name.clone())),
            TimeWindow::FiveMinutes,
            now,
        )
    }

    /// The last five minutes of a stream as this process saw them.
    pub fn recent_stream(&self, name: &StreamName, now: Time) -> StreamSeries {
        StreamSeries::of(
            &self.recent_rows(&HistorySubject::Stream(name.clone())),
            TimeWindow::FiveMinutes,
            now,
        )
    }

    async fn rows<F: sample::HistorySample>(
        &self,
        backstop: &Backstop,
        of: &HistorySubject,
        window: TimeWindow,
    ) -> StoreResult<Vec<(Time, F)>> {
        let Some(resolution) = window.resolution() else {
            return Ok(self.recent_rows(of));
        };
        let now = backstop.now();
        // A step more than the window: a rate needs to know where its first step began.
        let from = now.before(window.length()).before(window.step().times(2));
        let rows = cells::read_rows(backstop, resolution, of, from, now).await?;
        Ok(rows
            .into_iter()
            .map(|(at, row)| (at, F::of(&row)))
            .collect())
    }

    fn recent_rows<F: sample::HistorySample>(&self, of: &HistorySubject) -> Vec<(Time, F)> {
        let snapshots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        snapshots
            .iter()
            .filter_map(|snapshot| Some((snapshot.at, F::of(snapshot.rows.get(of)?))))
            .collect()
    }

    fn note(&self, snapshot: HistorySnapshot) {
        let mut snapshots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The store's clock may have been set back: what came after is another time line.
        snapshots.retain(|known| known.at < snapshot.at);
        snapshots.push_back(snapshot);
        if snapshots.len() > SNAPSHOTS_MAX {
            snapshots.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
