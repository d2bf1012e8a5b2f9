//! Rate limits: how many jobs of a queue may start in which time, over all workers. A leaky bucket
//! (GCRA): each run fills it, and time drains it at an even pace.
//!
//! | what | rule |
//! |---|---|
//! | pace | the bucket drains one run every `per / count` |
//! | burst | so many runs may start at once; `count` by default |
//! | any window of length `w` | at most `burst + w · count / per` runs, in all workers together |
//! | a caller's clock is behind, by less than a minute | the most advanced clock seen counts |
//! | a run that comes at the very instant a place is free | is admitted |
//! | a clock is set back | the level counts from now on |
//! | a limit is changed | the level counts under the new limit |
//!
//! Where the clocks of two callers differ, `w` grows by the difference, once. After a clock was set
//! back, no wait is longer than it takes to drain a full bucket, and a minute.
//!
//! All numbers are whole: one run weighs `per` microseconds, and each microsecond drains `count`.
//! Nothing is rounded, so a pace of 21,600 a minute stays exact for ever.

use crate::limits::{DELAY_MAX, RATE_COUNT_MAX, RATE_PER_MAX, RATE_PER_MIN};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Clocks of one deployment are no further apart than this; a clock that is further behind was set
/// back.
const CLOCK_SKEW_MAX: Span = Span::minutes(1);

/// How many jobs may start in which time, and what happens to a job beyond that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub count: u32,
    pub per: Span,
    /// How long a job over the limit is released for; `None` means until there is room again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Span>,
    /// How many jobs may start at once; `None` means `count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// A job over the limit is released for at least this long, unless `over` is set.
pub const BACK_MIN: Span = Span::millis(50);

/// A limit that cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRateLimit {
    /// The limit would admit nothing, or more than can be counted.
    #[error("`count` must be from 1 to {RATE_COUNT_MAX}; it is {0}")]
    Count(u32),
    /// The period is too short or too long.
    #[error("`per` must be from {RATE_PER_MIN} to {RATE_PER_MAX}; it is {0}")]
    Per(Span),
    /// A job would come back at once, or never.
    #[error("`over` must be longer than nothing and at most {DELAY_MAX}; it is {0}")]
    Over(Span),
    /// The limit would admit nothing.
    #[error(
        "`burst` must be from 1 to {RATE_COUNT_MAX}; it is {0}; leave it out for as many as `count`"
    )]
    Burst(u32),
}

impl RateLimit {
    /// Allows `count` jobs per `per`; jobs over the limit wait until there is room again.
    pub const fn new(count: u32, per: Span) -> Self {
        Self {
            count,
            per,
            over: None,
            burst: None,
        }
    }

    /// Sets how long jobs over the limit are released for.
    #[must_use]
    pub const fn over(self, over: Span) -> Self {
        Self {
            over: Some(over),
            ..self
        }
    }

    /// How long a job over the limit is released for, when the next place becomes free after
    /// `free_in`.
    pub fn back_for(&self, free_in: Span) -> Span {
        self.over.unwrap_or_else(|| free_in.max(BACK_MIN))
    }

    /// Sets how many jobs may start at once.
    #[must_use]
    pub const fn burst(self, burst: u32) -> Self {
        Self {
            burst: Some(burst),
            ..self
        }
    }

    pub fn check(&self) -> Result<(), InvalidRateLimit> {
        let burst = self.burst.unwrap_or(self.count);
        if !(1..=RATE_COUNT_MAX).contains(&self.count) {
            Err(InvalidRateLimit::Count(self.count))
        } else if self.per < RATE_PER_MIN || self.per > RATE_PER_MAX {
            Err(InvalidRateLimit::Per(self.per))
        } else if let Some(over) = self.over.filter(|over| over.is_zero() || *over > DELAY_MAX) {
            Err(InvalidRateLimit::Over(over))
        } else if !(1..=RATE_COUNT_MAX).contains(&burst) {
            Err(InvalidRateLimit::Burst(burst))
        } else {
            Ok(())
        }
    }

    fn weight(&self) -> i128 {
        i128::from(self.per.as_micros().max(1))
    }

    fn room(&self) -> i128 {
        i128::from(self.burst.unwrap_or(self.count).max(1)) * self.weight()
    }
}

/// The leaky bucket of a rate limit, which all workers share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RateBucket {
    /// The level at time `at`, in weights of runs.
    level: i64,
    at: Time,
}

impl RateBucket {
    /// Admits as many of `wanted` runs as there is room for, and returns how many.
    pub fn take(&mut self, limit: &RateLimit, wanted: u32, now: Time) -> u32 {
        let now = self.as_of(now);
        let level = self.level_at(limit, now);
        let fit = (limit.room() - level) / limit.weight();
        let taken = fit.clamp(0, i128::from(wanted));
        self.set(level + taken * limit.weight(), now);
        u32::try_from(taken).unwrap_or(wanted)
    }

    /// Returns the places of admitted jobs that did not run after all.
    pub fn give_back(&mut self, limit: &RateLimit, unused: u32, now: Time) {
        let now = self.as_of(now);
        let level = self.level_at(limit, now) - i128::from(unused) * limit.weight();
        self.set(level.max(0), now);
    }

    /// How long until there is room for one run.
    pub fn free_in(&self, limit: &RateLimit, now: Time) -> Span {
        let as_of = self.as_of(now);
        let over = self.level_at(limit, as_of) + limit.weight() - limit.room();
        if over <= 0 {
            return Span::ZERO;
        }
        let pace = i128::from(limit.count.max(1));
        as_of.since(now).plus(Span::micros(
            i64::try_from((over + pace - 1) / pace).unwrap_or(i64::MAX),
        ))
    }

    /// The time that the bucket uses when the caller's clock shows `now`. Otherwise two callers
    /// whose clocks differ would drain it with every turn: one sets the time back, and the other
    /// lets it pass again.
    fn as_of(&self, now: Time) -> Time {
        if self.at.since(now) <= CLOCK_SKEW_MAX {
            now.max(self.at)
        } else {
            now
        }
    }

    /// The level of the bucket at `now`; never more than the bucket holds, whatever the clock or
    /// another limit did to it.
    fn level_at(&self, limit: &RateLimit, now: Time) -> i128 {
        let emptied = i128::from(now.since(self.at).as_micros()) * i128::from(limit.count);
        (i128::from(self.level) - emptied).clamp(0, limit.room())
    }

    fn set(&mut self, level: i128, now: Time) {
        *self = Self {
            level: i64::try_from(level).unwrap_or(i64::MAX),
            at: now,
        };
    }
}

#[cfg(test)]
mod tests;
