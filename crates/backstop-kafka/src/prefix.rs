//! How far a partition may be committed: to the end of the accepted batches, up to the first gap.
//!
//! | handed out | accepted | end of the prefix |
//! |---|---|---|
//! | a b c | – | nothing |
//! | a b c | b c | nothing |
//! | a b c | a | a |
//! | a b c | a b c | c |
//!
//! The batches are ordered by when they were handed out, never by offset: offsets have gaps, and
//! start over if a topic was truncated. A batch is remembered until its commit is acknowledged,
//! because until then it would come again after a crash. A prefix covers one partition in one
//! assignment.

use std::collections::VecDeque;

/// The batches of one partition that are not committed.
#[derive(Default, Debug)]
pub(crate) struct AcceptedPrefix {
    pieces: VecDeque<PrefixBatch>,
    /// The number of the first batch in `pieces`.
    first: u64,
    /// How many of the first batches were accepted.
    accepted: usize,
    records_accepted: usize,
    records: usize,
}

/// The number of a batch in its assignment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BatchNumber(u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommitMark {
    /// The last batch that the commit covers.
    pub(crate) through: BatchNumber,
    /// The offset after that batch's last record.
    pub(crate) offset: i64,
}

#[derive(Debug)]
struct PrefixBatch {
    end: i64,
    records: usize,
    state: PrefixBatchState,
}

#[derive(PartialEq, Eq, Debug)]
enum PrefixBatchState {
    InFlight,
    Accepted,
}

impl AcceptedPrefix {
    /// Adds a batch that ends before the offset `end`.
    pub(crate) fn push(&mut self, end: i64, records: usize) -> BatchNumber {
        let number = BatchNumber(self.first + self.pieces.len() as u64);
        self.pieces.push_back(PrefixBatch {
            end,
            records,
            state: PrefixBatchState::InFlight,
        });
        self.records += records;
        number
    }

    /// Marks a batch as accepted.
    pub(crate) fn mark_accepted(&mut self, number: BatchNumber) {
        if let Some(piece) = self
            .position(number)
            .and_then(|position| self.pieces.get_mut(position))
        {
            piece.state = PrefixBatchState::Accepted;
        }
        while let Some(piece) = self
            .pieces
            .get(self.accepted)
            .filter(|piece| piece.state == PrefixBatchState::Accepted)
        {
            self.records_accepted += piece.records;
            self.accepted += 1;
        }
    }

    /// The commit that is possible and was not acknowledged yet.
    pub(crate) fn mark(&self) -> Option<CommitMark> {
        let last = self.accepted.checked_sub(1)?;
        let through = BatchNumber(self.first + last as u64);
        self.pieces.get(last).map(|piece| CommitMark {
            through,
            offset: piece.end,
        })
    }

    /// Removes the batches that were committed.
    pub(crate) fn drop_committed(&mut self, through: BatchNumber) {
        while self.accepted > 0 && self.first <= through.0 {
            let piece = self
                .pieces
                .pop_front()
                .expect("the whole ones are among the pieces");
            self.records -= piece.records;
            self.records_accepted -= piece.records;
            self.first += 1;
            self.accepted -= 1;
        }
    }

    /// Records that were handed out and are not committed.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Those of [`AcceptedPrefix::records`] that may be committed.
    pub(crate) fn records_accepted(&self) -> usize {
        self.records_accepted
    }

    /// Records that were handed out and that the sink has not accepted.
    pub(crate) fn records_in_flight(&self) -> usize {
        let out = self
            .pieces
            .iter()
            .filter(|piece| piece.state == PrefixBatchState::InFlight);
        out.map(|piece| piece.records).sum()
    }

    fn position(&self, number: BatchNumber) -> Option<usize> {
        number
            .0
            .checked_sub(self.first)
            .and_then(|position| usize::try_from(position).ok())
    }
}

#[cfg(test)]
mod tests;
