//! How fast a redrive goes.

use backstop_core::{Span, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// Letters of one step; what is about to be requeued must fit into one cell.
const BATCH_MAX: u64 = 500;
/// How long a step is meant to take.
const STEP: Span = Span::millis(250);
/// What was missed by being slow is made up for, as far as this.
const ARREARS_MAX: Span = Span::secs(1);

/// So many in a second, a minute or an hour: `100/s`, `30/m`, `5/h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedriveRate {
    count: NonZeroU32,
    per: RatePeriod,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RatePeriod {
    Second,
    Minute,
    Hour,
}

impl RedriveRate {
    pub(super) const TEN_A_SECOND: Self = Self::per_second(NonZeroU32::MIN.saturating_add(9));

    /// So many in a second.
    pub const fn per_second(count: NonZeroU32) -> Self {
        Self {
            count,
            per: RatePeriod::Second,
        }
    }

    /// How many go in one step.
    pub(super) fn batch(self) -> usize {
        let steps = self.span().as_micros() / STEP.as_micros();
        let in_step = u64::from(self.count.get()) / steps.unsigned_abs();
        in_step.clamp(1, BATCH_MAX) as usize
    }

    /// From when on more may go, once `count` went at `now`.
    pub(super) fn next_at(self, free_at: Time, count: usize, now: Time) -> Time {
        free_at
            .max(now.before(ARREARS_MAX))
            .after(self.duration_of(count as u64))
    }

    /// How long so many take.
    pub(super) fn duration_of(self, count: u64) -> Span {
        let all = i64::try_from(count)
            .unwrap_or(i64::MAX)
            .saturating_mul(self.span().as_micros());
        Span::micros(all / i64::from(self.count.get()))
    }

    const fn span(self) -> Span {
        match self.per {
            RatePeriod::Second => Span::secs(1),
            RatePeriod::Minute => Span::minutes(1),
            RatePeriod::Hour => Span::hours(1),
        }
    }
}

impl fmt::Display for RedriveRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            RatePeriod::Second => "s",
            RatePeriod::Minute => "m",
            RatePeriod::Hour => "h",
        };
        write!(f, "{}/{per}", self.count)
    }
}

/// Text that is no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rate; write a number of 1 or more and s, m or h, such as 100/s or 30/m")]
pub struct InvalidRedriveRate(String);

impl FromStr for RedriveRate {
    type Err = InvalidRedriveRate;

    fn from_str(text: &str) -> Result<Self, InvalidRedriveRate> {
        let wrong = || InvalidRedriveRate(text.to_owned());
        let (count, per) = text.split_once('/').ok_or_else(wrong)?;
        let per = match per {
            "s" => RatePeriod::Second,
            "m" => RatePeriod::Minute,
            "h" => RatePeriod::Hour,
            _ => return Err(wrong()),
        };
        Ok(Self {
            count: count.parse().map_err(|_| wrong())?,
            per,
        })
    }
}

impl Serialize for RedriveRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RedriveRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> RedriveRate {
        text.parse().unwrap()
    }

    #[test]
    fn a_rate_reads_back_and_anything_else_is_refused() {
        for text in ["1/s", "100/s", "30/m", "5/h", "4294967295/s"] {
            assert_eq!(rate(text).to_string(), text);
        }
        for wrong in [
            "",
            "100",
            "/s",
            "0/s",
            "-1/s",
            "1/d",
            "1.5/s",
            "1 / s",
            "4294967296/s",
        ] {
            assert!(wrong.parse::<RedriveRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_step_is_a_quarter_of_a_second_within_bounds() {
        for (text, batch) in [
            ("100/s", 25),
            ("1/s", 1),
            ("3/s", 1),
            ("5/h", 1),
            ("100000/s", 500),
            ("600/m", 2),
        ] {
            assert_eq!(rate(text).batch(), batch, "{text}");
        }
    }

    #[test]
    fn arrears_are_made_up_for_up_to_a_second() {
        let at = Time::from_millis;
        let check = |free_ms, now_ms, expected_ms| {
            assert_eq!(
                rate("100/s").next_at(at(free_ms), 25, at(now_ms)),
                at(expected_ms)
            );
        };
        check(1_000, 1_000, 1_250);
        check(1_000, 1_100, 1_250);
        check(1_000, 9_000, 8_250);
    }
}
