//! The ledger: the outcome of each instant, stored one day to a page.
//!
//! | outcome | has a job? | meaning |
//! |---|---|---|
//! | `due` | on its way | agreed to fire; not in its queue yet |
//! | `fired` | yes | enqueued within [`LATE_FROM`] |
//! | `late` | yes | enqueued later than that, within the grace |
//! | `made_up` | yes | enqueued later than the grace: it had been missing |
//! | `triggered` | yes | an operator asked for it; no instant of the schedule |
//! | `coalesced` | no | missing; the later run that the entry names stands for it |
//! | `missed` | no | given up: over the maximum, older than `look_back`, or its queue stayed full |
//! | `skipped` | no | not wanted: the schedule was paused, or makes up nothing |
//!
//! The first entry of an instant wins. An entry that gives an instant up is void if it was made by
//! a clock that was ahead and has been set right since: when the instant comes, it is decided anew.
//! A *due* entry stays valid, because its job may be in the queue already.
//!
//! A page is a day (UTC). A schedule has at most one instant a minute, so the size of a page is
//! bounded and a page fits into a cell.

use super::job_id;
use crate::job::JobId;
use crate::limits::TRIGGERED_MAX;
use crate::name::ScheduleName;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A run that is enqueued later than this after its instant is late.
pub const LATE_FROM: Span = Span::secs(10);

/// The outcome of one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstantOutcome {
    /// Agreed to fire; not in its queue yet.
    Due,
    /// Its job was enqueued in time.
    Fired,
    /// Its job was enqueued late, but within the grace.
    Late,
    /// Its job was enqueued after the grace.
    MadeUp,
    /// An operator triggered this job.
    Triggered(JobId),
    /// Missing; the run of this other instant stands for it.
    Coalesced(Time),
    Missed(SkipReason),
    Skipped(SkipReason),
}

/// Why an instant has no run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SkipReason {
    Paused,
    Policy,
    /// More instants were missing than the schedule makes up.
    OverMax,
    /// The instant was missing for longer than the schedule looks back.
    TooOld,
    /// The queue stayed full for longer than the schedule looks back.
    QueueFull,
}

impl SkipReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Policy => "policy skip",
            Self::OverMax => "over max",
            Self::TooOld => "older than look_back",
            Self::QueueFull => "queue full",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl InstantOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Fired => "fired",
            Self::Late => "late",
            Self::MadeUp => "made_up",
            Self::Triggered(_) => "triggered",
            Self::Coalesced(_) => "coalesced",
            Self::Missed(_) => "missed",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Whether the instant has a job.
    pub const fn has_job(self) -> bool {
        matches!(
            self,
            Self::Fired | Self::Late | Self::MadeUp | Self::Triggered(_)
        )
    }

    /// Whether the instant should have run and will not be made up. An instant during a pause
    /// should not have run.
    pub const fn is_given_up(self) -> bool {
        matches!(
            self,
            Self::Missed(_)
                | Self::Skipped(
                    SkipReason::Policy
                        | SkipReason::OverMax
                        | SkipReason::TooOld
                        | SkipReason::QueueFull
                )
        )
    }

    /// The reason why there is no run, for outcomes that need one.
    pub const fn reason(self) -> Option<SkipReason> {
        match self {
            Self::Missed(why) | Self::Skipped(why) => Some(why),
            _ => None,
        }
    }

    /// The outcome of a run whose job was enqueued this long after its instant.
    pub fn after(lateness: Span, grace: Span) -> Self {
        if lateness > grace {
            Self::MadeUp
        } else if lateness > LATE_FROM {
            Self::Late
        } else {
            Self::Fired
        }
    }
}

impl fmt::Display for InstantOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The outcome of one instant, and when it was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedgerEntry {
    /// The instant; for a triggered run, when the operator asked for it.
    pub instant: Time,
    pub outcome: InstantOutcome,
    pub at: Time,
}

impl LedgerEntry {
    /// The time from the instant to the entry.
    pub fn lateness(&self) -> Span {
        self.at.since(self.instant)
    }

