//! Sends commits and waits for the answers, on a thread of its own: the client tells what came of a
//! commit only to who waits for it (rust-rdkafka #856), and the polling thread must not wait.

use crate::assignment::{Answer, Commit};
use crate::board::{Board, Part};
use crate::context::Context;
use crate::meters;
use crate::places;
use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaResult;
use std::sync::mpsc::Receiver;

/// What the thread works with.
pub(crate) struct Committer<'a> {
    pub(crate) consumer: &'a BaseConsumer<Context>,
    pub(crate) board: &'a Board,
}

impl Committer<'_> {
    /// Goes on until the other end of `orders` is dropped.
    pub(crate) fn run(&self, orders: &Receiver<Vec<Commit>>) {
        for mut commits in orders {
            commits.retain(|commit| self.board.assignment().awaits(commit));
            // One topic at a time: the client has one answer for all, and a topic that is gone must
            // not hold up another.
            for commits in commits.chunk_by(|one, next| one.place.topic == next.place.topic) {
                self.commit(commits);
            }
        }
    }

    fn commit(&self, commits: &[Commit]) {
        let answer = match send(self.consumer, commits, CommitMode::Sync) {
            Ok(()) => Answer::Committed,
            Err(error) => {
                self.board.trouble(
                    Part::Commit,
                    &format!("a commit was refused: {error}; it is sent again"),
                );
                Answer::Refused
            }
        };
        for commit in commits {
            self.board.assignment().commit_answered(commit, answer);
            if answer == Answer::Committed {
                meters::committed(&commit.place);
            }
        }
    }
}

/// Sends commits on their way, and waits for the answer if told to.
pub(crate) fn send(
    consumer: &BaseConsumer<Context>,
    commits: &[Commit],
    mode: CommitMode,
) -> KafkaResult<()> {
    if commits.is_empty() {
        return Ok(());
    }
    let offsets = commits
        .iter()
        .map(|commit| (&commit.place, Offset::Offset(commit.offset)));
    consumer.commit(&places::to_list_at(offsets)?, mode)
}
