//! The partitions assigned to this member, their records in memory, and the next actions.
//!
//! A pure state machine: callers pass in events and the time, and it returns what to do. It does
//! nothing itself.
//!
//! | event | effect |
//! |---|---|
//! | assigned | a new generation begins; records are accepted |
//! | revoked | the accepted records up to the first gap are committed, the rest is dropped: it comes again to the next owner |
//! | lost | everything is dropped, because others may have continued from the last commit |
//! | a batch of an older generation ends | it no longer counts, and is never committed |

use crate::flow::KafkaBounds;
use crate::lag_monitor::PartitionOffsets;
use crate::message::{KafkaMessage, TopicPartition};
use crate::partition::{AssignmentGeneration, BatchCutting, FlowChange, KafkaPartition};
use crate::prefix::{BatchNumber, CommitMark};
use crate::status::{ConsumerStopReport, PartitionStatus};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// The rules for batches, bounds and commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AssignmentRules {
    pub(crate) cutting: BatchCutting,
    pub(crate) bounds: KafkaBounds,
    pub(crate) commit_every: Duration,
}

/// The partitions assigned to this member.
pub(crate) struct PartitionAssignment {
    rules: AssignmentRules,
    partitions: BTreeMap<TopicPartition, KafkaPartition>,
    generations: u64,
    /// Records of all partitions that have arrived and are not committed.
    records: usize,
    /// Bytes of the records that the sink has not accepted, including those of older generations.
    bytes: usize,
    /// Batches in the sink, of any generation.
    batches_out: usize,
    commits: CommitProgress,
    intake: IntakeState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IntakeState {
    Open,
    Closed,
}

/// The state of commits. The client starts newly assigned partitions only while no commit is under
/// way, so at most one commit is under way.
#[derive(Default)]
struct CommitProgress {
    /// Marks of the partitions that have been assigned since before the commit was sent.
    under_way: BTreeMap<TopicPartition, CommitMark>,
    sent: Option<Instant>,
    /// Refused if any part of the last commit was refused.
    last: OffsetCommitResult,
}

pub(crate) struct MessageBatch {
    pub(crate) ticket: BatchTicket,
    pub(crate) messages: Vec<KafkaMessage>,
}

/// Identifies a batch when the sink returns it.
#[derive(Clone, Debug)]
pub(crate) struct BatchTicket {
    pub(crate) place: TopicPartition,
    pub(crate) records: usize,
    generation: AssignmentGeneration,
    number: BatchNumber,
    bytes: usize,
}

/// How the sink's work on a batch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SinkOutcome {
    Accepted,
    Abandoned,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReleaseReason {
    Revoked,
    Lost,
}

impl fmt::Display for ReleaseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Revoked => "revoked",
            Self::Lost => "lost",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OffsetCommit {
    pub(crate) place: TopicPartition,
    pub(crate) offset: i64,
}

/// The outcome of an offset commit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum OffsetCommitResult {
    #[default]
    Committed,
    Refused,
}

/// Whether there is room for another record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BufferRoom {
    Left,
    None,
}

/// The actions to take now.
#[derive(Default)]
pub(crate) struct PollPlan {
    pub(crate) pause: Vec<TopicPartition>,
    pub(crate) resume: Vec<TopicPartition>,
    pub(crate) batches: Vec<MessageBatch>,
    pub(crate) commits: Vec<OffsetCommit>,
}

impl PartitionAssignment {
    pub(crate) fn new(rules: AssignmentRules) -> Self {
        Self {
            rules,
            partitions: BTreeMap::new(),
            generations: 0,
            records: 0,
            bytes: 0,
            batches_out: 0,
            commits: CommitProgress::default(),
            intake: IntakeState::Open,
        }
    }

    /// Starts tracking newly assigned partitions.
    pub(crate) fn assign(&mut self, places: Vec<TopicPartition>) {
        for place in places {
            self.forget(&place);
            self.generations += 1;
            self.partitions.insert(
                place,
                KafkaPartition::new(AssignmentGeneration(self.generations)),
            );
        }
    }

    /// Stops tracking partitions that were taken away; returns what can still be committed of them.
    pub(crate) fn release(
        &mut self,
        places: &[TopicPartition],
        departure: ReleaseReason,
    ) -> Vec<OffsetCommit> {
        let mut commits = Vec::new();
        for place in places {
            let mark = self
                .forget(place)
                .and_then(|partition| partition.prefix.mark());
            match departure {
                ReleaseReason::Revoked => {
                    commits.extend(mark.map(|mark| OffsetCommit {
                        place: place.clone(),
                        offset: mark.offset,
                    }));
                }
                ReleaseReason::Lost => {}
            }
        }
        commits
    }

