//! How many jobs of a queue may start in which time, over all workers: a bucket that runs of jobs
//! fill and that time empties, at an even pace (GCRA).
//!
//! | what | rule |
//! |---|---|
//! | pace | one run is forgotten every `per / count` |
//! | burst | so many may come at once; as many as `count`, unless it is said otherwise |
//! | any window of length `w` | at most `burst + w · count / per` runs, whoever asks and however |
//! | whoever asks by a clock that is behind, by less than a minute | time has come as far as the one furthest ahead said: `w` grows by what their clocks are apart, once |
//! | a run that comes at the very instant a place is free | is let through |
//! | a clock that is set back | what was taken counts from now on: the wait is never longer than it takes to empty a full bucket, and a minute |
//! | a limit that is changed | what was taken counts under the new one |
//!
//! Whole numbers throughout: one run weighs `per` microseconds, and each microsecond takes `count`
//! away. Nothing is rounded, so a pace of 21,600 a minute stays one for ever.

use crate::limits::{DELAY_MAX, RATE_COUNT_MAX, RATE_PER_MAX, RATE_PER_MIN};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Clocks of one deployment are no further apart than this; one that is further behind was set
/// back.
const CLOCK_SKEW_MAX: Span = Span::minutes(1);

/// How many jobs may start in which time, and what becomes of one that is too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub count: u32,
    pub per: Span,
    /// How long a job that is over the limit goes back for; `None` for until there is room again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Span>,
    /// How many may start at once; `None` means `count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// A job that is over the limit goes back for no shorter than this, unless `over` says so.
pub const BACK_MIN: Span = Span::millis(50);

/// A limit that cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRateLimit {
    /// Nothing, or more than anybody can count, would be let through.
    #[error("`count` must be from 1 to {RATE_COUNT_MAX}; it is {0}")]
    Count(u32),
    /// The time is too short or too long.
    #[error("`per` must be from {RATE_PER_MIN} to {RATE_PER_MAX}; it is {0}")]
    Per(Span),
    /// A job would come back at once, or never.
    #[error("`over` must be longer than nothing and at most {DELAY_MAX}; it is {0}")]
    Over(Span),
    /// Nothing would be let through.
    #[error(
        "`burst` must be from 1 to {RATE_COUNT_MAX}; it is {0}; leave it out for as many as `count`"
    )]
    Burst(u32),
}

impl RateLimit {
    /// So many in so long; what is over goes back until there is room again.
    pub const fn new(count: u32, per: Span) -> Self {
        Self {
            count,
            per,
            over: None,
            burst: None,
        }
    }

    /// With jobs that are over the limit going back for `over`.
    #[must_use]
    pub const fn over(self, over: Span) -> Self {
        Self {
            over: Some(over),
            ..self
        }
    }

    /// How long a job that is over the limit goes back for, when there is room for one in
    /// `free_in`.
    pub fn back_for(&self, free_in: Span) -> Span {
        self.over.unwrap_or_else(|| free_in.max(BACK_MIN))
    }

    /// With at most so many at once.
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

/// What was let through lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RateBucket {
    /// What the bucket held then, in weights of runs.
    level: i64,
    at: Time,
}

impl RateBucket {
    /// Lets through as many of `wanted` runs as there is room for; answers how many.
    pub fn take(&mut self, limit: &RateLimit, wanted: u32, now: Time) -> u32 {
        let now = self.as_of(now);
        let level = self.level_at(limit, now);
        let fit = (limit.room() - level) / limit.weight();
        let taken = fit.clamp(0, i128::from(wanted));
        self.set(level + taken * limit.weight(), now);
        u32::try_from(taken).unwrap_or(wanted)
    }

    /// So many of those let through did not run after all.
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

    /// The time by which the bucket goes when it is `now` for whoever asks. Two whose clocks differ
    /// would otherwise empty it anew with every turn: one takes the time back, the other lets it
    /// pass again.
    fn as_of(&self, now: Time) -> Time {
        if self.at.since(now) <= CLOCK_SKEW_MAX {
            now.max(self.at)
        } else {
            now
        }
    }

    /// What is left in the bucket; never more than it holds, whatever the clock or another limit
    /// did to it.
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
