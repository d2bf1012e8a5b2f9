//! Instants and durations in whole microseconds.
//!
//! This module owns the arithmetic and the text forms. It reads no clock: callers pass `now`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// How far apart the clocks of one deployment may be.
const CLOCKS_APART: Span = Span::minutes(1);

/// An instant: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(i64);

impl Time {
    /// The instant this many microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The instant this many milliseconds after 1970.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since 1970, rounded down.
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// This instant plus `span`; saturates at the end of time.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// This instant minus `span`; saturates at the beginning of time.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The time from `earlier` to this instant; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Span {
        let micros = self.0.saturating_sub(earlier.0);
        Span(if micros < 0 { 0 } else { micros })
    }

    /// Whether this is later than `now` by more than the clocks of one deployment may be apart. The
    /// clock of the writer was then ahead, and has been set right since.
    pub fn is_ahead_of(self, now: Self) -> bool {
        self > now.after(CLOCKS_APART)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            // RFC 3339 has no form for years outside -9999 to 9999; the number still identifies the
            // instant.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

/// Text that is not an instant in RFC 3339 form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write RFC 3339, such as 2026-11-15T08:30:00Z")]
pub struct InvalidTime(String);

impl FromStr for Time {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        text.parse::<jiff::Timestamp>()
            .map(|timestamp| Self(timestamp.as_microsecond()))
            .map_err(|_| InvalidTime(text.to_owned()))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A duration in microseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(i64);

impl Span {
    pub const ZERO: Self = Self(0);

    /// A span of this many microseconds; zero if the number is negative.
    pub const fn micros(micros: i64) -> Self {
        Self(if micros < 0 { 0 } else { micros })
    }

    pub const fn millis(millis: i64) -> Self {
        Self::micros(millis.saturating_mul(1_000))
    }

    pub const fn secs(secs: i64) -> Self {
        Self::micros(secs.saturating_mul(1_000_000))
    }

    pub const fn minutes(minutes: i64) -> Self {
        Self::secs(minutes.saturating_mul(60))
    }

    pub const fn hours(hours: i64) -> Self {
        Self::minutes(hours.saturating_mul(60))
    }

    /// A span of this many days of 24 hours.
    pub const fn days(days: i64) -> Self {
        Self::hours(days.saturating_mul(24))
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    pub const fn as_millis(self) -> i64 {
        self.0 / 1_000
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 285 years, and for display beyond"
    )]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1_000_000.0
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum; saturates at the longest span.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference; zero if it would be negative.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self::micros(self.0.saturating_sub(other.0))
    }

    /// This span times `factor`; saturates at the longest span.
    #[must_use]
    pub const fn times(self, factor: i64) -> Self {
        Self::micros(self.0.saturating_mul(factor))
    }

    /// This span times a factor that is not negative; saturates at the longest span.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a delay of centuries may be off by microseconds"
    )]
    pub fn scaled(self, factor: f64) -> Self {
        // A float cast saturates, and NaN becomes zero: no input can make a negative span.
        Self::micros((self.0 as f64 * factor).round() as i64)
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> Self {
        Self::from_micros(span.0.unsigned_abs())
    }
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Self {
        Self(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
    }
}

const UNITS: [(&str, i64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl Span {
    /// Formats the span for people: to a tenth of a second below a minute, in its two largest units
    /// above. Examples: `250ms`, `1.2s`, `1m 3s`.
    pub fn plain(self) -> String {
        const LARGE: [(&str, i64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
        let (secs, tenths) = (self.0 / 1_000_000, self.0 % 1_000_000 / 100_000);
        match (secs, tenths) {
            _ if self.0 == 0 => return "0s".to_owned(),
            (0, _) => return format!("{}ms", self.as_millis().max(1)),
            (1..60, 1..) => return format!("{secs}.{tenths}s"),
            _ => {}
        }
        let largest = LARGE
            .iter()
            .position(|(_, size)| secs >= *size)
            .unwrap_or(LARGE.len() - 1);
        let mut left = secs;
        let mut parts = Vec::new();
        for (unit, size) in &LARGE[largest..(largest + 2).min(LARGE.len())] {
            if left / size > 0 {
                parts.push(format!("{}{unit}", left / size));
            }
            left %= size;
        }
        parts.join(" ")
    }
}

impl fmt::Display for Span {
    /// Formats the span exactly, in the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let (unit, size) = UNITS
            .iter()
            .find(|(_, size)| self.0 % size == 0)
            .unwrap_or(&("us", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

/// Text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write a number and a unit, such as 500ms, 10s, 5m, 1h or 1d")]
pub struct InvalidSpan(String);

impl FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        parse_span(text).ok_or_else(|| InvalidSpan(text.to_owned()))
    }
}

fn parse_span(text: &str) -> Option<Span> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits_end);
    let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (fraction.is_empty() && number.contains('.')) {
        return None;
    }
    let whole = whole.parse::<i64>().ok()?.checked_mul(*size)?;
    Some(Span(whole.checked_add(fraction_micros(fraction, *size)?)?))
}

/// The decimal digits `fraction` of a unit of `size` microseconds; `None` if they are not a whole
/// number of microseconds.
fn fraction_micros(fraction: &str, size: i64) -> Option<i64> {
    if fraction.is_empty() {
        return Some(0);
    }
    let scale = 10_i64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = fraction.parse::<i64>().ok()?.checked_mul(size)?;
    (scaled % scale == 0).then_some(scaled / scale)
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
