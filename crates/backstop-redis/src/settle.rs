//! The end of runs.

use crate::base::{Base, readable};
use crate::record::{fingerprint_bytes, lease_bytes, reason_letter, sortable, state_letter};
use crate::reply;
use crate::script::SETTLE;
use backstop_core::bounds::DEAD_MAX_USUAL;
use backstop_core::port::{Answer, Settled};
use backstop_core::verdict::{Place, Settlement};
use backstop_core::{Outcome, QueueName, Time};
use futures_util::future::try_join_all;
use redis::Value;
use std::collections::{BTreeMap, HashSet};

const DOING: &str = "settling";
/// Runs of one script: while it runs, the server does nothing else.
const RUNS_AT_ONCE: usize = 1_000;
const AS_IT_IS: u8 = b'0';
const THIS: u8 = b'1';
const NONE: u8 = b'2';

type Numbered<'a> = (usize, &'a Settlement);

/// Ends runs: queues side by side, the runs of a queue in order.
pub(crate) async fn settle(base: &Base, settlements: &[Settlement], now: Time) -> Answer<Vec<Settled>> {
    let mut queues: BTreeMap<&QueueName, Vec<Numbered<'_>>> = BTreeMap::new();
    for (at, settlement) in settlements.iter().enumerate() {
        queues.entry(&settlement.lease.queue).or_default().push((at, settlement));
    }
    let parts = queues.iter().map(|(queue, runs)| settle_in(base, queue, runs, now));
    let parts = try_join_all(parts).await?;
    let mut answers = vec![Settled::Stale; settlements.len()];
    for (at, answer) in queues.into_values().flatten().map(|(at, _)| at).zip(parts.into_iter().flatten()) {
        answers[at] = answer;
    }
    if settlements.iter().any(|settlement| !settlement.outcome.transition(now).state.is_final()) {
        base.bell.ring();
    }
    Ok(answers)
}

async fn settle_in(base: &Base, queue: &QueueName, runs: &[Numbered<'_>], now: Time) -> Answer<Vec<Settled>> {
    let mut answers = Vec::with_capacity(runs.len());
    for slice in runs.chunks(RUNS_AT_ONCE) {
        let mut call = base.script(&SETTLE, queue).arg(now.as_micros());
        call.push(&sortable(now.as_micros()));
        call = call.arg(DEAD_MAX_USUAL);
        for (change, leases) in alike(slice, now) {
            call.push(&change);
            call.push(&leases);
        }
        let answer = base.link.run(DOING, &call).await?;
        answers.extend(readable(DOING, read(answer).filter(|answers| answers.len() == slice.len()))?);
    }
    Ok(answers)
}

/// Changes, and the leases of the runs that share them, in order; no job is twice under one of them. Most of a batch share one: told
/// once, and all of them done, they take the server 4 us each instead of 5.6.
fn alike(runs: &[Numbered<'_>], now: Time) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut alike: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut jobs = HashSet::with_capacity(runs.len());
    for (_, settlement) in runs {
        let (change, lease) = (change(&settlement.outcome, now), lease_bytes(&settlement.lease));
        let is_new = jobs.insert(settlement.lease.job);
        match alike.last_mut() {
            Some((last, leases)) if *last == change && is_new => leases.extend(lease),
            _ => alike.push((change, lease.to_vec())),
        }
    }
    alike
}

/// What an outcome changes, as the script has it.
fn change(outcome: &Outcome, now: Time) -> Vec<u8> {
    let transition = outcome.transition(now);
    let history = transition.history.map(|history| history.as_bytes());
    let mut bytes = vec![
        b'0' + outcome.tag(),
        state_letter(transition.state),
        if transition.place == Place::Former { b'F' } else { b'T' },
        b'0' + transition.attempts as u8,
        b'0' + transition.lost_leases as u8,
        reason_letter(transition.reason),
        b'0' + u8::from(transition.gone),
        history.map_or(AS_IT_IS, |history| if history.is_some() { THIS } else { NONE }),
        b'0' + u8::from(transition.anew),
    ];
    bytes.extend(transition.run_at.map_or([0; 8], |at| sortable(at.as_micros())));
    bytes.extend(transition.fingerprint.map_or([0; 8], fingerprint_bytes));
    bytes.extend(history.flatten().unwrap_or_default());
    bytes
}

fn read(answer: Value) -> Option<Vec<Settled>> {
    let settled = |letter| match letter {
        b'A' => Some(Settled::Applied),
        b'S' => Some(Settled::Stale),
        b'F' => Some(Settled::Full),
        _ => None,
    };
    reply::bytes(answer)?.into_iter().map(settled).collect()
}
