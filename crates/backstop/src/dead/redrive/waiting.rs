//! Letters that found their queue full: they wait, and letters of other queues go past them.

use super::LETTERS_MAX;
use super::watch::RedrivenJob;
use backstop_core::QueueName;
use std::collections::{BTreeSet, VecDeque};

/// Letters that wait for room, in their order. They are tried again in rounds.
#[derive(Default)]
pub(super) struct WaitingLetters {
    /// Those that this round has yet to try: none is of a queue in `full`.
    round: VecDeque<RedrivenJob>,
    next_round: Vec<RedrivenJob>,
    /// The queues that were full in this round.
    full: BTreeSet<QueueName>,
}

impl WaitingLetters {
    pub(super) fn is_empty(&self) -> bool {
        self.round.is_empty() && self.next_round.is_empty()
    }

    /// Whether more may wait. A redrive requeues no more than these in any case.
    pub(super) fn has_room(&self) -> bool {
        ((self.round.len() + self.next_round.len()) as u64) < LETTERS_MAX
    }

    pub(super) fn is_round_over(&self) -> bool {
        self.round.is_empty()
    }

    /// Makes all of them due once more.
    pub(super) fn begin_round(&mut self) {
        self.round = std::mem::take(&mut self.next_round).into();
        self.full.clear();
    }

    /// The next of this round, at most `count`. They stay until they are removed: the store may
    /// fail before it is known what becomes of them.
    pub(super) fn next(&self, count: usize) -> Vec<RedrivenJob> {
        self.round.iter().take(count).cloned().collect()
    }

    /// Removes the next of this round, at most `count`.
    pub(super) fn remove(&mut self, count: usize) {
        self.round.drain(..count.min(self.round.len()));
    }

    /// Whether a letter's queue was full in this round. Of one that was picked by its id alone this
    /// is not known.
    pub(super) fn is_full_for(&self, letter: &RedrivenJob) -> bool {
        letter
            .queue
            .as_ref()
            .is_some_and(|queue| self.full.contains(queue))
    }

    /// Keeps letters whose queues are full for the next round, and those of the same queues that
    /// this round has not tried yet, so that each queue is asked once and keeps its order.
    pub(super) fn put_off(&mut self, letters: Vec<RedrivenJob>) {
        self.full
            .extend(letters.iter().filter_map(|letter| letter.queue.clone()));
        self.next_round.extend(letters);
        let (full, others) = std::mem::take(&mut self.round)
            .into_iter()
            .partition::<Vec<_>, _>(|letter| self.is_full_for(letter));
        self.next_round.extend(full);
        self.round = others.into();
    }
}
