//! Sends commits and waits for the answers, on its own thread. The client reports the outcome of a
//! commit only to a caller that waits for it (rust-rdkafka #856), and the polling thread must not
//! wait.

use crate::assignment::{OffsetCommit, OffsetCommitResult};
use crate::consumer_state::{ConsumerPart, ConsumerState};
use crate::context::RebalanceHandler;
use crate::meters;
use crate::topic_partitions;
use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaResult;
use std::sync::mpsc::Receiver;

/// The context of the committing thread.
pub(crate) struct OffsetCommitter<'a> {
    pub(crate) consumer: &'a BaseConsumer<RebalanceHandler>,
    pub(crate) state: &'a ConsumerState,
}

impl OffsetCommitter<'_> {
    /// Runs until the sender of `orders` is dropped.
    pub(crate) fn run(&self, orders: &Receiver<Vec<OffsetCommit>>) {
        for mut commits in orders {
            commits.retain(|commit| self.state.assignment().awaits(commit));
            // One topic at a time: the client gives one answer for all, and a deleted topic must
            // not block the commits of others.
            for commits in commits.chunk_by(|one, next| one.place.topic == next.place.topic) {
                self.commit(commits);
            }
        }
    }

    fn commit(&self, commits: &[OffsetCommit]) {
        let answer = match send(self.consumer, commits, CommitMode::Sync) {
            Ok(()) => OffsetCommitResult::Committed,
            Err(error) => {
                self.state.record_failure(
                    ConsumerPart::Commit,
                    &format!("a commit was refused: {error}; it is sent again"),
                );
                OffsetCommitResult::Refused
            }
        };
        for commit in commits {
            self.state.assignment().commit_answered(commit, answer);
            if answer == OffsetCommitResult::Committed {
                meters::count_commit(&commit.place);
            }
        }
    }
}

/// Sends commits, and waits for the answer if `mode` says so.
pub(crate) fn send(
    consumer: &BaseConsumer<RebalanceHandler>,
    commits: &[OffsetCommit],
    mode: CommitMode,
) -> KafkaResult<()> {
    if commits.is_empty() {
        return Ok(());
    }
    let offsets = commits
        .iter()
        .map(|commit| (&commit.place, Offset::Offset(commit.offset)));
    consumer.commit(&topic_partitions::to_list_at(offsets)?, mode)
}
