//! The indexes of jobs by state, read over several queues at once and merged.

use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::record::{MEMBER_BYTES, TIMED, id_of};
use crate::reply;
use crate::script::{NEXT_READY, READY_COUNT};
use backstop_core::port::StoreResult;
use backstop_core::{JobId, JobState, QueueName};
use redis::{Cmd, Value};

/// The location of a job: the index of its queue, and its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JobLocation {
    pub(crate) queue: usize,
    pub(crate) id: JobId,
}

/// A member of an index, and the job it stands for.
#[derive(Clone, Debug)]
pub(crate) struct IndexMember {
    pub(crate) location: JobLocation,
    pub(crate) member: Vec<u8>,
    /// The place of the job in a ready index.
    pub(crate) place: u64,
}

/// The direction of an index scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScanDirection {
    Forward,
    Backward,
}

/// An index in member order, or the part of it whose members begin with a prefix.
#[derive(Clone, Copy)]
pub(crate) struct IndexRange<'a> {
    pub(crate) part: QueueKey,
    pub(crate) prefix: &'a [u8],
}

impl IndexRange<'_> {
    pub(crate) const fn of(part: QueueKey) -> Self {
        Self { part, prefix: b"" }
    }
}

/// The indexes of these queues.
#[derive(Clone, Copy)]
pub(crate) struct StateIndexes<'a> {
    pub(crate) base: &'a StoreContext,
    pub(crate) doing: &'static str,
    pub(crate) queues: &'a [QueueName],
}

impl StateIndexes<'_> {
    /// The next members of an index, without the prefix; at most `max` over all queues.
    pub(crate) async fn next(
        &self,
        IndexRange { part, prefix }: IndexRange<'_>,
        direction: ScanDirection,
        after: Option<&[u8]>,
        max: usize,
    ) -> StoreResult<Vec<IndexMember>> {
        let command = |queue| {
            next_members(
                self.base.keys.part(queue, part),
                prefix,
                direction,
                after,
                max,
            )
        };
        let answers = self
            .base
            .ask_each(self.doing, self.queues.iter().map(command).collect())
            .await?;
        let mut found = Vec::new();
        for (queue, answer) in answers.into_iter().enumerate() {
            let members = readable(self.doing, reply::all_bytes(answer))?;
            let members = members
                .into_iter()
                .filter_map(|member| Some(member.get(prefix.len()..)?.to_vec()));
            found.extend(members.filter_map(|member| at(queue, member)));
        }
        found.sort_unstable_by(|a, b| match direction {
            ScanDirection::Forward => a.member.cmp(&b.member),
            ScanDirection::Backward => b.member.cmp(&a.member),
        });
        found.truncate(max);
        Ok(found)
    }

    /// The next members of the ready index of one queue.
    pub(crate) async fn next_ready(
        &self,
        queue: usize,
        after: Option<(u64, Vec<u8>)>,
        max: usize,
    ) -> StoreResult<Vec<IndexMember>> {
        let mut after = after;
        loop {
            let call = self.base.script(&NEXT_READY, &self.queues[queue]);
            let call = match &after {
                Some((place, member)) => call.arg(*place).arg(&member[..]),
                None => call.arg("").arg(""),
            };
            let answer = self.base.link.run(self.doing, &call.arg(max)).await?;
            let places = readable(self.doing, reply::pairs(answer))?;
            let (last, found) = readable(self.doing, places.split_first())?;
            let is_last = last.0.is_empty();
            let read = |(place, member): &(Vec<u8>, Vec<u8>)| {
                let place = std::str::from_utf8(place).ok()?.parse().ok()?;
                Some(IndexMember {
                    place,
                    ..at(queue, member.clone())?
                })
            };
            let found: Vec<IndexMember> = readable(self.doing, found.iter().map(read).collect())?;
            if !found.is_empty() || is_last {
                return Ok(found);
            }
            // All jobs it looked at had left the index; continue after them.
            after = Some(readable(
                self.doing,
                read(last).map(|last| (last.place, last.member)),
            )?);
        }
    }

    /// All members of the indexes of these states, each cut to arrival and id; `None` if there are
    /// more than `max`.
    pub(crate) async fn whole(
        &self,
        states: &[JobState],
        max: usize,
    ) -> StoreResult<Option<Vec<IndexMember>>> {
        let (ready, others): (Vec<JobState>, Vec<JobState>) =
            states.iter().partition(|state| **state == JobState::Ready);
        let lines: Vec<(usize, JobState)> = (0..self.queues.len())
            .flat_map(|queue| others.iter().map(move |state| (queue, *state)))
            .collect();
        let command = |verb: fn(JobState) -> Cmd| {
            let each = lines.iter().map(move |(queue, state)| {
                let mut command = verb(*state);
                command.arg(self.base.keys.part(&self.queues[*queue], part_of(*state)));
                command
            });
            each.collect::<Vec<Cmd>>()
        };
        let lengths = self.base.ask_each(self.doing, command(length)).await?;
        let mut total: usize = lengths.into_iter().filter_map(reply::count).sum();
        if !ready.is_empty() {
            total += self.ready_count().await?;
        }
        if total > max {
            return Ok(None);
        }
        let mut commands = command(everything);
        for (command, (_, state)) in commands.iter_mut().zip(&lines) {
            if *state != JobState::Running {
                command.arg(0).arg(-1);
            }
        }
        let answers = self.base.ask_each(self.doing, commands).await?;
        let mut found = Vec::new();
        for ((queue, state), answer) in lines.into_iter().zip(answers) {
            let members = readable(self.doing, members(state, answer))?;
            found.extend(members.into_iter().filter_map(|member| at(queue, member)));
        }
        for queue in (0..self.queues.len()).filter(|_| !ready.is_empty()) {
            found.extend(self.all_ready(queue).await?);
        }
        Ok(Some(found))
    }

    /// How many jobs are ready in these queues.
    async fn ready_count(&self) -> StoreResult<usize> {
        let calls = self
            .queues
            .iter()
            .map(|queue| self.base.script(&READY_COUNT, queue))
            .collect();
        let counts = self.base.run_each(self.doing, calls).await?;
        Ok(counts.into_iter().filter_map(reply::count).sum())
    }

    /// The whole ready index of one queue.
    async fn all_ready(&self, queue: usize) -> StoreResult<Vec<IndexMember>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let found = self.next_ready(queue, after, READY_AT_ONCE).await?;
            let Some(last) = found.last() else {
                return Ok(all);
            };
            after = Some((last.place, last.member.clone()));
            all.extend(found);
        }
    }
}

