//! How far a partition may be committed: to the end of the batches that have been taken in without
//! one missing between.
//!
//! | given out | taken in | end of the prefix |
//! |---|---|---|
//! | a b c | – | nothing |
//! | a b c | b c | nothing |
//! | a b c | a | a |
//! | a b c | a b c | c |
//!
//! The order is that of giving out, never that of offsets: these have gaps, and begin anew if a
//! topic was cut off. A batch is remembered until its commit was acknowledged, since until then it
//! would come again after a crash. Knows one partition in one assignment.

use std::collections::VecDeque;

/// The batches of one partition that are not committed.
#[derive(Default, Debug)]
pub(crate) struct AcceptedPrefix {
    pieces: VecDeque<PrefixBatch>,
    /// The number of the first piece.
    first: u64,
    /// So many of the first pieces have been taken in.
    accepted: usize,
    records_accepted: usize,
    records: usize,
}

/// The number of a batch in its assignment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BatchNumber(u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommitMark {
    /// The last batch it covers.
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
    /// Notes a batch that ends before the offset `end`.
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

    /// Notes that a batch has been taken in.
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

    /// What may be committed and is not.
    pub(crate) fn mark(&self) -> Option<CommitMark> {
        let last = self.accepted.checked_sub(1)?;
        let through = BatchNumber(self.first + last as u64);
        self.pieces.get(last).map(|piece| CommitMark {
            through,
            offset: piece.end,
        })
    }

    /// Forgets what has been committed.
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

    /// Records that have been given out and are not committed.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Of those, the ones that may be committed.
    pub(crate) fn records_accepted(&self) -> usize {
        self.records_accepted
    }

    /// Of all that were given out, the ones that the sink has not taken in.
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
