use super::{
    AssignmentRules, BufferRoom, MessageBatch, OffsetCommit, OffsetCommitResult,
    PartitionAssignment, PollPlan, ReleaseReason, SinkOutcome,
};
use crate::flow::{KafkaBounds, KafkaFlow};
use crate::lag_monitor::PartitionOffsets;
use crate::message::{KafkaMessage, TopicPartition};
use crate::partition::BatchCutting;
use crate::status::{ConsumerStopReport, PartitionStatus};
use proptest::prelude::*;
use std::time::{Duration, Instant};

mod history;

const RULES: AssignmentRules = AssignmentRules {
    cutting: BatchCutting {
        records_max: 2,
        bytes_max: 10_000,
        wait: Duration::from_millis(5),
        batches_max: 3,
        uncommitted_max: 16,
    },
    bounds: KafkaBounds {
        partition_waiting: 12,
        records: 24,
        bytes: 100_000,
    },
    commit_every: Duration::from_millis(10),
};

fn place(partition: i32) -> TopicPartition {
    TopicPartition {
        topic: "orders".into(),
        partition,
    }
}

fn record(partition: i32, offset: i64) -> KafkaMessage {
    KafkaMessage {
        topic: "orders".into(),
        partition,
        offset,
        key: None,
        payload: None,
        timestamp_ms: None,
    }
}

/// An assignment, the time, and the batches in the sink.
struct Scene {
    assignment: PartitionAssignment,
    now: Instant,
    out: Vec<MessageBatch>,
}

impl Scene {
    fn of(partitions: &[i32]) -> Self {
        let mut assignment = PartitionAssignment::new(RULES);
        assignment.assign(partitions.iter().copied().map(place).collect());
        Self {
            assignment,
            now: Instant::now(),
            out: Vec::new(),
        }
    }

    fn arrive(&mut self, partition: i32, offsets: std::ops::Range<i64>) -> Vec<BufferRoom> {
        offsets
            .map(|offset| self.assignment.arrive(record(partition, offset), self.now))
            .collect()
    }

    /// Lets time pass; returns the plan, and hands its batches to the sink.
    fn plan(&mut self, millis: u64) -> PollPlan {
        self.now += Duration::from_millis(millis);
        let mut plan = self.assignment.plan(self.now);
        self.out.append(&mut plan.batches);
        plan
    }

    /// The sink ends the batch in place `nth`.
    fn end(&mut self, nth: usize, end: SinkOutcome) {
        let batch = self.out.remove(nth);
        self.assignment.end_batch(&batch.ticket, end);
    }

    fn commits(&mut self, millis: u64) -> Vec<(i32, i64)> {
        pairs(&self.plan(millis).commits)
    }

    fn answer(&mut self, partition: i32, offset: i64, answer: OffsetCommitResult) {
        self.assignment.commit_answered(
            &OffsetCommit {
                place: place(partition),
                offset,
            },
            answer,
        );
    }

    /// The records of each partition that are not committed, handed out or not.
    fn in_hand(&self) -> Vec<usize> {
        let records =
            |status: &PartitionStatus| status.records_waiting + status.records_uncommitted;
        self.assignment.status().iter().map(records).collect()
    }
}

fn pairs(commits: &[OffsetCommit]) -> Vec<(i32, i64)> {
    commits
        .iter()
        .map(|commit| (commit.place.partition, commit.offset))
        .collect()
}

#[test]
fn what_is_taken_in_without_a_gap_is_committed() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 10..16);
    assert_eq!(scene.commits(0), [], "nothing is taken in");
    scene.end(1, SinkOutcome::Accepted);
    assert_eq!(scene.commits(20), [], "the first batch is missing");
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(20), [(0, 14)]);
}

#[test]
fn one_commit_is_under_way_at_a_time() {
    let mut scene = Scene::of(&[0, 1]);
    scene.arrive(0, 0..4);
    scene.arrive(1, 0..2);
    scene.plan(0);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(20), [(0, 2)]);
    scene.end(0, SinkOutcome::Accepted);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(20), [], "the first is not answered");
    scene.answer(0, 2, OffsetCommitResult::Committed);
    assert_eq!(scene.commits(20), [(0, 4), (1, 2)]);
}

