//! Digests: how often, and which time one is about.
//!
//! | rule | |
//! |---|---|
//! | a daily digest of a date | what came in from 08:00 of the day before until 08:00 of that date |
//! | a weekly digest of a date | the same, from 08:00 a week before; the date is a Saturday |
//! | whose 08:00 | London's, also where clocks are changed |
//! | the end | is not in the future: what comes in later belongs to the next one |

#[cfg(test)]
mod tests;

use backstop::Time;
use jiff::civil::{Date, Time as Clock, Weekday, time};
use jiff::tz::TimeZone;
use jiff::{Span, Zoned};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whose clocks digests go by.
pub const ZONE: &str = "Europe/London";
/// When the time of one digest ends and that of the next begins.
const TURN: Clock = time(8, 0, 0, 0);

/// How often a subscriber gets a digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Range {
    /// Every day.
    Daily,
    /// Every Saturday.
    Weekly,
}

impl Range {
    /// Its word in the tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Weekly => "weekly",
        }
    }

    fn length(self) -> Span {
        match self {
            Self::Daily => Span::new().days(1),
            Self::Weekly => Span::new().weeks(1),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The time a digest is about: from its start until before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first moment.
    pub starts_at: Time,
    /// The first moment of the next.
    pub ends_at: Time,
}

/// A date of which there is no digest.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoDigest {
    /// Not a date.
    #[error("`{0}` is not a date; write such as 2026-03-28")]
    NotADate(String),
    /// A weekly one is of a Saturday.
    #[error("{0} is not a Saturday, and weekly digests are of Saturdays")]
    NotASaturday(String),
    /// Its time is not over.
    #[error("the digest of {0} is about a time that ends at {1}, which is not over")]
    NotOver(String, Time),
}

impl Window {
    /// The time that the digest of a date is about, if it is over at `now`.
    pub fn of(date: &str, range: Range, now: Time) -> Result<Self, NoDigest> {
        let parsed: Date = date
            .parse()
            .map_err(|_| NoDigest::NotADate(date.to_owned()))?;
        if range == Range::Weekly && parsed.weekday() != Weekday::Saturday {
            return Err(NoDigest::NotASaturday(date.to_owned()));
        }
        let unknown = || NoDigest::NotADate(date.to_owned());
        let first = parsed.checked_sub(range.length()).map_err(|_| unknown())?;
        let (starts_at, ends_at) = (
            turn(first).ok_or_else(unknown)?,
            turn(parsed).ok_or_else(unknown)?,
        );
        if ends_at > now {
            return Err(NoDigest::NotOver(date.to_owned(), ends_at));
        }
        Ok(Self { starts_at, ends_at })
    }
}

/// 08:00 of a date, in London.
fn turn(date: Date) -> Option<Time> {
    let zone = TimeZone::get(ZONE).ok()?;
    let at: Zoned = date.to_datetime(TURN).to_zoned(zone).ok()?;
    Some(Time::from_millis(at.timestamp().as_millisecond()))
}

/// A time as the database's driver takes it.
pub fn system_time(time: Time) -> SystemTime {
    let micros = Duration::from_micros(time.as_micros().unsigned_abs());
    if time.as_micros() < 0 {
        UNIX_EPOCH - micros
    } else {
        UNIX_EPOCH + micros
    }
}
