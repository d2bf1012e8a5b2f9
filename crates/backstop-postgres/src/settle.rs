//! The end of runs.

use crate::link::{Commit, Link};
use crate::row;
use backstop_core::port::{Answer, Settled, StoreError};
use backstop_core::verdict::{Keep, Place, Reason, Settlement};
use backstop_core::{Outcome, Time};
use std::collections::HashSet;
use tokio_postgres::types::Type;
use uuid::Uuid;

const DOING: &str = "settling";

/// Ends runs whose leases are current.
pub(crate) async fn settle(
    link: &Link,
    settlements: &[Settlement],
    commit: Commit,
    now: Time,
) -> Answer<Vec<Settled>> {
    let mut jobs = HashSet::new();
    // A job named twice is settled in the order in which it was, one by one: only one of its leases can be current.
    let singly = !settlements.iter().all(|settlement| jobs.insert(settlement.lease.job));
    let (mut done, mut others) = (Done::default(), Others::default());
    for (at, settlement) in settlements.iter().enumerate() {
        if !singly && matches!(settlement.outcome, Outcome::Done(Keep::Listed)) {
            done.push(at, settlement);
        } else {
            others.push(at, settlement, now);
        }
    }
    let rows = link.call(DOING, commit, "settle", &params(&done, &others, &now.as_micros())).await?;
    let mut answers = vec![Settled::Applied; settlements.len()];
    for row in &rows {
        let stale: i32 = row::get(row, 0)?;
        let of = if stale > 0 { &done.at } else { &others.at };
        let at = usize::try_from(stale.unsigned_abs()).ok().and_then(|number| of.get(number - 1));
        *at.and_then(|at| answers.get_mut(*at))
            .ok_or_else(|| StoreError::corrupt(DOING, format!("an answer for run {stale}")))? = Settled::Stale;
    }
    Ok(answers)
}

/// Runs that succeeded and stay listed.
#[derive(Default)]
struct Done<'a> {
    at: Vec<usize>,
    ids: Vec<Uuid>,
    queues: Vec<&'a str>,
    numbers: Vec<i64>,
    tag: i16,
}

impl<'a> Done<'a> {
    fn push(&mut self, at: usize, settlement: &'a Settlement) {
        self.at.push(at);
        self.ids.push(row::uuid(settlement.lease.job));
        self.queues.push(settlement.lease.queue.as_str());
        self.numbers.push(settlement.lease.number.as_i64());
        self.tag = settlement.outcome.tag().into();
    }
}

/// Runs that ended in any other way.
#[derive(Default)]
struct Others<'a> {
    at: Vec<usize>,
    ids: Vec<Uuid>,
    queues: Vec<&'a str>,
    numbers: Vec<i64>,
    tags: Vec<i16>,
    states: Vec<i16>,
    attempts: Vec<i32>,
    lost: Vec<i32>,
    former: Vec<bool>,
    run_ats: Vec<Option<i64>>,
    reasons: Vec<Option<&'static str>>,
    rewrite: Vec<bool>,
    histories: Vec<Option<&'a [u8]>>,
    gone: Vec<bool>,
}

impl<'a> Others<'a> {
    fn push(&mut self, at: usize, settlement: &'a Settlement, now: Time) {
        let transition = settlement.outcome.transition(now);
        self.at.push(at);
        self.ids.push(row::uuid(settlement.lease.job));
        self.queues.push(settlement.lease.queue.as_str());
        self.numbers.push(settlement.lease.number.as_i64());
        self.tags.push(settlement.outcome.tag().into());
        self.states.push(transition.state as i16);
        self.attempts.push(transition.attempts.cast_signed());
        self.lost.push(transition.lost_leases.cast_signed());
        self.former.push(transition.place == Place::Former);
        self.run_ats.push(transition.run_at.map(Time::as_micros));
        self.reasons.push(transition.reason.map(Reason::as_str));
        self.rewrite.push(transition.history.is_some());
        self.histories.push(transition.history.and_then(|history| history.as_bytes()));
        self.gone.push(transition.gone);
    }
}

fn params<'p>(done: &'p Done<'_>, others: &'p Others<'_>, now: &'p i64) -> [crate::link::Param<'p>; 18] {
    [
        (&done.ids, Type::UUID_ARRAY),
        (&done.queues, Type::TEXT_ARRAY),
        (&done.numbers, Type::INT8_ARRAY),
        (&done.tag, Type::INT2),
        (&others.ids, Type::UUID_ARRAY),
        (&others.queues, Type::TEXT_ARRAY),
        (&others.numbers, Type::INT8_ARRAY),
        (&others.tags, Type::INT2_ARRAY),
        (&others.states, Type::INT2_ARRAY),
        (&others.attempts, Type::INT4_ARRAY),
        (&others.lost, Type::INT4_ARRAY),
        (&others.former, Type::BOOL_ARRAY),
        (&others.run_ats, Type::INT8_ARRAY),
        (&others.reasons, Type::TEXT_ARRAY),
        (&others.rewrite, Type::BOOL_ARRAY),
        (&others.histories, Type::BYTEA_ARRAY),
        (&others.gone, Type::BOOL_ARRAY),
        (now, Type::INT8),
    ]
}

/// Whether a settlement leaves something to claim or to promote.
pub(crate) fn stirs(settlements: &[Settlement], now: Time) -> bool {
    settlements.iter().any(|settlement| {
        !matches!(settlement.outcome, Outcome::Done(_)) && !settlement.outcome.transition(now).state.is_final()
    })
}