#[test]
fn commits_have_a_pause_between_them() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..4);
    scene.plan(0);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(0), [(0, 2)], "the first at once");
    scene.answer(0, 2, OffsetCommitResult::Committed);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(9), []);
    assert_eq!(scene.commits(1), [(0, 4)]);
}

#[test]
fn much_to_commit_does_not_wait() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..8);
    scene.plan(0);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(0), [(0, 2)]);
    scene.answer(0, 2, OffsetCommitResult::Committed);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(0), []);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(
        scene.commits(0),
        [(0, 6)],
        "a quarter of what may be in hand"
    );
}

#[test]
fn a_refused_commit_is_sent_again() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..2);
    scene.plan(0);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(20), [(0, 2)]);
    scene.answer(0, 2, OffsetCommitResult::Refused);
    assert_eq!(scene.commits(20), [(0, 2)]);
}

#[test]
fn a_refused_commit_is_sent_again_after_a_pause_however_much_there_is() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..6);
    scene.plan(0);
    for _ in 0..3 {
        scene.end(0, SinkOutcome::Accepted);
    }
    assert_eq!(scene.commits(0), [(0, 6)]);
    scene.answer(0, 6, OffsetCommitResult::Refused);
    assert_eq!(scene.commits(9), []);
    assert_eq!(scene.commits(1), [(0, 6)]);
}

#[test]
fn an_answer_to_another_commit_changes_nothing() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..2);
    scene.plan(0);
    scene.answer(0, 2, OffsetCommitResult::Committed);
    assert_eq!(scene.in_hand(), [2]);
    scene.end(0, SinkOutcome::Accepted);
    scene.plan(20);
    scene.answer(0, 1, OffsetCommitResult::Committed);
    assert_eq!(scene.in_hand(), [2]);
    scene.answer(0, 2, OffsetCommitResult::Committed);
    assert_eq!(scene.in_hand(), [0]);
}

#[test]
fn revoked_partitions_are_committed_as_far_as_they_are_whole() {
    let mut scene = Scene::of(&[0, 1, 2]);
    for partition in 0..3 {
        scene.arrive(partition, 0..4);
    }
    scene.plan(0);
    scene.end(0, SinkOutcome::Accepted);
    scene.end(2, SinkOutcome::Accepted);
    let commits = scene
        .assignment
        .release(&[place(0), place(1)], ReleaseReason::Revoked);
    assert_eq!(
        pairs(&commits),
        [(0, 2)],
        "the first batch of 1 is still with the sink"
    );
    assert_eq!(scene.in_hand(), [4], "partition 2 stays");
}

#[test]
fn lost_partitions_are_not_committed() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..2);
    scene.plan(0);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(
        scene.assignment.release(&[place(0)], ReleaseReason::Lost),
        []
    );
    assert_eq!(scene.commits(20), []);
}

#[test]
fn what_ends_after_a_revocation_is_never_committed() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..2);
    scene.plan(0);
    scene
        .assignment
        .release(&[place(0)], ReleaseReason::Revoked);
    scene.assignment.assign(vec![place(0)]);
    scene.arrive(0, 0..2);
    scene.plan(0);
    assert!(!scene.assignment.is_owned(&scene.out[0].ticket));
    assert!(scene.assignment.is_owned(&scene.out[1].ticket));
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(
        scene.commits(20),
        [],
        "the batch of the former assignment does not count"
    );
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(20), [(0, 2)]);
}

#[test]
fn a_commit_is_not_sent_once_its_partition_has_gone() {
    let mut scene = Scene::of(&[0, 1]);
    scene.arrive(0, 0..2);
    scene.arrive(1, 0..2);
    scene.plan(0);
    scene.end(0, SinkOutcome::Accepted);
    scene.end(0, SinkOutcome::Accepted);
    let commits = scene.plan(20).commits;
    scene
        .assignment
        .release(&[place(0)], ReleaseReason::Revoked);
    scene.assignment.assign(vec![place(0)]);
    let awaited = commits
        .iter()
        .filter(|commit| scene.assignment.awaits(commit));
    assert_eq!(
        awaited
            .map(|commit| commit.place.partition)
            .collect::<Vec<_>>(),
        [1]
    );
}

#[test]
fn an_answer_that_comes_after_a_revocation_frees_nothing() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..2);
    scene.plan(0);
    scene.end(0, SinkOutcome::Accepted);
    scene.plan(20);
    scene
        .assignment
        .release(&[place(0)], ReleaseReason::Revoked);
    scene.assignment.assign(vec![place(0)]);
    scene.arrive(0, 0..2);
    scene.answer(0, 2, OffsetCommitResult::Committed);
    assert_eq!(scene.in_hand(), [2]);
}

