//! What became of each instant, and how a day of that is kept.
//!
//! | what | a job? | means |
//! |---|---|---|
//! | `due` | on its way | agreed to fire; not in its queue yet |
//! | `fired` | yes | in its queue within [`LATE_FROM`] |
//! | `late` | yes | later than that, within the grace |
//! | `made_up` | yes | later than the grace: it had been missing |
//! | `triggered` | yes | asked for by hand; no instant of the schedule |
//! | `coalesced` | no | missing, and one later run stands for it: the one it names |
//! | `missed` | no | given up: over the maximum, older than anybody looks back, or its queue stayed full |
//! | `skipped` | no | not wanted: the schedule was paused, or makes up nothing |
//!
//! The first entry of an instant counts. One that gives an instant up, and was made by a clock that
//! was ahead and has been set right since, counts for nothing: when its instant comes, it is
//! decided about anew. To fire stays agreed on, since the job may be in its queue already.
//!
//! A page is a day (UTC). A schedule has at most one instant a minute, so a page has a bound, and
//! fits into a cell.

use super::job_id;
use crate::job::JobId;
use crate::limits::TRIGGERED_MAX;
use crate::name::ScheduleName;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A run that comes to its queue later than this is late.
pub const LATE_FROM: Span = Span::secs(10);

/// What became of an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Agreed to fire; not in its queue yet.
    Due,
    /// In its queue in time.
    Fired,
    /// In its queue after its time, within the grace.
    Late,
    /// In its queue after the grace.
    MadeUp,
    /// Asked for by hand: this job.
    Triggered(JobId),
    /// The run of this instant stands for it.
    Coalesced(Time),
    /// Given up.
    Missed(Why),
    /// Not wanted.
    Skipped(Why),
}

/// Why an instant has no run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The schedule was paused.
    Paused,
    /// It makes up nothing.
    Policy,
    /// More were missing than it makes up.
    OverMax,
    /// It was missing for longer than the schedule looks back.
    TooOld,
    /// Its queue stayed full for longer than the schedule looks back.
    QueueFull,
}

impl Why {
    /// In words.
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

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl What {
    /// Its word.
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

    /// Whether there is a job for it.
    pub const fn has_job(self) -> bool {
        matches!(
            self,
            Self::Fired | Self::Late | Self::MadeUp | Self::Triggered(_)
        )
    }

    /// Whether it should have run, and nobody makes it up any more. What fell into a pause was not
    /// to run.
    pub const fn is_given_up(self) -> bool {
        matches!(
            self,
            Self::Missed(_)
                | Self::Skipped(Why::Policy | Why::OverMax | Why::TooOld | Why::QueueFull)
        )
    }

    /// Why there is none, if that needs saying.
    pub const fn why(self) -> Option<Why> {
        match self {
            Self::Missed(why) | Self::Skipped(why) => Some(why),
            _ => None,
        }
    }

    /// What a run is whose job came in so long after its instant.
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

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What became of one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The instant; of a run by hand, when it was asked for.
    pub instant: Time,
    /// What became of it.
    pub what: What,
    /// When that was.
    pub at: Time,
}

impl Entry {
    /// How long after its instant.
    pub fn lateness(&self) -> Span {
        self.at.since(self.instant)
    }

    /// Whether it counts for nothing at `now`: a clock that was ahead gave the instant up.
    pub fn is_void(&self, now: Time) -> bool {
        self.at.is_ahead_of(now) && !self.what.has_job() && self.what != What::Due
    }

    /// Whether it is to be fired at `now`. A clock that was ahead may have agreed on what is still
    /// to come.
    pub fn is_due(&self, now: Time) -> bool {
        self.what == What::Due && self.instant <= now
    }

    /// Its job in this schedule, if it has one.
    pub fn job(&self, schedule: &ScheduleName) -> Option<JobId> {
        match self.what {
            What::Triggered(id) => Some(id),
            what => what.has_job().then(|| job_id(schedule, self.instant)),
        }
    }
}

/// A day, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Day(i64);

const DAY: Span = Span::days(1);

impl Day {
    /// The day of an instant.
    pub const fn of(instant: Time) -> Self {
        Self(instant.as_micros().div_euclid(DAY.as_micros()))
    }

    /// The days from `from` to `until`, both included.
    pub fn through(from: Self, until: Self) -> impl Iterator<Item = Self> {
        (from.0..=until.0).map(Self)
    }

    /// Its first moment.
    pub const fn start(self) -> Time {
        Time::from_micros(self.0.saturating_mul(DAY.as_micros()))
    }
}

impl fmt::Display for Day {
    /// Such as 2026-11-16: in this form days sort as texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start().to_string();
        f.write_str(start.split('T').next().unwrap_or(&start))
    }
}

/// What became of a day's instants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Page {
    day: Day,
    entries: BTreeMap<Time, Entry>,
    by_hand: Vec<Entry>,
}

impl Page {
    /// A day of which nothing is known.
    pub const fn empty(day: Day) -> Self {
        Self {
            day,
            entries: BTreeMap::new(),
            by_hand: Vec::new(),
        }
    }

