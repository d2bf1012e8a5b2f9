//! Which streams somebody should look at, by their last minutes in the store: the same for every
//! page, command and server.

use super::block::Grain;
use super::figures::{Figures as _, STREAM_NUMBERS, StreamFigures};
use super::kept;
use super::look::Subject;
use backstop::Backstop;
use backstop::core::port::Answer;
use backstop::core::stream::{Alarm, lately};
use backstop::streams::{Counts, StreamStatus};
use backstop_core::{Span, StreamName};
use std::collections::BTreeMap;

/// Alarms are about the last ten minutes. The row of the newest one may not be written yet, and
/// what came in the first is known by the row before it.
const BACK: Span = Span::minutes(12);

/// What rings, by stream. Where no server keeps a history, and of streams that it does not follow,
/// nothing does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Alarms(BTreeMap<StreamName, Vec<Alarm>>);

impl Alarms {
    /// What the history of a store says of these streams: two questions, however many there are.
    pub async fn read(backstop: &Backstop, streams: &[StreamStatus]) -> Answer<Self> {
        let followed = kept::roster(backstop).await?.streams;
        let streams: Vec<&StreamStatus> = streams
            .iter()
            .filter(|status| followed.contains(&status.name))
            .collect();
        let now = backstop.now();
        let subjects = streams
            .iter()
            .map(|status| Subject::Stream(status.name.clone()))
            .collect();
        let rows = kept::read_all(backstop, Grain::Minute, subjects, now.before(BACK), now).await?;
        let mut ringing = BTreeMap::new();
        for (status, rows) in streams.into_iter().zip(rows) {
            // A row without overflows would make all there ever were some of now.
            let whole = rows.iter().filter(|(_, row)| row.len() >= STREAM_NUMBERS);
            let minutes: Vec<Counts> = whole
                .map(|(_, row)| StreamFigures::of(row).counts())
                .collect();
            ringing.insert(
                status.name.clone(),
                lately(&minutes, &StreamFigures::new(status).counts()),
            );
        }
        Ok(Self(ringing))
    }

    /// What rings of a stream.
    pub fn of(&self, stream: &StreamName) -> &[Alarm] {
        self.0.get(stream).map_or(&[], Vec::as_slice)
    }

    /// With what rings of a stream.
    #[cfg(test)]
    pub(crate) fn with(mut self, stream: StreamName, alarms: Vec<Alarm>) -> Self {
        self.0.insert(stream, alarms);
        self
    }
}
