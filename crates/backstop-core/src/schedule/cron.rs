//! Cron: when a schedule is due, as a cron expression on the clocks of a time zone.
//!
//! The crate `croner` finds the local dates and times of an expression, on a calendar without a
//! zone. What a local time means where clocks change is decided here, and nowhere else:
//!
//! | local time | fixed (`30 2 * * *`, `0,30 1-3 * * *`) | elapsed (`0 * * * *`, `*/15 * * * *`, `*/10 2 * * *`) |
//! |---|---|---|
//! | ordinary | due at that time | due at that time |
//! | skipped, because the clock was set forward over it | due once, right after the gap | not due |
//! | several skipped times, or a skipped one and one right after the gap | due once | each as its own row says |
//! | repeated, because the clock was set back over it | due once, the first time | due both times |
//!
//! An expression is *elapsed* if its minute or its hour has a `*` or a step (`/n`), or if it names
//! all 24 hours in any notation: it means a rhythm. Every other expression is *fixed*: it means a
//! time of day, which each day has exactly once.
//!
//! A gap may be a whole day: Samoa had no 30 December 2011, so the instants of that day are due at
//! the first moment of the 31st.

use crate::limits::{CLOCK_CHANGES_MAX, CRON_CHARS_MAX};
use crate::time::Time;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use std::fmt;

/// A cron expression: minute, hour, day of the month, month, day of the week; or a nickname.
#[derive(Clone, Debug)]
pub struct Cron {
    text: String,
    pattern: croner::Cron,
    pace: ClockChangeRule,
}

/// The rule of an expression for local times that a clock change skips or repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClockChangeRule {
    Fixed,
    Elapsed,
}

/// Text that is not a cron expression, or one that never matches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCron {
    /// The expression has seconds, or years.
    #[error(
        "`{0}` has {1} fields; write five, without seconds and years: minute, hour, day of the month, month, day of the week, such as 30 8 * * *"
    )]
    Fields(String, usize),
    #[error(
        "`{0}` is not known; there are @hourly, @daily (@midnight), @weekly, @monthly and @yearly (@annually)"
    )]
    Nickname(String),
    #[error("`{0}`: {1}")]
    Field(String, String),
    /// The expression is longer than any sensible one.
    #[error("a cron expression has at most {CRON_CHARS_MAX} characters; this one has {0}")]
    TooLong(usize),
    #[error("`{0}` never comes: no date fits it")]
    Never(String),
}