    /// Whether the entry is void at `now`: a clock that was ahead gave the instant up.
    pub fn is_void(&self, now: Time) -> bool {
        self.at.is_ahead_of(now) && !self.outcome.has_job() && self.outcome != InstantOutcome::Due
    }

    /// Whether to fire the instant at `now`. A clock that was ahead may have entered a future
    /// instant as due.
    pub fn is_due(&self, now: Time) -> bool {
        self.outcome == InstantOutcome::Due && self.instant <= now
    }

    /// The id of the job in this schedule, if the instant has one.
    pub fn job(&self, schedule: &ScheduleName) -> Option<JobId> {
        match self.outcome {
            InstantOutcome::Triggered(id) => Some(id),
            what => what.has_job().then(|| job_id(schedule, self.instant)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct UtcDay(i64);

const DAY: Span = Span::days(1);

impl UtcDay {
    /// The day of an instant.
    pub const fn of(instant: Time) -> Self {
        Self(instant.as_micros().div_euclid(DAY.as_micros()))
    }

    /// The days from `from` to `until`, both included.
    pub fn through(from: Self, until: Self) -> impl Iterator<Item = Self> {
        (from.0..=until.0).map(Self)
    }

    pub const fn start(self) -> Time {
        Time::from_micros(self.0.saturating_mul(DAY.as_micros()))
    }
}

impl fmt::Display for UtcDay {
    /// Such as 2026-11-16: in this form, days sort as texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start().to_string();
        f.write_str(start.split('T').next().unwrap_or(&start))
    }
}

/// The outcomes of the instants of a day.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "StoredLedgerPage", try_from = "StoredLedgerPage")]
pub struct LedgerPage {
    day: UtcDay,
    entries: BTreeMap<Time, LedgerEntry>,
    by_hand: Vec<LedgerEntry>,
}

impl LedgerPage {
    /// A page of a day without entries.
    pub const fn empty(day: UtcDay) -> Self {
        Self {
            day,
            entries: BTreeMap::new(),
            by_hand: Vec::new(),
        }
    }

    pub const fn day(&self) -> UtcDay {
        self.day
    }

    /// The entries of the schedule's instants, in order.
    pub fn entries(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries.values()
    }

    /// All entries, including triggered runs, the newest instant first.
    pub fn newest_first(&self) -> Vec<LedgerEntry> {
        let mut all: Vec<LedgerEntry> = self
            .entries
            .values()
            .chain(&self.by_hand)
            .copied()
            .collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.instant));
        all
    }

    /// Enters the decision about an instant at `now`, unless a valid entry exists. Returns whether
    /// it was entered.
    pub fn enter(&mut self, entry: LedgerEntry, now: Time) -> bool {
        if self
            .entries
            .get(&entry.instant)
            .is_some_and(|existing| !existing.is_void(now))
        {
            return false;
        }
        self.entries.insert(entry.instant, entry);
        true
    }

    /// Replaces a due entry by its outcome. Returns whether the entry was still due.
    pub fn conclude(&mut self, entry: LedgerEntry) -> bool {
        match self.entries.get_mut(&entry.instant) {
            Some(existing) if existing.outcome == InstantOutcome::Due => {
                *existing = entry;
                true
            }
            _ => false,
        }
    }

    /// Enters a triggered run. Returns false if the day already has as many as a page holds.
    pub fn enter_by_hand(&mut self, entry: LedgerEntry) -> bool {
        if self
            .by_hand
            .iter()
            .any(|known| known.outcome == entry.outcome)
        {
            return true;
        }
        if self.by_hand.len() >= TRIGGERED_MAX {
            return false;
        }
        self.by_hand.push(entry);
        true
    }
}

/// A ledger page as a cell stores it.
#[derive(Serialize, Deserialize)]
struct StoredLedgerPage {
    day: UtcDay,
    runs: Vec<StoredLedgerEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    by_hand: Vec<StoredLedgerEntry>,
}

impl From<LedgerPage> for StoredLedgerPage {
    fn from(page: LedgerPage) -> Self {
        let line = |entry: &LedgerEntry| StoredLedgerEntry::of(entry, page.day);
        Self {
            day: page.day,
            runs: page.entries.values().map(line).collect(),
            by_hand: page.by_hand.iter().map(line).collect(),
        }
    }
}

impl TryFrom<StoredLedgerPage> for LedgerPage {
    type Error = &'static str;

