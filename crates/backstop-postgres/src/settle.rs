//! Settles runs: done, retry, dead, cancelled or released.

use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::port::{SettleOutcome, StoreError, StoreResult};
use backstop_core::verdict::{DoneRetention, EndReason, Requeue, Settlement};
use backstop_core::{Fingerprint, Outcome, Time};
use std::collections::HashSet;
use std::time::Duration;
use tokio_postgres::types::Type;
use uuid::Uuid;

const DOING: &str = "settling";
/// How long a committed settlement waits for the removal of its emptied leases.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// Settles the runs whose leases are current.
pub(crate) async fn settle(
    link: &PostgresLink,
    settlements: &[Settlement],
    commit: CommitMode,
    now: Time,
) -> StoreResult<Vec<SettleOutcome>> {
    let mut answers = vec![SettleOutcome::Applied; settlements.len()];
    let mut waiting: Vec<usize> = (0..settlements.len()).collect();
    // A job that is named twice is settled in two calls: only one of its leases can be the current
    // one, or none any more. The settlements behind it wait, too, because dead jobs must take what
    // room there is in their order.
    while !waiting.is_empty() {
        let mut jobs = HashSet::new();
        let first = waiting
            .iter()
            .take_while(|at| jobs.insert(settlements[**at].lease.job))
            .count();
        let later = waiting.split_off(first);
        settle_once(link, settlements, &waiting, commit, now, &mut answers).await?;
        waiting = later;
    }
    Ok(answers)
}

async fn settle_once(
    link: &PostgresLink,
    settlements: &[Settlement],
    round: &[usize],
    commit: CommitMode,
    now: Time,
    answers: &mut [SettleOutcome],
) -> StoreResult<()> {
    let keeps = |at: &usize| match settlements[*at].outcome {
        Outcome::Done(keep) => Some(keep),
        _ => None,
    };
    let keep = round
        .iter()
        .find_map(keeps)
        .unwrap_or(DoneRetention::Listed);
    let mut done = DoneColumns {
        keep: keep == DoneRetention::Listed,
        ..DoneColumns::default()
    };
    let mut others = OutcomeColumns::default();
    let (ended_well, otherwise): (Vec<usize>, Vec<usize>) = round
        .iter()
        .partition(|at| settlements[**at].outcome == Outcome::Done(keep));
    for at in by_claim(settlements, ended_well) {
        done.push(at, &settlements[at]);
    }
    for at in otherwise {
        others.push(at, &settlements[at], now);
    }
    let mut emptied = Vec::new();
    for row in link
        .call(
            DOING,
            commit,
            "settle",
            &params(&done, &others, &now.as_micros()),
        )
        .await?
    {
        if let Some(lease) = row::get::<Option<i64>>(&row, 2)? {
            emptied.push(lease);
            continue;
        }
        let (run, is_full): (i32, bool) = (row::get(&row, 0)?, row::get(&row, 1)?);
        let of = if run > 0 { &done.at } else { &others.at };
        let at = usize::try_from(run.unsigned_abs())
            .ok()
            .and_then(|number| of.get(number.checked_sub(1)?));
        *at.and_then(|at| answers.get_mut(*at))
            .ok_or_else(|| StoreError::corrupt(DOING, format!("an answer for run {run}")))? =
            if is_full {
                SettleOutcome::Full
            } else {
                SettleOutcome::Stale
            };
    }
    close_emptied(link, &emptied).await;
    Ok(())
}

/// Removes leases that other settlements were emptying at the same time, after this one is
/// committed.
async fn close_emptied(link: &PostgresLink, leases: &[i64]) {
    if leases.is_empty() {
        return;
    }
    let params = [(&leases as _, Type::INT8_ARRAY)];
    let closed = link.call(DOING, CommitMode::Quick, "close_emptied", &params);
    match tokio::time::timeout(CLOSE_TIME_MAX, closed).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "emptied leases stay until they expire"),
        Err(_) => tracing::debug!("emptied leases stay until they expire: no answer in time"),
    }
}

/// Sorts settlements by claim, so that those of one claim are neighbours.
fn by_claim(settlements: &[Settlement], mut ended: Vec<usize>) -> Vec<usize> {
    ended.sort_by_key(|at| {
        (
            settlements[*at].lease.number,
            settlements[*at].lease.queue.as_str(),
        )
    });
    ended
}