/// How many ready jobs one script call reads.
const READY_AT_ONCE: usize = 5_000;

fn length(state: JobState) -> Cmd {
    redis::cmd(if state == JobState::Running {
        "HLEN"
    } else {
        "ZCARD"
    })
}

fn everything(state: JobState) -> Cmd {
    redis::cmd(if state == JobState::Running {
        "HGETALL"
    } else {
        "ZRANGE"
    })
}

/// The index of a state.
pub(crate) const fn part_of(state: JobState) -> QueueKey {
    match state {
        JobState::Scheduled => QueueKey::Scheduled,
        JobState::Ready => QueueKey::Ready,
        JobState::Running => QueueKey::Leases,
        JobState::Retrying => QueueKey::Retrying,
        JobState::Done => QueueKey::Done,
        JobState::Dead => QueueKey::Dead,
        JobState::Cancelled => QueueKey::Cancelled,
    }
}

/// Longer than any member, and sorts after every member with the same prefix.
const BEHIND: [u8; TIMED + 1] = [0xff; TIMED + 1];

fn next_members(
    key: String,
    prefix: &[u8],
    direction: ScanDirection,
    after: Option<&[u8]>,
    max: usize,
) -> Cmd {
    let (lowest, highest) = if prefix.is_empty() {
        (b"-".to_vec(), b"+".to_vec())
    } else {
        ([b"[", prefix].concat(), [b"(", prefix, &BEHIND].concat())
    };
    let (verb, first, last) = match direction {
        ScanDirection::Forward => ("ZRANGEBYLEX", lowest, highest),
        ScanDirection::Backward => ("ZREVRANGEBYLEX", highest, lowest),
    };
    let from = after.map_or(first, |after| [b"(", prefix, after].concat());
    let mut command = redis::cmd(verb);
    command
        .arg(key)
        .arg(from)
        .arg(last)
        .arg("LIMIT")
        .arg(0)
        .arg(max);
    command
}

fn at(queue: usize, member: Vec<u8>) -> Option<IndexMember> {
    let id = id_of(member.get(member.len().checked_sub(16)?..)?)?;
    Some(IndexMember {
        location: JobLocation { queue, id },
        member,
        place: 0,
    })
}

/// Arrivals and ids of a whole index. A lease has its arrival in the middle.
fn members(state: JobState, answer: Value) -> Option<Vec<Vec<u8>>> {
    if state == JobState::Running {
        let leases = reply::pairs(answer)?.into_iter();
        return leases
            .map(|(id, lease)| Some([lease.get(10..18)?, &id].concat()))
            .collect();
    }
    let cut = |member: Vec<u8>| {
        Some(
            member
                .get(member.len().checked_sub(MEMBER_BYTES)?..)?
                .to_vec(),
        )
    };
    reply::all_bytes(answer)?.into_iter().map(cut).collect()
}
