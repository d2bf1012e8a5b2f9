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
pub(crate) struct Prefix {
    pieces: VecDeque<Piece>,
    /// The number of the first piece.
    first: u64,
    /// So many of the first pieces have been taken in.
    whole: usize,
    records_whole: usize,
    records: usize,
}

/// The number of a batch in its assignment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Number(u64);

/// Something to commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    /// The last batch it covers.
    pub(crate) through: Number,
    /// The offset after that batch's last record.
    pub(crate) offset: i64,
}

#[derive(Debug)]
struct Piece {
    end: i64,
    records: usize,
    state: State,
}

#[derive(PartialEq, Eq, Debug)]
enum State {
    GivenOut,
    TakenIn,
}

impl Prefix {
    /// Notes a batch that ends before the offset `end`.
    pub(crate) fn give(&mut self, end: i64, records: usize) -> Number {
        let number = Number(self.first + self.pieces.len() as u64);
        self.pieces.push_back(Piece {
            end,
            records,
            state: State::GivenOut,
        });
        self.records += records;
        number
    }

    /// Notes that a batch has been taken in.
    pub(crate) fn take_in(&mut self, number: Number) {
        if let Some(piece) = self
            .position(number)
            .and_then(|position| self.pieces.get_mut(position))
        {
            piece.state = State::TakenIn;
        }
        while let Some(piece) = self
            .pieces
            .get(self.whole)
            .filter(|piece| piece.state == State::TakenIn)
        {
            self.records_whole += piece.records;
            self.whole += 1;
        }
    }

    /// What may be committed and is not.
    pub(crate) fn mark(&self) -> Option<Mark> {
        let last = self.whole.checked_sub(1)?;
        let through = Number(self.first + last as u64);
        self.pieces.get(last).map(|piece| Mark {
            through,
            offset: piece.end,
        })
    }

    /// Forgets what has been committed.
    pub(crate) fn committed(&mut self, through: Number) {
        while self.whole > 0 && self.first <= through.0 {
            let piece = self
                .pieces
                .pop_front()
                .expect("the whole ones are among the pieces");
            self.records -= piece.records;
            self.records_whole -= piece.records;
            self.first += 1;
            self.whole -= 1;
        }
    }

    /// Records that have been given out and are not committed.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Of those, the ones that may be committed.
    pub(crate) fn records_whole(&self) -> usize {
        self.records_whole
    }

    /// Of all that were given out, the ones that the sink has not taken in.
    pub(crate) fn records_out(&self) -> usize {
        let out = self
            .pieces
            .iter()
            .filter(|piece| piece.state == State::GivenOut);
        out.map(|piece| piece.records).sum()
    }

    fn position(&self, number: Number) -> Option<usize> {
        number
            .0
            .checked_sub(self.first)
            .and_then(|position| usize::try_from(position).ok())
    }
}

#[cfg(test)]
mod tests;
