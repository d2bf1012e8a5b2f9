//! Applies what workers decided about keys: watermarks, held records and leases.

use super::distinct_names::DistinctNames;
use crate::link::{CommitMode, PostgresLink, TypedParam};
use crate::row;
use backstop_core::lease::longest_lease_end;
use backstop_core::port::{AdvanceOutcome, KeyAdvance, KeyLeaseAction, StoreError, StoreResult};
use backstop_core::stream::StoredRecord;
use backstop_core::{StreamKey, StreamName, Time};
use std::collections::{HashMap, HashSet};
use tokio_postgres::types::Type;

const DOING: &str = "advancing keys";

/// Applies decisions; also returns whether one of them left a key that is due, now or later.
pub(super) async fn advance(
    link: &PostgresLink,
    commit: CommitMode,
    advances: &[KeyAdvance],
    now: Time,
) -> StoreResult<(Vec<AdvanceOutcome>, bool)> {
    let mut answers = vec![AdvanceOutcome::Applied; advances.len()];
    let mut is_due = false;
    for round in rounds(advances) {
        let batch = AdvanceColumns::of(advances, &round, now);
        for row in link
            .call(DOING, commit, "advance", &batch.params(&now.as_micros()))
            .await?
        {
            let (number, is_stale): (i32, bool) = (row::get(&row, 0)?, row::get(&row, 1)?);
            let at = usize::try_from(number - 1)
                .ok()
                .and_then(|at| round.get(at));
            let at = at
                .ok_or_else(|| StoreError::corrupt(DOING, format!("an answer for key {number}")))?;
            if is_stale {
                answers[*at] = AdvanceOutcome::Stale;
            } else {
                is_due = true;
            }
        }
    }
    Ok((answers, is_due))
}

/// Splits the decisions into calls: a call has each key once, sorted by stream and key. A later
/// decision about the same key goes into a later call.
fn rounds(advances: &[KeyAdvance]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut met: HashMap<(&StreamName, &StreamKey), usize> = HashMap::new();
    for (at, advance) in advances.iter().enumerate() {
        let times = met
            .entry((&advance.lease.stream, &advance.lease.key))
            .or_default();
        if *times == rounds.len() {
            rounds.push(Vec::new());
        }
        rounds[*times].push(at);
        *times += 1;
    }
    for round in &mut rounds {
        round.sort_unstable_by_key(|at| (&advances[*at].lease.stream, &advances[*at].lease.key));
    }
    rounds
}

/// Decisions as the columns that the function `advance` takes.
#[derive(Default)]
struct AdvanceColumns<'a> {
    streams: DistinctNames<'a>,
    keys: Vec<&'a str>,
    numbers: Vec<i64>,
    turns: Vec<i64>,
    seen: Vec<i64>,
    watermarks: Vec<Option<i64>>,
    key_states: Vec<&'a [u8]>,
    thens: Vec<i16>,
    times: Vec<Option<i64>>,
    longest: Vec<Option<i64>>,
    counts: CountColumns,
    drop_of: Vec<i32>,
    drop_positions: Vec<i64>,
    held: HeldRecordColumns<'a>,
}

/// The counters that change, with the number of their decision.
#[derive(Default)]
struct CountColumns {
    decisions: Vec<i32>,
    counters: Vec<i16>,
    numbers: Vec<i64>,
}

/// The held records, with the number of their decision.
#[derive(Default)]
struct HeldRecordColumns<'a> {
    decisions: Vec<i32>,
    positions: Vec<i64>,
    steps: Vec<i64>,
    tenants: Vec<Option<&'a str>>,
    ats: Vec<i64>,
    payloads: Vec<&'a [u8]>,
}

impl<'a> AdvanceColumns<'a> {
    fn of(advances: &'a [KeyAdvance], round: &[usize], now: Time) -> Self {
        let names = round.iter().map(|at| advances[*at].lease.stream.as_str());
        let mut batch = Self {
            streams: DistinctNames::of(names),
            ..Self::default()
        };
        for at in round {
            batch.push(&advances[*at], now);
        }
        // An empty column means NULL for every decision: most keys are released, and wait for
        // nothing.
        for column in [&mut batch.times, &mut batch.longest] {
            if column.iter().all(Option::is_none) {
                column.clear();
            }
        }
        batch
    }

    fn push(&mut self, advance: &'a KeyAdvance, now: Time) {
        let change = &advance.change;
        self.keys.push(advance.lease.key.as_str());
        self.numbers.push(advance.lease.number.as_i64());
        self.turns.push(advance.turn.into());
        self.seen.push(signed(advance.seen));
        self.watermarks.push(change.watermark);
        self.key_states.push(&change.state);
        let (then, time, longest) = match advance.lease_action {
            KeyLeaseAction::Keep(until) => (0, Some(until), Some(longest_lease_end(until, now))),
            KeyLeaseAction::Release(wake) => (1, wake, None),
            KeyLeaseAction::Clear => (2, None, None),
        };
        self.thens.push(then);
        self.times.push(time.map(Time::as_micros));
        self.longest.push(longest.map(Time::as_micros));
        let number = row::number(self.keys.len());
        self.counts.push(number, change.counts.numbers());
        // A cleared key loses all its records anyway.
        if advance.lease_action != KeyLeaseAction::Clear {
            self.drop_of.extend(change.drop.iter().map(|_| number));
            self.drop_positions.extend(&change.drop);
            self.held.push(number, &change.hold);
        }
    }

    fn params<'p>(&'p self, now: &'p i64) -> [TypedParam<'p>; 23] {
        [
            (&self.streams.names, Type::TEXT_ARRAY),
            (&self.streams.at, Type::INT4_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.numbers, Type::INT8_ARRAY),
            (&self.turns, Type::INT8_ARRAY),
            (&self.seen, Type::INT8_ARRAY),
            (&self.watermarks, Type::INT8_ARRAY),
            (&self.key_states, Type::BYTEA_ARRAY),
            (&self.thens, Type::INT2_ARRAY),
            (&self.times, Type::INT8_ARRAY),
            (&self.longest, Type::INT8_ARRAY),
            (&self.counts.decisions, Type::INT4_ARRAY),
            (&self.counts.counters, Type::INT2_ARRAY),
            (&self.counts.numbers, Type::INT8_ARRAY),
            (&self.drop_of, Type::INT4_ARRAY),
            (&self.drop_positions, Type::INT8_ARRAY),
            (&self.held.decisions, Type::INT4_ARRAY),
            (&self.held.positions, Type::INT8_ARRAY),
            (&self.held.steps, Type::INT8_ARRAY),
            (&self.held.tenants, Type::TEXT_ARRAY),
            (&self.held.ats, Type::INT8_ARRAY),
            (&self.held.payloads, Type::BYTEA_ARRAY),
            (now, Type::INT8),
        ]
    }
}

impl CountColumns {
    fn push(&mut self, decision: i32, numbers: &[u64]) {
        for (what, number) in (0..).zip(numbers).filter(|(_, number)| **number > 0) {
            self.decisions.push(decision);
            self.counters.push(what);
            self.numbers.push(signed(*number));
        }
    }
}

impl<'a> HeldRecordColumns<'a> {
    fn push(&mut self, decision: i32, records: &'a [StoredRecord]) {
        let mut positions = HashSet::new();
        for record in records
            .iter()
            .filter(|record| positions.insert(record.position))
        {
            self.decisions.push(decision);
            self.positions.push(record.position);
            self.steps.push(record.step);
            self.tenants.push(record.tenant.as_deref());
            self.ats.push(record.at.as_micros());
            self.payloads.push(record.payload.as_bytes());
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
