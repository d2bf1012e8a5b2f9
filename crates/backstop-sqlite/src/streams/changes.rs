//! The changes of a transaction to streams and takes. They are written once: at the end, or before
//! a statement reads them.

use crate::row;
use backstop_core::stream::StreamCounts;
use backstop_core::{LeaseNumber, StreamName};
use rusqlite::{Connection, OptionalExtension, Result, params};
use std::collections::HashMap;

const STREAM_FIND: &str = include_str!("../sql/stream_find.sql");
const STREAM_ADD: &str = include_str!("../sql/stream_add.sql");
const STREAM_TOTAL: &str = include_str!("../sql/stream_total.sql");
const STREAM_COUNT: &str = include_str!("../sql/stream_count.sql");
const TAKE_LEFT: &str = include_str!("../sql/take_left.sql");
const TAKE_CLOSE: &str = include_str!("../sql/take_close.sql");

/// The streams that a transaction has read, with their changes.
#[derive(Default)]
pub(crate) struct StreamChanges {
    streams: Vec<ChangedStream>,
    by_name: HashMap<StreamName, StreamIndex>,
    /// The number of keys that left a take, by stream and take.
    left: HashMap<(i64, LeaseNumber), i64>,
}

/// The index of a stream in this transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamIndex(usize);

/// A stream's row, and the numbers to add to it.
struct ChangedStream {
    id: i64,
    keys: i64,
    holding: i64,
    records: i64,
    counts: StreamCounts,
}

/// Reads the row id of a stream, if it exists.
pub(super) fn stream_id(db: &Connection, name: &StreamName) -> Result<Option<i64>> {
    db.prepare_cached(STREAM_FIND)?
        .query_row([name.as_str()], |row| row::whole(row, 0))
        .optional()
}

impl StreamChanges {
    /// Finds the stream of this name.
    pub(super) fn find(
        &mut self,
        db: &Connection,
        name: &StreamName,
    ) -> Result<Option<StreamIndex>> {
        if let Some(at) = self.by_name.get(name) {
            return Ok(Some(*at));
        }
        Ok(stream_id(db, name)?.map(|id| self.remember(id, name)))
    }

    /// Finds the stream of this name, or creates it.
    pub(super) fn find_or_new(
        &mut self,
        db: &Connection,
        name: &StreamName,
    ) -> Result<StreamIndex> {
        if let Some(at) = self.find(db, name)? {
            return Ok(at);
        }
        db.prepare_cached(STREAM_ADD)?.execute([name.as_str()])?;
        Ok(self.remember(db.last_insert_rowid(), name))
    }

    fn remember(&mut self, id: i64, name: &StreamName) -> StreamIndex {
        let at = StreamIndex(self.streams.len());
        self.by_name.insert(name.clone(), at);
        self.streams.push(ChangedStream {
            id,
            keys: 0,
            holding: 0,
            records: 0,
            counts: StreamCounts::default(),
        });
        at
    }

    /// The row id of a stream.
    pub(super) fn id(&self, stream: StreamIndex) -> i64 {
        self.streams[stream.0].id
    }

    /// Counts new keys, or with a negative number removed ones.
    pub(super) fn count_keys(&mut self, stream: StreamIndex, by: i64) {
        self.streams[stream.0].keys += by;
    }

    /// Counts the change of a key from `before` records to `after`.
    pub(super) fn count_records(&mut self, stream: StreamIndex, before: i64, after: i64) {
        let stream = &mut self.streams[stream.0];
        stream.records += after - before;
        stream.holding += i64::from(after > 0) - i64::from(before > 0);
    }

    pub(super) fn count(&mut self, stream: StreamIndex, counts: &StreamCounts) {
        self.streams[stream.0].counts.add(counts);
    }

    /// Records that a key left a take.
    pub(super) fn leave_take(&mut self, stream: StreamIndex, number: LeaseNumber) {
        *self.left.entry((self.id(stream), number)).or_default() += 1;
    }

    /// Writes the changed takes. This is due before they are read, and at the end.
    pub(super) fn flush_takes(&mut self, db: &Connection) -> Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        let mut left = db.prepare_cached(TAKE_LEFT)?;
        let mut close = db.prepare_cached(TAKE_CLOSE)?;
        for ((stream, number), keys) in self.left.drain() {
            left.execute([number.as_i64(), stream, keys])?;
            close.execute([number.as_i64(), stream])?;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self, db: &Connection) -> Result<()> {
        self.flush_takes(db)?;
        self.streams
            .iter_mut()
            .try_for_each(|stream| stream.write(db))
    }
}

impl ChangedStream {
    fn write(&mut self, db: &Connection) -> Result<()> {
        let total = [self.id, self.keys, self.holding, self.records];
        if total[1..] != [0; 3] {
            db.prepare_cached(STREAM_TOTAL)?.execute(total)?;
        }
        let mut count = db.prepare_cached(STREAM_COUNT)?;
        let counted = self
            .counts
            .numbers()
            .iter()
            .enumerate()
            .filter(|(_, number)| **number > 0);
        for (place, number) in counted {
            count.execute(params![
                self.id,
                row::number(place),
                i64::try_from(*number).unwrap_or(i64::MAX)
            ])?;
        }
        (self.keys, self.holding, self.records, self.counts) = (0, 0, 0, StreamCounts::default());
        Ok(())
    }
}