    /// Accepts a fetched record. A record of a partition that is not assigned to us is dropped: its
    /// owner gets it, too.
    pub(crate) fn arrive(&mut self, message: KafkaMessage, now: Instant) -> BufferRoom {
        let place = message.topic_partition();
        let Some(partition) = self
            .partitions
            .get_mut(&place)
            .filter(|_| self.intake == IntakeState::Open)
        else {
            return BufferRoom::Left;
        };
        self.records += 1;
        self.bytes += message.weight();
        partition.arrive(message, now);
        let bounds = &self.rules.bounds;
        let is_full = partition.records_waiting() >= bounds.partition_waiting
            || self.bytes >= bounds.bytes
            || self.records >= bounds.records;
        if is_full {
            BufferRoom::None
        } else {
            BufferRoom::Left
        }
    }

    /// Returns the actions to take now; the caller must carry them out.
    pub(crate) fn plan(&mut self, now: Instant) -> PollPlan {
        let mut plan = PollPlan::default();
        if self.intake == IntakeState::Open {
            self.plan_flow(&mut plan);
            self.plan_batches(&mut plan, now);
        }
        plan.commits = self.plan_commits(now);
        plan
    }

    /// Handles a batch that the sink returned.
    pub(crate) fn end_batch(&mut self, ticket: &BatchTicket, end: SinkOutcome) {
        self.bytes -= ticket.bytes;
        self.batches_out -= 1;
        let Some(partition) = self.owned_partition(ticket) else {
            return;
        };
        partition.mark_returned(ticket.number);
        match end {
            SinkOutcome::Accepted => partition.prefix.mark_accepted(ticket.number),
            SinkOutcome::Abandoned => {}
        }
    }

    /// Marks that a try of a batch has failed.
    pub(crate) fn mark_failed(&mut self, ticket: &BatchTicket) {
        if let Some(partition) = self.owned_partition(ticket) {
            partition.mark_failed(ticket.number);
        }
    }

    /// Whether the partition is still assigned to us in the generation of this batch.
    pub(crate) fn is_owned(&self, ticket: &BatchTicket) -> bool {
        self.partitions
            .get(&ticket.place)
            .is_some_and(|partition| partition.generation == ticket.generation)
    }

    /// Whether we may still send this commit. If the partition was reassigned, its new owner may
    /// have committed further, and its offset must not be set back.
    pub(crate) fn awaits(&self, commit: &OffsetCommit) -> bool {
        self.commits
            .under_way
            .get(&commit.place)
            .is_some_and(|mark| mark.offset == commit.offset)
    }

    /// Handles the broker's answer to a commit.
    pub(crate) fn commit_answered(&mut self, commit: &OffsetCommit, answer: OffsetCommitResult) {
        if !self.awaits(commit) {
            return;
        }
        let mark = self.commits.under_way.remove(&commit.place);
        if answer == OffsetCommitResult::Refused {
            self.commits.last = answer;
        }
        let partition = self.partitions.get_mut(&commit.place);
        if let (OffsetCommitResult::Committed, Some(mark), Some(partition)) =
            (answer, mark, partition)
        {
            let before = partition.records();
            partition.prefix.drop_committed(mark.through);
            self.records -= before - partition.records();
        }
    }

    /// Stops handing out batches, and drops the records that were not handed out.
    pub(crate) fn close(&mut self) {
        self.intake = IntakeState::Closed;
        self.bytes -= self
            .partitions
            .values_mut()
            .map(KafkaPartition::drop_waiting)
            .sum::<usize>();
        self.records = self.partitions.values().map(KafkaPartition::records).sum();
    }

    /// Whether batches or commits are under way that a stop waits for.
    pub(crate) fn is_unsettled(&self) -> bool {
        let can_commit = self
            .partitions
            .values()
            .any(|partition| partition.prefix.mark().is_some());
        self.batches_out > 0 || can_commit
    }

