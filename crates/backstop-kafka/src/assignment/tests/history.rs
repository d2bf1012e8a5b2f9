//! Random histories: a broker that remembers commits, a client that fetches from there, and a sink
//! that answers in any order.

use super::{
    BufferRoom, MessageBatch, OffsetCommit, OffsetCommitResult, PartitionAssignment,
    PartitionStatus, RULES, ReleaseReason, SinkOutcome, pairs, place, record,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const PARTITIONS: i32 = 3;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Assign(i32),
    Release(i32, ReleaseReason),
    Fetch(i32),
    Plan(u64),
    Fail(usize),
    End(usize, SinkOutcome),
    Answer(OffsetCommitResult),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let departure = prop_oneof![Just(ReleaseReason::Revoked), Just(ReleaseReason::Lost)];
    let end = prop_oneof![Just(SinkOutcome::Accepted), Just(SinkOutcome::Abandoned)];
    let answer = prop_oneof![4 => Just(OffsetCommitResult::Committed), 1 => Just(OffsetCommitResult::Refused)];
    prop_oneof![
        2 => (0..PARTITIONS).prop_map(Step::Assign),
        1 => (0..PARTITIONS, departure).prop_map(|(partition, departure)| Step::Release(partition, departure)),
        12 => (0..PARTITIONS).prop_map(Step::Fetch),
        6 => (0..12_u64).prop_map(Step::Plan),
        1 => (0..20_usize).prop_map(Step::Fail),
        6 => (0..20_usize, end).prop_map(|(nth, end)| Step::End(nth, end)),
        4 => answer.prop_map(Step::Answer),
    ]
}

/// Plays a history. After each step, only accepted records are committed, and no bound is exceeded.
pub(super) fn play(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        world.step(step);
        world.check();
    }
    world.settle();
}

struct World {
    assignment: PartitionAssignment,
    now: Instant,
    /// The next offset that the client fetches, of each assigned partition.
    position: BTreeMap<i32, i64>,
    paused: BTreeSet<i32>,
    /// Whether another record may arrive before the next plan.
    room: BufferRoom,
    out: Vec<MessageBatch>,
    sent: Vec<OffsetCommit>,
    /// The offsets that the broker has stored.
    committed: BTreeMap<i32, i64>,
    taken_in: BTreeSet<(i32, i64)>,
}

impl World {
    fn new() -> Self {
        Self {
            assignment: PartitionAssignment::new(RULES),
            now: Instant::now(),
            position: BTreeMap::new(),
            paused: BTreeSet::new(),
            room: BufferRoom::Left,
            out: Vec::new(),
            sent: Vec::new(),
            committed: BTreeMap::new(),
            taken_in: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Assign(partition) => self.assign(partition),
            Step::Release(partition, departure) => self.release(partition, departure),
            Step::Fetch(partition) => self.fetch(partition),
            Step::Plan(millis) => self.plan(millis),
            Step::Fail(nth) => {
                if let Some(batch) = self.out.get(nth) {
                    self.assignment.mark_failed(&batch.ticket);
                }
            }
            Step::End(nth, end) if nth < self.out.len() => self.end(nth, end),
            Step::End(..) => {}
            Step::Answer(answer) => self.answer(answer),
        }
    }

    fn assign(&mut self, partition: i32) {
        if !self.position.contains_key(&partition) {
            self.position.insert(
                partition,
                self.committed.get(&partition).copied().unwrap_or(0),
            );
            self.assignment.assign(vec![place(partition)]);
            // A poll that delivers an assignment delivers no record.
            self.room = BufferRoom::None;
        }
    }

    fn release(&mut self, partition: i32, departure: ReleaseReason) {
        if self.position.remove(&partition).is_some() {
            let commits = self.assignment.release(&[place(partition)], departure);
            assert!(departure == ReleaseReason::Revoked || commits.is_empty());
            self.committed.extend(pairs(&commits));
        }
    }

    fn fetch(&mut self, partition: i32) {
        let is_open = self.room == BufferRoom::Left && !self.paused.contains(&partition);
        if let Some(offset) = self.position.get_mut(&partition).filter(|_| is_open) {
            let message = record(partition, *offset);
            *offset = next(*offset);
            self.room = self.assignment.arrive(message, self.now);
        }
    }

    fn plan(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        let mut plan = self.assignment.plan(self.now);
        self.paused
            .extend(plan.pause.iter().map(|place| place.partition));
        for place in &plan.resume {
            self.paused.remove(&place.partition);
        }
        self.room = BufferRoom::Left;
        self.out.append(&mut plan.batches);
        self.sent.append(&mut plan.commits);
    }

    /// Ends a batch. A batch is abandoned only if its partition was taken away; otherwise it is
    /// retried.
    fn end(&mut self, nth: usize, end: SinkOutcome) {
        let batch = self.out.remove(nth);
        let end = if self.assignment.is_owned(&batch.ticket) {
            SinkOutcome::Accepted
        } else {
            end
        };
        if end == SinkOutcome::Accepted {
            self.taken_in.extend(
                batch
                    .messages
                    .iter()
                    .map(|message| (message.partition, message.offset)),
            );
        }
        self.assignment.end_batch(&batch.ticket, end);
    }

    /// The broker answers all commits, but stores none for a partition that has another owner.
    fn answer(&mut self, answer: OffsetCommitResult) {
        for commit in std::mem::take(&mut self.sent) {
            if answer == OffsetCommitResult::Committed
                && self.position.contains_key(&commit.place.partition)
            {
                self.committed.insert(commit.place.partition, commit.offset);
            }
            self.assignment.commit_answered(&commit, answer);
        }
    }

    fn check(&self) {
        for (partition, committed) in &self.committed {
            let offsets = std::iter::successors(Some(0), |offset| Some(next(*offset)));
            let mut before = offsets.take_while(|offset| offset < committed);
            let lost = before.find(|offset| !self.taken_in.contains(&(*partition, *offset)));
            assert_eq!(
                lost, None,
                "of partition {partition}, committed up to {committed}"
            );
        }
        let status = self.assignment.status();
        let is_within = |status: &PartitionStatus| {
            status.records_waiting <= RULES.bounds.partition_waiting
                && status.records_uncommitted <= RULES.cutting.uncommitted_max
        };
        assert!(status.iter().all(is_within), "{status:?}");
        let records: usize = status
            .iter()
            .map(|status| status.records_waiting + status.records_uncommitted)
            .sum();
        assert!(records <= RULES.bounds.records, "{status:?}");
        assert_eq!(records, self.assignment.records);
    }

    /// From here on everything succeeds. In the end, nothing is left to do.
    fn settle(&mut self) {
        while self.assignment.is_busy() {
            while !self.out.is_empty() {
                self.end(0, SinkOutcome::Accepted);
            }
            self.plan(RULES.commit_every.as_millis() as u64);
            self.answer(OffsetCommitResult::Committed);
            self.check();
        }
        assert_eq!(
            (
                self.assignment.records,
                self.assignment.bytes,
                self.assignment.batches_out
            ),
            (0, 0, 0)
        );
    }
}

/// The next offset; offsets in these histories have gaps.
fn next(offset: i64) -> i64 {
    offset + 1 + offset % 2
}
