//! Decides what to do about the instants that have no ledger entry yet.
//!
//! | an expected instant without an entry, at `now` | becomes |
//! |---|---|
//! | during a pause | skipped (paused) |
//! | not older than the grace | due |
//! | *missing*: older than the grace, and younger than `look_back` | what the policy says |
//! | as old as `look_back` or older, and not decided before | missed (older than `look_back`) |
//!
//! An instant exactly as old as the grace is still due; one exactly as old as `look_back` is too
//! old.
//!
//! | policy | missing instants |
//! |---|---|
//! | skip | all are skipped |
//! | one | the newest is due, the others are coalesced into it |
//! | all | the newest `max` are due, the oldest of them first; the others are missed (over max) |
//!
//! Runs within the grace are not missing: a process that slept for ten minutes fires all of them,
//! late.

use super::ledger::{InstantOutcome, LedgerEntry, SkipReason};
use super::{MissedPolicy, Schedule, ScheduleState};
use crate::time::Time;
use std::collections::BTreeSet;

/// The facts about a schedule from which [`decide`] decides.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleSnapshot<'a> {
    /// The time from which the schedule expects runs, and its pauses.
    pub state: &'a ScheduleState,
    /// Only instants after this are considered.
    pub from: Time,
    /// The instants after `from` that have a valid ledger entry.
    pub known: &'a BTreeSet<Time>,
}

/// The decision about a schedule at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleDecision {
    /// The entries to add to the ledger, ordered by instant.
    pub enter: Vec<LedgerEntry>,
    /// The number of instants that were missing.
    pub missing: usize,
    /// When to decide again; `None` if nothing will ever be due.
    pub wake: Option<Time>,
}

/// Decides what to do about a schedule now.
pub fn decide(schedule: &Schedule, seen: ScheduleSnapshot<'_>, now: Time) -> ScheduleDecision {
    // Every instant up to this one was decided before, even if its ledger entry is gone. So only
    // later instants are entered as missed because they are too old.
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
            InstantStatus::Overdue => {
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

/// The instants that are missing now, whatever the policy does about them.
pub fn missing(schedule: &Schedule, seen: ScheduleSnapshot<'_>, now: Time) -> Vec<Time> {
    let missing =
        open_instants(schedule, seen, now).filter(|(_, open)| *open == InstantStatus::Overdue);
    missing.map(|(instant, _)| instant).collect()
}

/// The entries that the next decision will add for the instants that are missing now, by instant.
pub fn expected_entries(
    schedule: &Schedule,
    seen: ScheduleSnapshot<'_>,
    now: Time,
) -> Vec<LedgerEntry> {
    catch_up(schedule, &missing(schedule, seen, now), now)
}

/// The status of an instant that has no ledger entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InstantStatus {
    Paused,
    InTime,
    Overdue,
    TooOld,
}

/// The expected instants that have no ledger entry, in order.
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
                InstantStatus::Overdue
            } else {
                InstantStatus::InTime
            };
            (instant, open)
        })
}

/// Applies the policy to missing instants.
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

/// The next instant that the schedule expects.
fn next_wake(schedule: &Schedule, state: &ScheduleState, now: Time) -> Option<Time> {
    let since = state.since(schedule);
    schedule.next(now.max(Time::from_micros(since.as_micros().saturating_sub(1))))
}