    /// Whether there may be work soon even if no record arrives.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_unsettled()
            || self
                .partitions
                .values()
                .any(|partition| partition.records_waiting() > 0)
    }

    /// The records that a stop leaves unfinished or uncommitted.
    pub(crate) fn left_behind(&self) -> ConsumerStopReport {
        let unfinished = self
            .partitions
            .values()
            .map(|partition| partition.prefix.records_in_flight())
            .sum();
        let given_out: usize = self
            .partitions
            .values()
            .map(|partition| partition.prefix.records())
            .sum();
        ConsumerStopReport {
            unfinished,
            uncommitted: given_out - unfinished,
        }
    }

    /// The partitions assigned to us, each with its generation.
    pub(crate) fn places(&self) -> Vec<(TopicPartition, AssignmentGeneration)> {
        self.partitions
            .iter()
            .map(|(place, partition)| (place.clone(), partition.generation))
            .collect()
    }

    /// Stores the brokers' offsets of a partition; returns whether it is still assigned to us.
    pub(crate) fn set_offsets(
        &mut self,
        place: &TopicPartition,
        generation: AssignmentGeneration,
        offsets: PartitionOffsets,
    ) -> bool {
        let partition = self
            .partitions
            .get_mut(place)
            .filter(|partition| partition.generation == generation);
        partition
            .map(|partition| partition.offsets = Some(offsets))
            .is_some()
    }

    pub(crate) fn status(&self) -> Vec<PartitionStatus> {
        let status = |(place, partition): (&TopicPartition, &KafkaPartition)| PartitionStatus {
            place: place.clone(),
            flow: partition.flow(),
            records_waiting: partition.records_waiting(),
            records_uncommitted: partition.prefix.records(),
            high_watermark: partition.offsets.map(|offsets| offsets.high),
            committed: partition.offsets.and_then(|offsets| offsets.committed),
            lag: partition.offsets.map(|offsets| offsets.lag),
        };
        self.partitions.iter().map(status).collect()
    }

    fn plan_flow(&mut self, plan: &mut PollPlan) {
        for (place, partition) in &mut self.partitions {
            match partition.change_flow(self.records, self.bytes, &self.rules.bounds) {
                Some(FlowChange::Pause) => plan.pause.push(place.clone()),
                Some(FlowChange::Resume) => plan.resume.push(place.clone()),
                None => {}
            }
        }
    }

    fn plan_batches(&mut self, plan: &mut PollPlan, now: Instant) {
        for (place, partition) in &mut self.partitions {
            while let Some(cut) = partition.cut(&self.rules.cutting, now) {
                let ticket = BatchTicket {
                    place: place.clone(),
                    records: cut.messages.len(),
                    generation: partition.generation,
                    number: cut.number,
                    bytes: cut.bytes,
                };
                plan.batches.push(MessageBatch {
                    ticket,
                    messages: cut.messages,
                });
            }
        }
        self.batches_out += plan.batches.len();
    }

    fn plan_commits(&mut self, now: Instant) -> Vec<OffsetCommit> {
        let is_early =
            |sent: Instant| now.saturating_duration_since(sent) < self.rules.commit_every;
        let must_wait = self.commits.last == OffsetCommitResult::Refused || !self.is_pressing();
        if (must_wait && self.commits.sent.is_some_and(is_early))
            || !self.commits.under_way.is_empty()
        {
            return Vec::new();
        }
        let marks = self.partitions.iter();
        let marks =
            marks.filter_map(|(place, partition)| Some((place.clone(), partition.prefix.mark()?)));
        self.commits.under_way = marks.collect();
        if !self.commits.under_way.is_empty() {
            self.commits.sent = Some(now);
            self.commits.last = OffsetCommitResult::Committed;
        }
        let under_way = self.commits.under_way.iter();
        under_way
            .map(|(place, mark)| OffsetCommit {
                place: place.clone(),
                offset: mark.offset,
            })
            .collect()
    }

    /// Whether so many records can be committed that waiting might leave the sink idle.
    fn is_pressing(&self) -> bool {
        let whole = self
            .partitions
            .values()
            .map(|partition| partition.prefix.records_accepted());
        let (largest, sum) = whole.fold((0, 0), |(largest, sum), whole| {
            (whole.max(largest), sum + whole)
        });
        largest >= self.rules.cutting.uncommitted_max.div_ceil(4)
            || sum >= self.rules.bounds.records.div_ceil(4)
    }

    fn owned_partition(&mut self, ticket: &BatchTicket) -> Option<&mut KafkaPartition> {
        let partition = self.partitions.get_mut(&ticket.place);
        partition.filter(|partition| partition.generation == ticket.generation)
    }

    fn forget(&mut self, place: &TopicPartition) -> Option<KafkaPartition> {
        self.commits.under_way.remove(place);
        let mut partition = self.partitions.remove(place)?;
        self.records -= partition.records();
        self.bytes -= partition.drop_waiting();
        Some(partition)
    }
}

#[cfg(test)]
mod tests;
