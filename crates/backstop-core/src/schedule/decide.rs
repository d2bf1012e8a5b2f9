//! What is to be done about the instants that nobody has entered yet.
//!
//! | an expected instant without an entry, at `now` | becomes |
//! |---|---|
//! | in a pause | skipped (paused) |
//! | not older than the grace | due |
//! | *missing*: older than the grace, not older than `look_back` | as the policy says |
//! | older than `look_back`, and it was not dealt with before | missed (older than `look_back`) |
//!
//! | policy | missing instants |
//! |---|---|
//! | skip | all of them skipped |
//! | one | the newest is due, the others are coalesced into it |
//! | all | the newest `max` are due, the oldest of them first; the others are missed (over max) |
//!
//! Runs within the grace are not missing: a process that slept for ten minutes fires them all,
//! late.

use super::ledger::{InstantOutcome, LedgerEntry, SkipReason};
use super::{MissedPolicy, Schedule, ScheduleState};
use crate::time::Time;
use std::collections::BTreeSet;

/// What is known of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleSnapshot<'a> {
    /// Since when it counts, and when it was paused.
    pub state: &'a ScheduleState,
    /// Only instants behind this are looked at.
    pub from: Time,
    /// Instants behind `from` that have an entry which counts.
    pub known: &'a BTreeSet<Time>,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleDecision {
    /// What to enter, by instant.
    pub enter: Vec<LedgerEntry>,
    /// How many instants were missing.
    pub missing: usize,
    /// When to look again; `None` if nothing will ever be due.
    pub wake: Option<Time>,
}

/// What is to be done now.
pub fn decide(schedule: &Schedule, seen: ScheduleSnapshot<'_>, now: Time) -> ScheduleDecision {
    let settled = seen.state.settled(schedule).unwrap_or(now);
    let (mut enter, mut missing) = (Vec::new(), Vec::new());
    for (instant, open) in open_instants(schedule, seen, now) {
        let what = match open {
            InstantStatus::Paused => InstantOutcome::Skipped(SkipReason::Paused),
            InstantStatus::InTime => InstantOutcome::Due,
            InstantStatus::TooOld if instant > settled => {
                InstantOutcome::Missed(SkipReason::TooOld)
            }
            InstantStatus::TooOld => continue,
            InstantStatus::Missing => {
                missing.push(instant);
                continue;
            }
        };
        enter.push(LedgerEntry {
            instant,
            outcome: what,
            at: now,
        });
    }
    let count = missing.len();
    enter.extend(catch_up(schedule, &missing, now));
    enter.sort_by_key(|entry| entry.instant);
    ScheduleDecision {
        enter,
        missing: count,
        wake: next_wake(schedule, seen.state, now),
    }
}

/// The instants that are missing now, whatever is to become of them.
pub fn missing(schedule: &Schedule, seen: ScheduleSnapshot<'_>, now: Time) -> Vec<Time> {
    let missing =
        open_instants(schedule, seen, now).filter(|(_, open)| *open == InstantStatus::Missing);
    missing.map(|(instant, _)| instant).collect()
}

/// What the next look enters for the instants that are missing now, by instant.
pub fn expected_entries(
    schedule: &Schedule,
    seen: ScheduleSnapshot<'_>,
    now: Time,
) -> Vec<LedgerEntry> {
    catch_up(schedule, &missing(schedule, seen, now), now)
}

/// How an instant without an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InstantStatus {
    Paused,
    InTime,
    Missing,
    TooOld,
}

/// The expected instants without an entry, in order.
fn open_instants<'a>(
    schedule: &'a Schedule,
    seen: ScheduleSnapshot<'a>,
    now: Time,
) -> impl Iterator<Item = (Time, InstantStatus)> + 'a {
    let missed = schedule.missed;
    let expected = seen.state.expected(schedule, seen.from, now);
    expected
        .filter(|instant| !seen.known.contains(instant))
        .map(move |instant| {
            let open = if seen.state.is_paused_at(instant) {
                InstantStatus::Paused
            } else if instant <= now.before(missed.look_back) {
                InstantStatus::TooOld
            } else if now.since(instant) > missed.grace {
                InstantStatus::Missing
            } else {
                InstantStatus::InTime
            };
            (instant, open)
        })
}

/// What becomes of missing instants.
fn catch_up(schedule: &Schedule, missing: &[Time], now: Time) -> Vec<LedgerEntry> {
    let Some(newest) = missing.last().copied() else {
        return Vec::new();
    };
    let over = missing.len().saturating_sub(schedule.missed.max as usize);
    let what = |(at, instant): (usize, &Time)| {
        let what = match schedule.missed.policy {
            MissedPolicy::Skip => InstantOutcome::Skipped(SkipReason::Policy),
            MissedPolicy::One if *instant == newest => InstantOutcome::Due,
            MissedPolicy::One => InstantOutcome::Coalesced(newest),
            MissedPolicy::All if at < over => InstantOutcome::Missed(SkipReason::OverMax),
            MissedPolicy::All => InstantOutcome::Due,
        };
        LedgerEntry {
            instant: *instant,
            outcome: what,
            at: now,
        }
    };
    missing.iter().enumerate().map(what).collect()
}

/// The next instant that is expected.
fn next_wake(schedule: &Schedule, state: &ScheduleState, now: Time) -> Option<Time> {
    let since = state.since(schedule);
    schedule.next(now.max(Time::from_micros(since.as_micros().saturating_sub(1))))
}
