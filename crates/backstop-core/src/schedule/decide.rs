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

use super::ledger::{Entry, What, Why};
use super::{Policy, Schedule, Standing};
use crate::time::Time;
use std::collections::BTreeSet;

/// What is known of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Since when it counts, and when it was paused.
    pub standing: &'a Standing,
    /// Only instants behind this are looked at.
    pub from: Time,
    /// Instants behind `from` that have an entry which counts.
    pub known: &'a BTreeSet<Time>,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What to enter, by instant.
    pub enter: Vec<Entry>,
    /// How many instants were missing.
    pub missing: usize,
    /// When to look again; `None` if nothing will ever be due.
    pub wake: Option<Time>,
}

/// What is to be done now.
pub fn decide(schedule: &Schedule, seen: Seen<'_>, now: Time) -> Decision {
    let settled = seen.standing.settled(schedule).unwrap_or(now);
    let (mut enter, mut missing) = (Vec::new(), Vec::new());
    for (instant, open) in open(schedule, seen, now) {
        let what = match open {
            Open::Paused => What::Skipped(Why::Paused),
            Open::InTime => What::Due,
            Open::TooOld if instant > settled => What::Missed(Why::TooOld),
            Open::TooOld => continue,
            Open::Missing => {
                missing.push(instant);
                continue;
            }
        };
        enter.push(Entry {
            instant,
            what,
            at: now,
        });
    }
    let count = missing.len();
    enter.extend(made_up(schedule, &missing, now));
    enter.sort_by_key(|entry| entry.instant);
    Decision {
        enter,
        missing: count,
        wake: wake(schedule, seen.standing, now),
    }
}

/// The instants that are missing now, whatever is to become of them.
pub fn missing(schedule: &Schedule, seen: Seen<'_>, now: Time) -> Vec<Time> {
    let missing = open(schedule, seen, now).filter(|(_, open)| *open == Open::Missing);
    missing.map(|(instant, _)| instant).collect()
}

/// What the next look enters for the instants that are missing now, by instant.
pub fn prospects(schedule: &Schedule, seen: Seen<'_>, now: Time) -> Vec<Entry> {
    made_up(schedule, &missing(schedule, seen, now), now)
}

/// How an instant without an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Open {
    Paused,
    InTime,
    Missing,
    TooOld,
}

/// The expected instants without an entry, in order.
fn open<'a>(
    schedule: &'a Schedule,
    seen: Seen<'a>,
    now: Time,
) -> impl Iterator<Item = (Time, Open)> + 'a {
    let missed = schedule.missed;
    let expected = seen.standing.expected(schedule, seen.from, now);
    expected
        .filter(|instant| !seen.known.contains(instant))
        .map(move |instant| {
            let open = if seen.standing.is_paused_at(instant) {
                Open::Paused
            } else if instant <= now.before(missed.look_back) {
                Open::TooOld
            } else if now.since(instant) > missed.grace {
                Open::Missing
            } else {
                Open::InTime
            };
            (instant, open)
        })
}

/// What becomes of missing instants.
fn made_up(schedule: &Schedule, missing: &[Time], now: Time) -> Vec<Entry> {
    let Some(newest) = missing.last().copied() else {
        return Vec::new();
    };
    let over = missing.len().saturating_sub(schedule.missed.max as usize);
    let what = |(at, instant): (usize, &Time)| {
        let what = match schedule.missed.policy {
            Policy::Skip => What::Skipped(Why::Policy),
            Policy::One if *instant == newest => What::Due,
            Policy::One => What::Coalesced(newest),
            Policy::All if at < over => What::Missed(Why::OverMax),
            Policy::All => What::Due,
        };
        Entry {
            instant: *instant,
            what,
            at: now,
        }
    };
    missing.iter().enumerate().map(what).collect()
}

/// The next instant that is expected.
fn wake(schedule: &Schedule, standing: &Standing, now: Time) -> Option<Time> {
    let since = standing.since(schedule);
    schedule.next(now.max(Time::from_micros(since.as_micros().saturating_sub(1))))
}