#[test]
fn a_record_of_a_partition_that_is_not_ours_is_dropped() {
    let mut scene = Scene::of(&[0]);
    assert_eq!(scene.arrive(7, 0..1), [BufferRoom::Left]);
    scene.plan(10);
    assert!(scene.out.is_empty());
}

#[test]
fn a_partition_has_room_for_so_many_records() {
    let mut scene = Scene::of(&[0, 1]);
    let rooms = scene.arrive(0, 0..12);
    assert_eq!(rooms.last(), Some(&BufferRoom::None));
    assert!(rooms[..11].iter().all(|room| *room == BufferRoom::Left));
    assert_eq!(scene.plan(0).pause, [place(0)]);
}

#[test]
fn all_partitions_together_have_room_for_so_many_records() {
    let mut scene = Scene::of(&[0, 1, 2]);
    scene.arrive(0, 0..11);
    scene.arrive(2, 0..4);
    assert_eq!(scene.arrive(1, 0..9).last(), Some(&BufferRoom::None));
    assert_eq!(scene.plan(0).pause, [place(0), place(1), place(2)]);
}

#[test]
fn a_refused_batch_pauses_its_partition_alone() {
    let mut scene = Scene::of(&[0, 1]);
    assert_eq!(scene.plan(0).resume, [place(0), place(1)]);
    scene.arrive(0, 0..2);
    scene.plan(0);
    scene.assignment.mark_failed(&scene.out[0].ticket);
    assert_eq!(scene.plan(0).pause, [place(0)]);
    let flows: Vec<KafkaFlow> = scene
        .assignment
        .status()
        .iter()
        .map(|status| status.flow)
        .collect();
    assert_eq!(flows, [KafkaFlow::Failing, KafkaFlow::Flowing]);
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.plan(0).resume, [place(0)]);
}

#[test]
fn a_closed_assignment_commits_and_does_nothing_else() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..3);
    scene.plan(0);
    scene.assignment.close();
    assert_eq!(scene.in_hand(), [2], "what was not given out is forgotten");
    scene.arrive(0, 3..5);
    let plan = scene.plan(50);
    assert_eq!(
        (scene.out.len(), plan.pause.len(), plan.resume.len()),
        (1, 0, 0)
    );
    assert!(scene.assignment.is_unsettled());
    scene.end(0, SinkOutcome::Accepted);
    assert_eq!(scene.commits(20), [(0, 2)]);
    assert!(
        scene.assignment.is_unsettled(),
        "the commit is not answered"
    );
    scene.answer(0, 2, OffsetCommitResult::Committed);
    assert!(!scene.assignment.is_unsettled());
    assert_eq!(
        scene.assignment.left_behind(),
        ConsumerStopReport {
            unfinished: 0,
            uncommitted: 0
        }
    );
}

#[test]
fn a_stop_tells_what_it_leaves_behind() {
    let mut scene = Scene::of(&[0]);
    scene.arrive(0, 0..6);
    scene.plan(0);
    scene.assignment.close();
    scene.end(2, SinkOutcome::Accepted);
    scene.end(0, SinkOutcome::Abandoned);
    assert_eq!(
        scene.assignment.left_behind(),
        ConsumerStopReport {
            unfinished: 4,
            uncommitted: 2
        }
    );
}

#[test]
fn what_the_brokers_say_counts_for_the_assignment_it_was_asked_for() {
    let mut scene = Scene::of(&[0]);
    let (ours, generation) = scene.assignment.places().remove(0);
    let seen = PartitionOffsets {
        high: 9,
        committed: Some(4),
        lag: 5,
    };
    assert!(scene.assignment.set_offsets(&ours, generation, seen));
    assert_eq!(scene.assignment.status()[0].lag, Some(5));
    scene.assignment.assign(vec![place(0)]);
    assert!(!scene.assignment.set_offsets(&ours, generation, seen));
    assert_eq!(scene.assignment.status()[0].lag, None);
}

proptest! {
    #[test]
    fn nothing_is_lost_whatever_happens(steps in prop::collection::vec(history::step(), 0..200)) {
        history::play(&steps);
    }
}
