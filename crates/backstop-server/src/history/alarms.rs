//! Which streams somebody should look at, by their last minutes in the store: the same for every
//! page, command and server.

use super::block::HistoryResolution;
use super::cells;
use super::sample::{HistorySample as _, STREAM_NUMBERS, StreamSample};
use super::snapshot::HistorySubject;
use backstop::Backstop;
use backstop::core::port::StoreResult;
use backstop::core::stream::{StreamAlarm, recent_alarms};
use backstop::streams::{StreamCounts, StreamStatus};
use backstop_core::{Span, StreamName};
use std::collections::BTreeMap;

/// Alarms are about the last ten minutes. The row of the newest one may not be written yet, and
/// what came in the first is known by the row before it.
const LOOK_BACK: Span = Span::minutes(12);

/// What rings, by stream. Where no server keeps a history, and of streams that it does not follow,
/// nothing does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamAlarms(BTreeMap<StreamName, Vec<StreamAlarm>>);

impl StreamAlarms {
    /// What the history of a store says of these streams: two questions, however many there are.
    pub async fn read(backstop: &Backstop, streams: &[StreamStatus]) -> StoreResult<Self> {
        let followed = cells::read_tracked_names(backstop).await?.streams;
        let streams: Vec<&StreamStatus> = streams
            .iter()
            .filter(|status| followed.contains(&status.name))
            .collect();
        let now = backstop.now();
        let subjects = streams
            .iter()
            .map(|status| HistorySubject::Stream(status.name.clone()))
            .collect();
        let rows = cells::read_all_rows(
            backstop,
            HistoryResolution::Minute,
            subjects,
            now.before(LOOK_BACK),
            now,
        )
        .await?;
        let mut alarms = BTreeMap::new();
        for (status, rows) in streams.into_iter().zip(rows) {
            // A row without overflows would make all there ever were some of now.
            let whole = rows.iter().filter(|(_, row)| row.len() >= STREAM_NUMBERS);
            let minutes: Vec<StreamCounts> = whole
                .map(|(_, row)| StreamSample::of(row).counts())
                .collect();
            alarms.insert(
                status.name.clone(),
                recent_alarms(&minutes, &StreamSample::new(status).counts()),
            );
        }
        Ok(Self(alarms))
    }

    /// What rings of a stream.
    pub fn of(&self, stream: &StreamName) -> &[StreamAlarm] {
        self.0.get(stream).map_or(&[], Vec::as_slice)
    }

    /// With what rings of a stream.
    #[cfg(test)]
    pub(crate) fn with(mut self, stream: StreamName, alarms: Vec<StreamAlarm>) -> Self {
        self.0.insert(stream, alarms);
        self
    }
}