    /// Which day.
    pub const fn day(&self) -> Day {
        self.day
    }

    /// The entries of the schedule's instants, in order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// All entries, the runs by hand among them, the newest instant first.
    pub fn newest_first(&self) -> Vec<Entry> {
        let mut all: Vec<Entry> = self
            .entries
            .values()
            .chain(&self.by_hand)
            .copied()
            .collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.instant));
        all
    }

    /// Enters at `now` what was decided about an instant, unless somebody has decided already;
    /// whether it counts.
    pub fn enter(&mut self, entry: Entry, now: Time) -> bool {
        if self
            .entries
            .get(&entry.instant)
            .is_some_and(|standing| !standing.is_void(now))
        {
            return false;
        }
        self.entries.insert(entry.instant, entry);
        true
    }

    /// Enters what became of a due instant; whether it was still due.
    pub fn conclude(&mut self, entry: Entry) -> bool {
        match self.entries.get_mut(&entry.instant) {
            Some(standing) if standing.what == What::Due => {
                *standing = entry;
                true
            }
            _ => false,
        }
    }

    /// Enters a run by hand; not if the day has as many as it holds.
    pub fn enter_by_hand(&mut self, entry: Entry) -> bool {
        if self.by_hand.iter().any(|known| known.what == entry.what) {
            return true;
        }
        if self.by_hand.len() >= TRIGGERED_MAX {
            return false;
        }
        self.by_hand.push(entry);
        true
    }
}

/// A page as a cell keeps it.
#[derive(Serialize, Deserialize)]
struct Written {
    day: Day,
    runs: Vec<Line>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    by_hand: Vec<Line>,
}

impl From<Page> for Written {
    fn from(page: Page) -> Self {
        let line = |entry: &Entry| Line::of(entry, page.day);
        Self {
            day: page.day,
            runs: page.entries.values().map(line).collect(),
            by_hand: page.by_hand.iter().map(line).collect(),
        }
    }
}

impl TryFrom<Written> for Page {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let entry = |line: &Line| line.entry(written.day).ok_or("an entry of no known kind");
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

/// An entry in as few bytes as its meaning takes: second of the day, letter, milliseconds from the
/// instant to `at`, and what else the letter needs: the second of the day of another instant, or a
/// job's id.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Plain(i64, char, i64),
    Into(i64, char, i64, i64),
    Job(i64, char, i64, JobId),
}

impl Line {
    fn of(entry: &Entry, day: Day) -> Self {
        let second = |at: Time| (at.as_micros() - day.start().as_micros()).div_euclid(1_000_000);
        let (instant, after) = (
            second(entry.instant),
            (entry.at.as_micros() - entry.instant.as_micros()) / 1_000,
        );
        match entry.what {
            What::Due => Self::Plain(instant, 'd', after),
            What::Fired => Self::Plain(instant, 'f', after),
            What::Late => Self::Plain(instant, 'l', after),
            What::MadeUp => Self::Plain(instant, 'u', after),
            What::Skipped(Why::Paused) => Self::Plain(instant, 'p', after),
            What::Skipped(_) => Self::Plain(instant, 's', after),
            What::Missed(Why::OverMax) => Self::Plain(instant, 'm', after),
            What::Missed(Why::QueueFull) => Self::Plain(instant, 'q', after),
            What::Missed(_) => Self::Plain(instant, 'o', after),
            What::Coalesced(into) => Self::Into(instant, 'c', after, second(into)),
            What::Triggered(job) => Self::Job(instant, 't', after, job),
        }
    }

    fn entry(&self, day: Day) -> Option<Entry> {
        let time = |second: i64| day.start().after_secs(second);
        let (second, after, what) = match *self {
            Self::Plain(second, letter, after) => (second, after, plain(letter)?),
            Self::Into(second, 'c', after, into) => (second, after, What::Coalesced(time(into))),
            Self::Job(second, 't', after, job) => (second, after, What::Triggered(job)),
            Self::Into(..) | Self::Job(..) => return None,
        };
        let instant = time(second);
        let at = Time::from_micros(
            instant
                .as_micros()
                .saturating_add(after.saturating_mul(1_000)),
        );
        Some(Entry { instant, what, at })
    }
}

fn plain(letter: char) -> Option<What> {
    Some(match letter {
        'd' => What::Due,
        'f' => What::Fired,
        'l' => What::Late,
        'u' => What::MadeUp,
        'p' => What::Skipped(Why::Paused),
        's' => What::Skipped(Why::Policy),
        'm' => What::Missed(Why::OverMax),
        'q' => What::Missed(Why::QueueFull),
        'o' => What::Missed(Why::TooOld),
        _ => return None,
    })
}

impl Time {
    /// So many seconds later, or earlier.
    const fn after_secs(self, secs: i64) -> Self {
        Self::from_micros(
            self.as_micros()
                .saturating_add(secs.saturating_mul(1_000_000)),
        )
    }
}
