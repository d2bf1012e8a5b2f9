//! The rules of a user's own backlog table: which of its rows are due.
//!
//! A row is open while its status is the word for new or for error. The decision about an open row,
//! `now`:
//!
//! | the row | by failures (Fibonacci, and every policy that counts) | by age (progressive) |
//! |---|---|---|
//! | inserted before now − `max_age` (equality is young enough) | expired | expired |
//! | older than the last band | | expired |
//! | has failed as often as the policy's `max_attempts` | expired | |
//! | has no failures, or the time of the last one is unknown | due | |
//! | now − last failure ≥ the wait after that many failures (equality is due) | due | |
//! | its last failure is in the future | waits, as if it had failed now | |
//! | a tick of its band lies in (last pass, now], or there was no pass yet | | due |
//! | otherwise | waits | waits |
//!
//! The ticks of a band are the multiples of its period since 1970, so they survive restarts; after
//! a downtime a row is due once, however many ticks went by. The age of a row is its age now, and
//! equality stays in the younger band: where several bands tick together, the row is tried once. A
//! last pass in the future counts as a pass now. [`TableState::next_part`] says where a pass
//! continues that was cut at its limit, and what happens when the next tick comes first.
//!
//! The wait after a failure is the same for all rows: jitter is drawn once for each number of
//! failures. So a query can select the due rows before it cuts them at its limit, and that limit
//! spreads rows that come due together.
//!
//! [`TableRules::judge`] is the rule for one row; [`TableRules::criteria`] states the same rule as
//! bounds for a query.

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

/// The rules by which the rows of a table are tried.
#[derive(Clone, PartialEq, Debug)]
pub struct TableRules {
    strategy: TableStrategy,
    max_age: Span,
}

#[derive(Clone, PartialEq, Debug)]
enum TableStrategy {
    /// The wait depends on the number of failures: `waits[0]` applies after one failure, and the
    /// last one to all higher numbers.
    ByFailures {
        waits: Vec<Span>,
        max_failures: Option<u32>,
    },
    /// Rows are tried at the pace of the youngest band that they fit into.
    ByAge(Vec<RetryBand>),
}

/// A policy that no table can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTableRules {
    /// The policy is code, and a query cannot call it.
    #[error("a custom policy is code, which no query can ask; write one of the named kinds")]
    Custom,
    /// Both the table and its strategy would set a maximum age.
    #[error("`max_age` belongs to the table, not to its strategy; write it beside `strategy`")]
    AgeInStrategy,
    /// The maximum age is zero or too long.
    #[error("`max_age` must be longer than nothing and at most {DELAY_MAX}")]
    MaxAge,
    #[error("a table's strategy has at most {TABLE_BANDS_MAX} bands")]
    Bands,
}

/// The columns of an open row that the rules need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRow {
    pub inserted: Time,
    pub failures: u32,
    /// The time of the last failure, if it is known.
    pub last_failure: Option<Time>,
}

/// The decision about an open row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowDecision {
    /// The row is to be tried now.
    Due,
    /// The row waits until this time. A row tried by age may have grown out of its band by then.
    Waits(Time),
    /// The row is never tried again.
    Expired,
}

impl TableRules {
    /// The rules of a table with this strategy. Without a `max_age`, a progressive strategy ends
    /// with its last band, and every other one after 30 days.
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

    /// A row older than this is expired.
    pub const fn max_age(&self) -> Span {
        self.max_age
    }

    /// Whether the rules use the failures of a row, so that the table needs the two columns for
    /// them.
    pub const fn counts_failures(&self) -> bool {
        matches!(self.strategy, TableStrategy::ByFailures { .. })
    }

    /// Rows with this many failures are expired; `None` if only their age expires them.
    pub const fn max_failures(&self) -> Option<u32> {
        match self.strategy {
            TableStrategy::ByFailures { max_failures, .. } => max_failures,
            TableStrategy::ByAge(_) => None,
        }
    }

    /// The bands of a progressive strategy; empty for every other one.
    pub fn bands(&self) -> &[RetryBand] {
        match &self.strategy {
            TableStrategy::ByAge(bands) => bands,
            TableStrategy::ByFailures { .. } => &[],
        }
    }

    /// Decides what to do about an open row.
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

/// The decision about a row that has failed. A last failure in the future counts as a failure now.
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

/// The last multiple of a period since 1970, up to `now`.
pub fn last_tick(every: Span, now: Time) -> Time {
    Time::from_micros(now.as_micros() - now.as_micros().rem_euclid(every.as_micros().max(1)))
}

/// The wait after this many failures.
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

/// The waits after one, two, … failures, up to the one from which they no longer change; `None` if
/// the policy is code.
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

/// The jitter draw for a number of failures: spread evenly, and the same in every process.
fn draw(failures: u32) -> RandomDraw {
    // The golden ratio: no two of its multiples are close to each other.
    RandomDraw::from_bits(u64::from(failures).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests;