const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl Cron {
    /// Parses the expression, and rejects one that never matches.
    pub fn new(text: &str) -> Result<Self, InvalidCron> {
        let text = text.trim();
        if text.len() > CRON_CHARS_MAX {
            return Err(InvalidCron::TooLong(text.len()));
        }
        let fields = if text.starts_with('@') {
            nickname(text)?
        } else {
            text
        };
        let count = fields.split_whitespace().count();
        if count != 5 {
            return Err(InvalidCron::Fields(text.to_owned(), count));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let pattern = parser
            .parse(fields)
            .map_err(|error| InvalidCron::Field(text.to_owned(), error.to_string()))?;
        let pace = ClockChangeRule::of(fields, &pattern);
        let cron = Self {
            text: text.to_owned(),
            pattern,
            pace,
        };
        // A leap day comes after eight years at the latest, so an expression without a match from
        // here on never matches.
        match cron.local_from(DateTime::constant(2000, 1, 1, 0, 0, 0, 0)) {
            Some(_) => Ok(cron),
            None => Err(InvalidCron::Never(text.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The expression in plain words, such as `At 08:30`.
    pub fn description(&self) -> String {
        self.pattern.describe()
    }

    /// Whether both expressions mean the same instants in every zone, even if they are written
    /// differently.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.pace == other.pace
    }

    /// The instants after `after`, in order, without end.
    pub fn instants<'a>(&'a self, zone: &'a Zone, after: Time) -> CronInstants<'a> {
        let at = after.as_micros().div_euclid(MICROS) + 1;
        CronInstants {
            cron: self,
            zone,
            at,
            offset_period: None,
        }
    }

    /// The first local time of the expression at or after `local`.
    fn local_from(&self, local: DateTime) -> Option<DateTime> {
        self.pattern.find_next_occurrence(&local, true).ok()
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl ClockChangeRule {
    fn of(fields: &str, pattern: &croner::Cron) -> Self {
        let mut clock = fields.split_whitespace().take(2);
        let is_rhythm = clock.any(|field| field.contains(['*', '/', '?']));
        let is_every_hour = pattern.pattern.hours.values().len() == 24;
        if is_rhythm || is_every_hour {
            Self::Elapsed
        } else {
            Self::Fixed
        }
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn nickname(text: &str) -> Result<&'static str, InvalidCron> {
    let known = NICKNAMES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    known
        .map(|(_, fields)| *fields)
        .ok_or_else(|| InvalidCron::Nickname(text.to_owned()))
}

/// A time zone of the IANA database. The database is compiled in, so all processes of a version use
/// the same one, and none depends on what the machine has installed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone(TimeZone);

/// Text that names no time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time zone; write its IANA name, such as Europe/London or UTC")]
pub struct InvalidZone(String);

impl Zone {
    /// Looks up the zone of this name.
    pub fn new(name: &str) -> Result<Self, InvalidZone> {
        TimeZone::get(name)
            .map(Self)
            .map_err(|_| InvalidZone(name.to_owned()))
    }

    pub const UTC: Self = Self(TimeZone::UTC);

    pub fn as_str(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The local date at an instant, such as 2026-11-16.
    pub fn date(&self, instant: Time) -> String {
        let second = instant.as_micros().div_euclid(MICROS);
        local_time(second + self.offset(second)).date().to_string()
    }

    /// The offset of local clocks from UTC at `second`, in seconds.
    fn offset(&self, second: i64) -> i64 {
        i64::from(self.0.to_offset(timestamp(second)).seconds())
    }

    /// The latest clock change up to `second`; `None` if there was none.
    fn changed_before(&self, second: i64) -> Option<i64> {
        let changes = self.0.preceding(timestamp(second.saturating_add(1)));
        let seconds = changes.map(|change| change.timestamp().as_second());
        // Some transitions change only the name of the zone.
        seconds
            .take(CLOCK_CHANGES_MAX)
            .find(|second| self.offset(*second) != self.offset(*second - 1))
    }

    /// The next clock change after `second`.
    fn changed_after(&self, second: i64) -> Option<i64> {
        let seconds = self
            .0
            .following(timestamp(second))
            .map(|change| change.timestamp().as_second());
        seconds
            .take(CLOCK_CHANGES_MAX)
            .find(|second| self.offset(*second) != self.offset(*second - 1))
    }

    /// The period around `second` without a clock change.
    fn offset_period(&self, second: i64) -> OffsetPeriod {
        let from = self.changed_before(second);
        let before = from.map(|from| PreviousOffset {
            from: self.changed_before(from - 1),
            offset: self.offset(from - 1),
        });
        OffsetPeriod {
            from,
            until: self.changed_after(second),
            offset: self.offset(second),
            before,
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const MICROS: i64 = 1_000_000;

/// The timestamp of a second, clamped to the range of [`Timestamp`].
fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(if second < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

/// The local time on a clock that shows `second` seconds since 1970.
fn local_time(second: i64) -> DateTime {
    Offset::UTC.to_datetime(timestamp(second))
}

fn local_second(local: DateTime) -> i64 {
    local
        .duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0))
        .as_secs()
}

/// A period in which local clocks have one offset from UTC.
#[derive(Clone, Copy, Debug)]
struct OffsetPeriod {
    /// The first second of the period; `None` if it has no beginning.
    from: Option<i64>,
    /// The first second after the period.
    until: Option<i64>,
    offset: i64,
    before: Option<PreviousOffset>,
}

/// The period before an offset period.
#[derive(Clone, Copy, Debug)]
struct PreviousOffset {
    from: Option<i64>,
    offset: i64,
}

impl OffsetPeriod {
    fn contains(&self, second: i64) -> bool {
        self.from.is_none_or(|from| from <= second) && self.until.is_none_or(|until| second < until)
    }

    /// The local times that were skipped right before this period: from, until.
    fn gap(&self) -> Option<(i64, i64)> {
        let (from, before) = (self.from?, self.before?);
        (before.offset < self.offset).then_some((from + before.offset, from + self.offset))
    }

    /// If this local time is a repetition, the local time at which the repetition ends.
    fn repeated_until(&self, local: i64) -> Option<i64> {
        let (from, before) = (self.from?, self.before?);
        let until = from + before.offset;
        let has_been = before
            .from
            .is_none_or(|begun| begun + before.offset <= local);
        (has_been && local < until).then_some(until)
    }
}

/// The instants of an expression in a zone, in order.
#[derive(Debug)]
pub struct CronInstants<'a> {
    cron: &'a Cron,
    zone: &'a Zone,
    /// The first second that has not been examined yet.
    at: i64,
    offset_period: Option<OffsetPeriod>,
}

impl CronInstants<'_> {
    /// The first instant of this period at or after `self.at`.
    fn within(&self, stretch: &OffsetPeriod) -> Option<i64> {
        let is_fixed = self.cron.pace == ClockChangeRule::Fixed;
        if is_fixed && stretch.from == Some(self.at) && self.was_skipped(stretch) {
            return Some(self.at);
        }
        let mut local = self.local_from(self.at + stretch.offset)?;
        if is_fixed && let Some(until) = stretch.repeated_until(local) {
            local = self.local_from(until)?;
        }
        let second = local - stretch.offset;
        stretch
            .until
            .is_none_or(|until| second < until)
            .then_some(second)
    }

    /// Whether the clock was set forward over a local time of the expression.
    fn was_skipped(&self, stretch: &OffsetPeriod) -> bool {
        stretch
            .gap()
            .is_some_and(|(from, until)| self.local_from(from).is_some_and(|local| local < until))
    }

    fn local_from(&self, local: i64) -> Option<i64> {
        self.cron.local_from(local_time(local)).map(local_second)
    }
}

impl Iterator for CronInstants<'_> {
    type Item = Time;

    fn next(&mut self) -> Option<Time> {
        for _ in 0..CLOCK_CHANGES_MAX {
            let known = self
                .offset_period
                .filter(|stretch| stretch.contains(self.at));
            let stretch = known.unwrap_or_else(|| self.zone.offset_period(self.at));
            self.offset_period = Some(stretch);
            if let Some(second) = self.within(&stretch) {
                self.at = second + 1;
                return Some(Time::from_micros(second * MICROS));
            }
            self.at = stretch.until?;
        }
        None
    }
}
