//! Which rows of a user's own backlog table are due.
//!
//! A row is open while its status is the word for new or for error. What becomes of an open row,
//! `now`:
//!
//! | the row | by failures (Fibonacci, and every policy that counts) | by age (progressive) |
//! |---|---|---|
//! | inserted before now − `max_age` (equality is young enough) | expired | expired |
//! | older than the last band | | expired |
//! | has failed as often as the policy's `max_attempts` | expired | |
//! | has no failures, or nobody knows when the last one was | due | |
//! | now − last failure ≥ the wait after so many failures (equality is due) | due | |
//! | its last failure is in the future | waits, as if it had failed now | |
//! | a tick of its band lies in (last pass, now], or there was no pass yet | | due |
//! | otherwise | waits | waits |
//!
//! A band's ticks are the multiples of its period since 1970, so that they survive restarts; after
//! a downtime a row is due once, however many ticks went by. The age of a row is its age now, and
//! equality stays in the younger band: where several bands fire together, the row is tried once. A
//! last pass in the future counts as a pass now. What a pass that is cut at its limit leaves of its
//! tick, and what becomes of it when the next tick fires, is in [`Desk::leg`].
//!
//! The wait after a failure is the same for all rows: what a jitter draws is drawn once for each
//! number of failures. A query can then tell the due rows from the others, before it cuts them at
//! its limit, and what comes back together is spread by that limit.
//!
//! [`Rules::judge`] is the rule for one row; [`Rules::criteria`] says the same as bounds that a
//! query can be made of.

mod criteria;
pub mod date;
mod scan;
mod state;

pub use criteria::{DueCriteria, DueRows, FailureGroup, InsertWindow};
pub use scan::{RowCursor, ScanExtraRow, ScanPart, ScanPartResult, ScanRange, TableScan};
pub use state::{
    ExpiredRowScan, FailingPasses, FullStorage, HeldTableRow, RowClaim, RowRefusal, TableState,
    TableSurvey, UnburiedRows,
};

use crate::limits::{DELAY_MAX, TABLE_BANDS_MAX, TABLE_WAITS_MAX};
use crate::retry::{RandomDraw, RetryBand, RetryCurve, RetryPolicy};
use crate::time::{Span, Time};

/// When the rows of a table are tried.
#[derive(Clone, PartialEq, Debug)]
pub struct TableRules {
    strategy: TableStrategy,
    max_age: Span,
}

#[derive(Clone, PartialEq, Debug)]
enum TableStrategy {
    /// After so many failures so long a wait: the first of these after one failure, the last of
    /// them from there on.
    ByFailures {
        waits: Vec<Span>,
        max_failures: Option<u32>,
    },
    /// At the pace of the youngest band.
    ByAge(Vec<RetryBand>),
}

/// A policy that no table can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTableRules {
    /// A query cannot call it.
    #[error("a custom policy is code, which no query can ask; write one of the named kinds")]
    Custom,
    /// Two ages would end a row.
    #[error("`max_age` belongs to the table, not to its strategy; write it beside `strategy`")]
    AgeInStrategy,
    /// No age would end a row, or none would be young enough.
    #[error("`max_age` must be longer than nothing and at most {DELAY_MAX}")]
    MaxAge,
    #[error("a table's strategy has at most {TABLE_BANDS_MAX} bands")]
    Bands,
}

/// What the rules look at in an open row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRow {
    pub inserted: Time,
    pub failures: u32,
    /// When it failed last, if anybody knows.
    pub last_failure: Option<Time>,
}

/// What becomes of an open row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowDecision {
    /// It is to be tried.
    Due,
    /// It is left alone until then; a row that is tried by its age may have grown out of its band
    /// by then.
    Waits(Time),
    /// It is never tried again.
    Expired,
}

impl TableRules {
    /// The rules of a table with this strategy. Without a `max_age` a progressive strategy ends
    /// with its last band, any other after 30 days.
    pub fn new(policy: &RetryPolicy, max_age: Option<Span>) -> Result<Self, InvalidTableRules> {
        if policy.max_age().is_some() {
            return Err(InvalidTableRules::AgeInStrategy);
        }
        if max_age.is_some_and(|max_age| max_age.is_zero() || max_age > DELAY_MAX) {
            return Err(InvalidTableRules::MaxAge);
        }
        if let RetryCurve::Progressive(bands) = policy.curve() {
            return by_age(bands, max_age);
        }
        let waits = waits(policy).ok_or(InvalidTableRules::Custom)?;
        let strategy = TableStrategy::ByFailures {
            waits,
            max_failures: policy.max_attempts(),
        };
        Ok(Self {
            strategy,
            max_age: max_age.unwrap_or(Span::days(30)),
        })
    }