/// Runs that succeeded and that share one retention, claim by claim, as columns.
#[derive(Default)]
struct DoneColumns<'a> {
    at: Vec<usize>,
    ids: Vec<Uuid>,
    /// For each claim, the number of ids up to its last one.
    ends: Vec<i32>,
    queues: Vec<&'a str>,
    numbers: Vec<i64>,
    tag: i16,
    keep: bool,
}

impl<'a> DoneColumns<'a> {
    fn push(&mut self, at: usize, settlement: &'a Settlement) {
        self.at.push(at);
        self.ids.push(row::uuid(settlement.lease.job));
        self.tag = settlement.outcome.tag().into();
        let (queue, number) = (
            settlement.lease.queue.as_str(),
            settlement.lease.number.as_i64(),
        );
        if self.queues.last() != Some(&queue) || self.numbers.last() != Some(&number) {
            self.queues.push(queue);
            self.numbers.push(number);
            self.ends.push(0);
        }
        let end = self.ends.last_mut().expect("pushed with the claim");
        *end = row::number(self.ids.len());
    }
}

/// Runs that ended in any other way, as columns.
#[derive(Default)]
struct OutcomeColumns<'a> {
    at: Vec<usize>,
    ids: Vec<Uuid>,
    queues: Vec<&'a str>,
    numbers: Vec<i64>,
    tags: Vec<i16>,
    states: Vec<i16>,
    attempts: Vec<i32>,
    anew: Vec<bool>,
    lost: Vec<i32>,
    former: Vec<bool>,
    run_ats: Vec<Option<i64>>,
    reasons: Vec<Option<&'static str>>,
    fingerprints: Vec<Option<i64>>,
    rewrite: Vec<bool>,
    histories: Vec<Option<&'a [u8]>>,
    gone: Vec<bool>,
}

impl<'a> OutcomeColumns<'a> {
    fn push(&mut self, at: usize, settlement: &'a Settlement, now: Time) {
        let transition = settlement.outcome.transition(now);
        self.at.push(at);
        self.ids.push(row::uuid(settlement.lease.job));
        self.queues.push(settlement.lease.queue.as_str());
        self.numbers.push(settlement.lease.number.as_i64());
        self.tags.push(settlement.outcome.tag().into());
        self.states.push(transition.state as i16);
        self.attempts.push(transition.attempts.cast_signed());
        self.anew.push(transition.anew);
        self.lost.push(transition.lost_leases.cast_signed());
        self.former.push(transition.requeue == Requeue::OldPlace);
        self.run_ats.push(transition.run_at.map(Time::as_micros));
        self.reasons.push(transition.reason.map(EndReason::as_str));
        self.fingerprints
            .push(transition.fingerprint.map(Fingerprint::as_i64));
        self.rewrite.push(transition.history.is_some());
        self.histories
            .push(transition.history.and_then(|history| history.as_bytes()));
        self.gone.push(transition.gone);
    }
}

fn params<'p>(
    done: &'p DoneColumns<'_>,
    others: &'p OutcomeColumns<'_>,
    now: &'p i64,
) -> [crate::link::TypedParam<'p>; 22] {
    [
        (&done.ids, Type::UUID_ARRAY),
        (&done.ends, Type::INT4_ARRAY),
        (&done.queues, Type::TEXT_ARRAY),
        (&done.numbers, Type::INT8_ARRAY),
        (&done.tag, Type::INT2),
        (&done.keep, Type::BOOL),
        (&others.ids, Type::UUID_ARRAY),
        (&others.queues, Type::TEXT_ARRAY),
        (&others.numbers, Type::INT8_ARRAY),
        (&others.tags, Type::INT2_ARRAY),
        (&others.states, Type::INT2_ARRAY),
        (&others.attempts, Type::INT4_ARRAY),
        (&others.anew, Type::BOOL_ARRAY),
        (&others.lost, Type::INT4_ARRAY),
        (&others.former, Type::BOOL_ARRAY),
        (&others.run_ats, Type::INT8_ARRAY),
        (&others.reasons, Type::TEXT_ARRAY),
        (&others.fingerprints, Type::INT8_ARRAY),
        (&others.rewrite, Type::BOOL_ARRAY),
        (&others.histories, Type::BYTEA_ARRAY),
        (&others.gone, Type::BOOL_ARRAY),
        (now, Type::INT8),
    ]
}

/// Whether a settlement leaves new work to claim or to promote.
pub(crate) fn creates_work(settlements: &[Settlement], now: Time) -> bool {
    settlements.iter().any(|settlement| {
        !matches!(settlement.outcome, Outcome::Done(_))
            && !settlement.outcome.transition(now).state.is_final()
    })
}
