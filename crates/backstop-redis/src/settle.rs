//! Settles runs.

use crate::context::{StoreContext, patience, readable};
use crate::link::CallPatience;
use crate::record::{fingerprint_bytes, number_bytes, reason_code, sortable, state_code};
use crate::reply;
use crate::script::SETTLE;
use backstop_core::bounds::DEAD_MAX_DEFAULT;
use backstop_core::port::{SettleOutcome, StoreError, StoreResult};
use backstop_core::verdict::{Requeue, Settlement};
use backstop_core::{Outcome, QueueName, Time};
use futures_util::future::join_all;
use redis::Value;
use std::collections::{BTreeMap, HashSet};

const DOING: &str = "settling";
/// The most runs of one script call: while a script runs, the server does nothing else.
const RUNS_AT_ONCE: usize = 1_000;
const AS_IT_IS: u8 = b'0';
const THIS: u8 = b'1';
const NONE: u8 = b'2';

type NumberedSettlement<'a> = (usize, &'a Settlement);

/// Settles runs: queues in parallel, the runs of one queue in order. The answers of the reachable
/// part of a cluster are kept even if another part fails or refuses. If they were dropped, the
/// caller would settle again, and a job of which the store keeps nothing would then be stale.
pub(crate) async fn settle(
    base: &StoreContext,
    settlements: &[Settlement],
    now: Time,
) -> StoreResult<Vec<SettleOutcome>> {
    let mut queues: BTreeMap<&QueueName, Vec<NumberedSettlement<'_>>> = BTreeMap::new();
    for (at, settlement) in settlements.iter().enumerate() {
        queues
            .entry(&settlement.lease.queue)
            .or_default()
            .push((at, settlement));
    }
    let patience = patience(queues.len());
    let parts = queues
        .iter()
        .map(|(queue, runs)| settle_in(base, queue, runs, now, patience));
    let parts = join_all(parts).await;
    let (mut answers, mut failure) = (vec![SettleOutcome::Unanswered; settlements.len()], None);
    for (runs, (replies, failed)) in queues.values().zip(parts) {
        for ((at, _), answer) in runs.iter().zip(replies) {
            answers[*at] = answer;
        }
        if let Some(error) = failed {
            let is_refused = !error.is_transient();
            failure = failure.filter(|_| !is_refused).or(Some(error));
        }
    }
    match failure {
        Some(error)
            if answers
                .iter()
                .all(|answer| *answer == SettleOutcome::Unanswered) =>
        {
            return Err(error);
        }
        Some(error) if !error.is_transient() => {
            tracing::warn!(%error, "ends of runs are refused, beside others that are taken");
        }
        _ => {}
    }
    if settlements
        .iter()
        .any(|settlement| !settlement.outcome.transition(now).state.is_final())
    {
        base.notifier.notify();
    }
    Ok(answers)
}

/// Settles runs of one queue; returns the answers up to the first failure, and that failure.
async fn settle_in(
    base: &StoreContext,
    queue: &QueueName,
    runs: &[NumberedSettlement<'_>],
    now: Time,
    patience: CallPatience,
) -> (Vec<SettleOutcome>, Option<StoreError>) {
    let mut answers = Vec::with_capacity(runs.len());
    for slice in runs.chunks(RUNS_AT_ONCE) {
        match settle_slice(base, queue, slice, now, patience).await {
            Ok(replies) => answers.extend(replies),
            Err(error) => return (answers, Some(error)),
        }
    }
    (answers, None)
}

async fn settle_slice(
    base: &StoreContext,
    queue: &QueueName,
    slice: &[NumberedSettlement<'_>],
    now: Time,
    patience: CallPatience,
) -> StoreResult<Vec<SettleOutcome>> {
    let mut call = base.script(&SETTLE, queue).arg(now.as_micros());
    call.push(&sortable(now.as_micros()));
    call = call.arg(DEAD_MAX_DEFAULT);
    let parts = alike(slice, now);
    for AlikeRuns {
        change,
        number,
        ids,
        ..
    } in &parts
    {
        call.push(change);
        call.push(number);
        call.push(ids);
    }
    let answer = base.link.run_within(DOING, &call, patience).await?;
    let replies = readable(
        DOING,
        read(answer).filter(|replies| replies.len() == slice.len()),
    )?;
    let mut answers = vec![SettleOutcome::Stale; slice.len()];
    for (at, answer) in parts.iter().flat_map(|part| &part.runs).zip(replies) {
        answers[*at] = answer;
    }
    Ok(answers)
}

/// Runs of one claim that end in the same way.
struct AlikeRuns {
    change: Vec<u8>,
    number: [u8; 8],
    ids: Vec<u8>,
    /// The numbers of these runs in the slice.
    runs: Vec<usize>,
}

/// Groups the runs of each claim that end in the same way, so that the script gets each change
/// once; most runs of a batch end alike. If a job appears twice, its settlements must keep their
/// order, so its second one and all later ones start new groups.
fn alike(runs: &[NumberedSettlement<'_>], now: Time) -> Vec<AlikeRuns> {
    let mut parts: Vec<AlikeRuns> = Vec::new();
    let (mut jobs, mut open) = (HashSet::with_capacity(runs.len()), 0);
    for (at, (_, settlement)) in runs.iter().enumerate() {
        let (change, number) = (
            change(&settlement.outcome, now),
            number_bytes(settlement.lease.number),
        );
        if !jobs.insert(settlement.lease.job) {
            jobs.clear();
            jobs.insert(settlement.lease.job);
            open = parts.len();
        }
        // Outcomes other than done depend on the order: the job re-enters an index, or may find no
        // room.
        let from = if matches!(settlement.outcome, Outcome::Done(_)) {
            open
        } else {
            open.max(parts.len().saturating_sub(1))
        };
        let known = parts[from..]
            .iter()
            .rposition(|part| part.number == number && part.change == change);
        let place = known.map_or(parts.len(), |known| from + known);
        if place == parts.len() {
            parts.push(AlikeRuns {
                change,
                number,
                ids: Vec::new(),
                runs: Vec::new(),
            });
        }
        let part = &mut parts[place];
        part.ids.extend(settlement.lease.job.as_bytes());
        part.runs.push(at);
    }
    parts
}

/// Encodes what an outcome changes, for the script.
fn change(outcome: &Outcome, now: Time) -> Vec<u8> {
    let transition = outcome.transition(now);
    let history = transition.history.map(|history| history.as_bytes());
    let mut bytes = vec![
        b'0' + outcome.tag(),
        state_code(transition.state),
        if transition.requeue == Requeue::OldPlace {
            b'F'
        } else {
            b'T'
        },
        b'0' + transition.attempts as u8,
        b'0' + transition.lost_leases as u8,
        reason_code(transition.reason),
        b'0' + u8::from(transition.gone),
        history.map_or(
            AS_IT_IS,
            |history| if history.is_some() { THIS } else { NONE },
        ),
        b'0' + u8::from(transition.anew),
    ];
    bytes.extend(
        transition
            .run_at
            .map_or([0; 8], |at| sortable(at.as_micros())),
    );
    bytes.extend(transition.fingerprint.map_or([0; 8], fingerprint_bytes));
    bytes.extend(history.flatten().unwrap_or_default());
    bytes
}

fn read(answer: Value) -> Option<Vec<SettleOutcome>> {
    let settled = |letter| match letter {
        b'A' => Some(SettleOutcome::Applied),
        b'S' => Some(SettleOutcome::Stale),
        b'F' => Some(SettleOutcome::Full),
        _ => None,
    };
    reply::bytes(answer)?.into_iter().map(settled).collect()
}
