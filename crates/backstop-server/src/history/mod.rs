//! What happened in the last week, minute by minute: kept in the store, bounded, for charts.
//!
//! | file | what it does |
//! |---|---|
//! | `figures` | what is noted of a queue or a stream at a moment |
//! | `look` | a moment: every queue and stream that is followed, all others together, and the total |
//! | `roster` | which queues and streams are followed |
//! | `block` | an hour or a day of rows in one cell, and how minutes become ten minutes |
//! | `alarms` | which streams somebody should look at, by their last minutes |
//! | `durations` | how long runs took, as percentiles over a window; `backstop::spreads` keeps it |
//! | `series` | rows as points of a chart; where nobody looked there is a gap |
//! | `kept` | the cells: who comes second changes nothing |
//! | `record` | the loop that looks and writes |
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
mod durations;
mod figures;
mod kept;
mod look;
mod record;
mod roster;
mod series;

pub use alarms::Alarms;
pub use durations::{Durations, PERCENTS, kinds, seconds};
pub use figures::{QueueFigures, StreamFigures};
pub use look::Subject;
pub use record::{Recorder, record};
pub use roster::{QUEUES_MAX, STREAMS_MAX};
pub use series::{Point, QueueSeries, Series, StreamSeries, Window};

use backstop::Backstop;
use backstop::core::port::Answer;
use backstop_core::{QueueName, Span, StreamName, Time};
use look::Look;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How often a server looks.
pub const LOOK_EVERY: Span = Span::secs(5);
/// Looks that a server remembers: those of the shortest window, and one before it.
const LOOKS_MAX: usize = 62;

/// The looks of the last minutes, in this process; all else is in the store. Cheap to clone.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<VecDeque<Look>>>);

impl History {
    /// A queue, or all of them, over a window. The shortest comes from what this process saw, all
    /// others from the store.
    pub async fn queue(
        &self,
        backstop: &Backstop,
        of: &Subject,
        window: Window,
    ) -> Answer<QueueSeries> {
        let (rows, now) = (self.rows(backstop, of, window).await?, backstop.now());
        Ok(QueueSeries::of(&rows, window, now))
    }

    /// A stream over a window.
    pub async fn stream(
        &self,
        backstop: &Backstop,
        name: &StreamName,
        window: Window,
    ) -> Answer<StreamSeries> {
        let of = Subject::Stream(name.clone());
        let (rows, now) = (self.rows(backstop, &of, window).await?, backstop.now());
        Ok(StreamSeries::of(&rows, window, now))
    }

    /// The last five minutes of a queue as this process saw them: for lists, where a look into the
    /// store for each would be dear.
    pub fn recent_queue(&self, name: &QueueName, now: Time) -> QueueSeries {
        QueueSeries::of(
            &self.seen(&Subject::Queue(name.clone())),
            Window::FiveMinutes,
            now,
        )
    }

    /// The last five minutes of a stream as this process saw them.
    pub fn recent_stream(&self, name: &StreamName, now: Time) -> StreamSeries {
        StreamSeries::of(
            &self.seen(&Subject::Stream(name.clone())),
            Window::FiveMinutes,
            now,
        )
    }

    async fn rows<F: figures::Figures>(
        &self,
        backstop: &Backstop,
        of: &Subject,
        window: Window,
    ) -> Answer<Vec<(Time, F)>> {
        let Some(grain) = window.grain() else {
            return Ok(self.seen(of));
        };
        let now = backstop.now();
        // A step more than the window: a rate needs to know where its first step began.
        let from = now.before(window.length()).before(window.step().times(2));
        let rows = kept::read(backstop, grain, of, from, now).await?;
        Ok(rows
            .into_iter()
            .map(|(at, row)| (at, F::of(&row)))
            .collect())
    }

    fn seen<F: figures::Figures>(&self, of: &Subject) -> Vec<(Time, F)> {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks
            .iter()
            .filter_map(|look| Some((look.at, F::of(look.rows.get(of)?))))
            .collect()
    }

    fn note(&self, look: Look) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The store's clock may have been set back: what came after is another time line.
        looks.retain(|known| known.at < look.at);
        looks.push_back(look);
        if looks.len() > LOOKS_MAX {
            looks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
