//! Makes due jobs ready. One pass over all queues finds the due jobs; then each queue moves its
//! own.

use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::record::{from_sortable, sortable, state_code};
use crate::reply;
use crate::script::PROMOTE;
use backstop_core::limits::PROMOTE_MAX;
use backstop_core::port::{PromoteResult, StoreResult};
use backstop_core::{JobState, QueueName, Time};
use redis::{Cmd, Value};
use std::collections::BTreeMap;

const DOING: &str = "promoting";
const WAITING: [(JobState, QueueKey); 2] = [
    (JobState::Scheduled, QueueKey::Scheduled),
    (JobState::Retrying, QueueKey::Retrying),
];

/// Makes jobs ready whose time has come.
pub(crate) async fn promote(
    base: &StoreContext,
    max: usize,
    now: Time,
) -> StoreResult<PromoteResult> {
    let queues = base.queues_known(DOING).await?;
    let lines: Vec<(&QueueName, JobState, QueueKey)> = queues
        .iter()
        .flat_map(|queue| WAITING.map(|(state, part)| (queue, state, part)))
        .collect();
    let (firsts, unanswered) = first_of_each(base, &lines).await?;
    let is_due = |first: &Option<Time>| first.is_some_and(|at| at <= now);
    if max == 0 || !firsts.iter().any(is_due) {
        return Ok(PromoteResult {
            moved: 0,
            next_due: firsts.into_iter().flatten().min(),
            unanswered,
        });
    }
    let due: Vec<_> = lines
        .iter()
        .zip(&firsts)
        .filter(|(_, first)| is_due(first))
        .map(|(line, _)| *line)
        .collect();
    let moved = promote_from(base, &due, max.min(PROMOTE_MAX), now).await?;
    if moved > 0 {
        base.notifier.notify();
    }
    let there: Vec<WaitingIndex<'_>> = lines
        .into_iter()
        .filter(|(queue, ..)| !unanswered.contains(queue))
        .collect();
    let (firsts, _) = first_of_each(base, &there).await?;
    Ok(PromoteResult {
        moved,
        next_due: firsts.into_iter().flatten().min(),
        unanswered,
    })
}

type WaitingIndex<'a> = (&'a QueueName, JobState, QueueKey);

/// When the first job of each index is due, and which queues did not answer.
async fn first_of_each(
    base: &StoreContext,
    lines: &[WaitingIndex<'_>],
) -> StoreResult<(Vec<Option<Time>>, Vec<QueueName>)> {
    let first = |(queue, _, part): &WaitingIndex<'_>| {
        let mut command = redis::cmd("ZRANGE");
        command.arg(base.keys.part(queue, *part)).arg(0).arg(0);
        command
    };
    let answers = base
        .ask_apart(DOING, lines.iter().map(first).collect())
        .await?;
    let silent = lines
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| answer.is_none());
    let mut unanswered: Vec<QueueName> = silent.map(|((queue, ..), _)| (*queue).clone()).collect();
    unanswered.dedup();
    let firsts = answers
        .into_iter()
        .map(|answer| answer.map_or(Ok(None), first_time));
    Ok((firsts.collect::<StoreResult<_>>()?, unanswered))
}

fn first_time(answer: Value) -> StoreResult<Option<Time>> {
    let members = readable(DOING, reply::all_bytes(answer))?;
    let Some(member) = members.first() else {
        return Ok(None);
    };
    let micros = member.get(..8).and_then(from_sortable);
    readable(DOING, micros).map(|micros| Some(Time::from_micros(micros)))
}

async fn promote_from(
    base: &StoreContext,
    lines: &[WaitingIndex<'_>],
    max: usize,
    now: Time,
) -> StoreResult<usize> {
    let due = base
        .ask_apart(
            DOING,
            lines
                .iter()
                .map(|line| due_in(base, line, max, now))
                .collect(),
        )
        .await?;
    let mut all: Vec<(Vec<u8>, usize)> = Vec::new();
    for (line, members) in due.into_iter().enumerate() {
        let Some(members) = members else { continue };
        all.extend(
            readable(DOING, reply::all_bytes(members))?
                .into_iter()
                .map(|member| (member, line)),
        );
    }
    // Members begin with time and arrival, so they sort in the order of promotion.
    all.sort_unstable();
    all.truncate(max);
    let mut calls = BTreeMap::new();
    for (member, line) in &all {
        let (queue, state, _) = lines[*line];
        let call = calls
            .entry(queue)
            .or_insert_with(|| base.script(&PROMOTE, queue));
        call.push(&[state_code(state)]);
        call.push(member);
    }
    let moved = base.run_apart(DOING, calls.into_values().collect()).await?;
    moved
        .into_iter()
        .flatten()
        .map(|moved| readable(DOING, reply::count(moved)))
        .sum()
}

/// The members of an index that are due, at most `max`.
fn due_in(base: &StoreContext, (queue, _, part): &WaitingIndex<'_>, max: usize, now: Time) -> Cmd {
    let mut not_yet = b"(".to_vec();
    not_yet.extend(sortable(now.as_micros().saturating_add(1)));
    let mut command = redis::cmd("ZRANGEBYLEX");
    command
        .arg(base.keys.part(queue, *part))
        .arg("-")
        .arg(not_yet)
        .arg("LIMIT")
        .arg(0)
        .arg(max);
    command
}