    /// Past this age a row is expired.
    pub const fn max_age(&self) -> Span {
        self.max_age
    }

    /// Whether the failures of a row count, so that the table needs the two columns.
    pub const fn counts_failures(&self) -> bool {
        matches!(self.strategy, TableStrategy::ByFailures { .. })
    }

    /// Rows that failed so often are expired; `None` if only their age ends them.
    pub const fn max_failures(&self) -> Option<u32> {
        match self.strategy {
            TableStrategy::ByFailures { max_failures, .. } => max_failures,
            TableStrategy::ByAge(_) => None,
        }
    }

    /// The bands of a progressive strategy; none of any other.
    pub fn bands(&self) -> &[RetryBand] {
        match &self.strategy {
            TableStrategy::ByAge(bands) => bands,
            TableStrategy::ByFailures { .. } => &[],
        }
    }

    /// What becomes of an open row.
    pub fn judge(&self, row: OpenRow, last_pass: Option<Time>, now: Time) -> RowDecision {
        if row.inserted < now.before(self.max_age) {
            return RowDecision::Expired;
        }
        match &self.strategy {
            TableStrategy::ByAge(bands) => {
                let age = now.since(row.inserted);
                let band = bands.iter().find(|band| age <= band.until);
                band.map_or(RowDecision::Expired, |band| by_pace(*band, last_pass, now))
            }
            TableStrategy::ByFailures {
                waits,
                max_failures,
            } => {
                if max_failures.is_some_and(|max| row.failures >= max) {
                    return RowDecision::Expired;
                }
                match row.last_failure.filter(|_| row.failures > 0) {
                    None => RowDecision::Due,
                    Some(last) => after_failure(wait(waits, row.failures), last, now),
                }
            }
        }
    }
}

/// A row that failed, or says that it will have.
fn after_failure(wait: Span, last: Time, now: Time) -> RowDecision {
    let again = last.min(now).after(wait);
    if again <= now {
        RowDecision::Due
    } else {
        RowDecision::Waits(again)
    }
}

fn by_pace(band: RetryBand, last_pass: Option<Time>, now: Time) -> RowDecision {
    if has_ticked(band, last_pass, now) {
        RowDecision::Due
    } else {
        RowDecision::Waits(last_tick(band.every, now).after(band.every))
    }
}

/// Whether a tick of the band lies in (last pass, now].
fn has_ticked(band: RetryBand, last_pass: Option<Time>, now: Time) -> bool {
    last_pass.is_none_or(|last| last_tick(band.every, now) > last.min(now))
}

/// The last multiple of a period since 1970.
pub fn last_tick(every: Span, now: Time) -> Time {
    Time::from_micros(now.as_micros() - now.as_micros().rem_euclid(every.as_micros().max(1)))
}

/// The wait after so many failures.
fn wait(waits: &[Span], failures: u32) -> Span {
    let at = (failures.saturating_sub(1) as usize).min(waits.len().saturating_sub(1));
    waits.get(at).copied().unwrap_or(Span::ZERO)
}

fn by_age(bands: &[RetryBand], max_age: Option<Span>) -> Result<TableRules, InvalidTableRules> {
    if bands.len() > TABLE_BANDS_MAX {
        return Err(InvalidTableRules::Bands);
    }
    let oldest = bands.last().map_or(Span::ZERO, |band| band.until);
    let max_age = max_age.map_or(oldest, |max_age| max_age.min(oldest));
    Ok(TableRules {
        strategy: TableStrategy::ByAge(bands.to_vec()),
        max_age,
    })
}

/// The waits after one failure and more, up to where they no longer change; `None` if they are
/// code.
fn waits(policy: &RetryPolicy) -> Option<Vec<Span>> {
    if !policy.is_stored() {
        return None;
    }
    let wait = |failures| {
        policy
            .wait(failures, Span::ZERO, draw(failures))
            .map(|wait| wait.min(DELAY_MAX))
    };
    let mut waits: Vec<Span> = (1..=TABLE_WAITS_MAX).map(wait).collect::<Option<_>>()?;
    while waits.len() > 1 && waits[waits.len() - 1] == waits[waits.len() - 2] {
        waits.pop();
    }
    Some(waits)
}

/// The draw for a number of failures: spread evenly, and the same for everybody who asks.
fn draw(failures: u32) -> RandomDraw {
    // The golden ratio: no two of its multiples are near each other.
    RandomDraw::from_bits(u64::from(failures).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests;