    fn try_from(written: StoredLedgerPage) -> Result<Self, Self::Error> {
        let entry =
            |line: &StoredLedgerEntry| line.entry(written.day).ok_or("an entry of no known kind");
        let entries = written
            .runs
            .iter()
            .map(|line| entry(line).map(|entry| (entry.instant, entry)));
        Ok(Self {
            day: written.day,
            entries: entries.collect::<Result<_, _>>()?,
            by_hand: written
                .by_hand
                .iter()
                .map(entry)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// An entry in as few bytes as possible: second of the day, letter, milliseconds from the instant
/// to `at`, and what else the letter needs: the second of the day of another instant, or the id of
/// a job.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredLedgerEntry {
    Plain(i64, char, i64),
    Into(i64, char, i64, i64),
    Job(i64, char, i64, JobId),
}

impl StoredLedgerEntry {
    fn of(entry: &LedgerEntry, day: UtcDay) -> Self {
        let second = |at: Time| (at.as_micros() - day.start().as_micros()).div_euclid(1_000_000);
        let (instant, after) = (
            second(entry.instant),
            (entry.at.as_micros() - entry.instant.as_micros()) / 1_000,
        );
        match entry.outcome {
            InstantOutcome::Due => Self::Plain(instant, 'd', after),
            InstantOutcome::Fired => Self::Plain(instant, 'f', after),
            InstantOutcome::Late => Self::Plain(instant, 'l', after),
            InstantOutcome::MadeUp => Self::Plain(instant, 'u', after),
            InstantOutcome::Skipped(SkipReason::Paused) => Self::Plain(instant, 'p', after),
            InstantOutcome::Skipped(_) => Self::Plain(instant, 's', after),
            InstantOutcome::Missed(SkipReason::OverMax) => Self::Plain(instant, 'm', after),
            InstantOutcome::Missed(SkipReason::QueueFull) => Self::Plain(instant, 'q', after),
            InstantOutcome::Missed(_) => Self::Plain(instant, 'o', after),
            InstantOutcome::Coalesced(into) => Self::Into(instant, 'c', after, second(into)),
            InstantOutcome::Triggered(job) => Self::Job(instant, 't', after, job),
        }
    }

    fn entry(&self, day: UtcDay) -> Option<LedgerEntry> {
        let time = |second: i64| day.start().after_secs(second);
        let (second, after, what) = match *self {
            Self::Plain(second, letter, after) => (second, after, outcome_of_letter(letter)?),
            Self::Into(second, 'c', after, into) => {
                (second, after, InstantOutcome::Coalesced(time(into)))
            }
            Self::Job(second, 't', after, job) => (second, after, InstantOutcome::Triggered(job)),
            Self::Into(..) | Self::Job(..) => return None,
        };
        let instant = time(second);
        let at = Time::from_micros(
            instant
                .as_micros()
                .saturating_add(after.saturating_mul(1_000)),
        );
        Some(LedgerEntry {
            instant,
            outcome: what,
            at,
        })
    }
}

fn outcome_of_letter(letter: char) -> Option<InstantOutcome> {
    Some(match letter {
        'd' => InstantOutcome::Due,
        'f' => InstantOutcome::Fired,
        'l' => InstantOutcome::Late,
        'u' => InstantOutcome::MadeUp,
        'p' => InstantOutcome::Skipped(SkipReason::Paused),
        's' => InstantOutcome::Skipped(SkipReason::Policy),
        'm' => InstantOutcome::Missed(SkipReason::OverMax),
        'q' => InstantOutcome::Missed(SkipReason::QueueFull),
        'o' => InstantOutcome::Missed(SkipReason::TooOld),
        _ => return None,
    })
}

impl Time {
    /// The time `secs` seconds later; earlier if negative.
    const fn after_secs(self, secs: i64) -> Self {
        Self::from_micros(
            self.as_micros()
                .saturating_add(secs.saturating_mul(1_000_000)),
        )
    }
}
