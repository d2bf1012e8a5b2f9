//! How a table stands: rows by state and by age, what is due, what is not, and when the next will
//! be.

use super::adopted_table::{AdoptedTable, OpenTable, ScanView, TableError};
use super::count;
use super::link::SqlStatement;
use super::row::{RowKey, SqlValue};
use super::schema::FailureColumns;
use super::sql::{self, OpenState};
use super::{StatusValues, Table, status_words};
use backstop_core::limits::TABLE_LISTED_MAX;
use backstop_core::port::StoreResult;
use backstop_core::retry::RetryBand;
use backstop_core::table::date::DateForm;
use backstop_core::table::{
    FailingPasses, HeldTableRow, OpenRow, RowClaim, RowDecision, TableState, UnburiedRows,
    last_tick,
};
use backstop_core::{Span, Time};
use serde_json::Value;

/// Due and expired rows that are counted.
const COUNTED_MAX: usize = 1_000_000_000;
/// The ages by which rows are counted where the strategy has none of its own.
const AGES: [Span; 6] = [
    Span::days(1),
    Span::days(7),
    Span::days(14),
    Span::days(30),
    Span::days(180),
    Span::days(360),
];

/// How many rows of a table are open, due, done and expired.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct TableStatus {
    pub at: Time,
    /// As of when the last pass was.
    pub last_pass: Option<Time>,
    /// When workers run the next.
    pub next_pass: Time,
    /// Rows that were never tried.
    pub new: u64,
    pub error: u64,
    pub success: u64,
    /// Rows in any other state, which are none of our business.
    pub other: u64,
    /// Open rows by their age, the youngest first; the last of these has no end.
    pub bands: Vec<AgeBand>,
    /// Open rows that are due.
    pub due: u64,
    /// Open rows that will be.
    pub waiting: u64,
    /// Open rows that are never tried again.
    pub expired: u64,
    /// Those of them that the last pass could not copy to the dead letters, if they are to be
    /// copied.
    pub unburied: Option<UnburiedRows>,
    /// Open rows with a date or a count that cannot be read: nobody knows when they are due, and
    /// they are never tried.
    pub undated: u64,
    /// Open rows whose key is none, or too long to be noted down. They are never tried.
    pub unkeyed: u64,
    /// Rows that runners have in their hands.
    pub in_hand: usize,
    /// These, the longest first; of more than a thousand so many. One that has been there for long
    /// has a handler that hangs.
    pub hands: Vec<RowInHand>,
    /// When the next row is due, if one ever is.
    pub next_due: Option<Time>,
    /// Since when passes fail, and of what, if they do.
    pub failing: Option<FailingPasses>,
}

/// A row in a runner's hands.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct RowInHand {
    pub key: Value,
    pub runner: String,
    pub since: Time,
}

/// Open rows of one age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AgeBand {
    /// Up to this age; `None` for all that are older.
    pub until: Option<Span>,
    /// How often they are tried, if their age says so.
    pub every: Option<Span>,
    /// Rows that were never tried.
    pub new: u64,
    pub error: u64,
}

impl AdoptedTable {
    /// Since when passes fail, and of what; `None` if the last one did not. Asks the store alone,
    /// and not the table's database.
    pub async fn failing(&self) -> StoreResult<Option<FailingPasses>> {
        Ok(self.load_state().await?.failing)
    }

    /// How the table stands, as if it were `at`. Changes nothing; counts every row.
    pub async fn status(&self, at: Time) -> Result<TableStatus, TableError> {
        let (table, table_state) = (&self.table, self.load_state().await?);
        let (mut opened, survey) = self.open_with_new_survey(at).await?;
        let now = self.backstop.current_time().await;
        let views = self.views_of(&table_state, at, at.max(now), &opened.shape);
        let mut status = TableStatus {
            at,
            last_pass: table_state.last_pass,
            next_pass: last_tick(table.every, at).after(table.every),
            in_hand: table_state.held_row_count() + table_state.orphans.len(),
            hands: hands(&table_state),
            undated: survey.undated,
            unkeyed: survey.unkeyed,
            failing: table_state.failing.clone(),
            unburied: table_state.unburied,
            ..TableStatus::default()
        };
        count_states(&mut opened, &table.states, &mut status).await?;
        status.bands = bands(&mut opened, table, at).await?;
        for view in &views {
            status.due += opened.count_due(table, view).await?;
        }
        let expired = sql::count_expired(table, &opened.shape, at, COUNTED_MAX);
        status.expired = opened.count(&expired).await?;
        let others = status.due + status.expired + status.undated + status.unkeyed;
        status.waiting = (status.new + status.error).saturating_sub(others);
        status.next_due = if status.due > 0 {
            Some(at)
        } else {
            opened.next_due(table, at).await?
        };
        Ok(status)
    }
}

fn hands(table_state: &TableState) -> Vec<RowInHand> {
    let of_claim = |claim: &RowClaim| {
        let runner = claim.runner.clone();
        let row = move |held: &HeldTableRow| {
            let key = RowKey::from_token(&held.key)?.json();
            Some(RowInHand {
                key,
                runner: runner.clone(),
                since: held.since,
            })
        };
        claim.rows.iter().filter_map(row).collect::<Vec<_>>()
    };
    let mut hands: Vec<RowInHand> = table_state.claims.iter().flat_map(of_claim).collect();
    hands.sort_by_key(|row| row.since);
    hands.truncate(TABLE_LISTED_MAX);
    hands
}

async fn count_states(
    opened: &mut OpenTable,
    states: &StatusValues,
    status: &mut TableStatus,
) -> Result<(), TableError> {
    let rows = opened
        .rows(&sql::count_states(&opened.shape, states))
        .await?;
    for counted in status_words::parse_counts(&rows) {
        let word = counted.word.as_deref().unwrap_or_default();
        let place = match status_words::RowState::of(word, states, opened.shape.dialect) {
            status_words::RowState::New => &mut status.new,
            status_words::RowState::Error => &mut status.error,
            status_words::RowState::Success => &mut status.success,
            status_words::RowState::Other => &mut status.other,
        };
        *place += counted.rows;
    }
    Ok(())
}

async fn bands(
    opened: &mut OpenTable,
    table: &Table,
    at: Time,
) -> Result<Vec<AgeBand>, TableError> {
    let own = table
        .rules
        .bands()
        .iter()
        .map(|RetryBand { until, every }| (*until, Some(*every)));
    let usual = AGES.into_iter().map(|until| (until, None));
    let ages: Vec<(Span, Option<Span>)> = if table.rules.counts_failures() {
        usual.collect()
    } else {
        own.collect()
    };
    let mut bands = Vec::with_capacity(ages.len() + 1);
    let mut before = None;
    for (until, every) in ages
        .into_iter()
        .map(|(until, every)| (Some(until), every))
        .chain([(None, None)])
    {
        let from = until.map(|until| at.before(until));
        let mut counts = [0; 2];
        for (count, state) in counts.iter_mut().zip(OpenState::ALL) {
            let statement = sql::count_open(table, &opened.shape, state, from, before);
            *count = opened.count(&statement).await?;
        }
        bands.push(AgeBand {
            until,
            every,
            new: counts[0],
            error: counts[1],
        });
        before = from;
    }
    Ok(bands)
}

impl OpenTable {
    async fn count_due(&mut self, table: &Table, view: &ScanView) -> Result<u64, TableError> {
        let criteria = view.criteria(table, &self.shape);
        let Some(due) = sql::pick(table, &self.shape, &criteria, view, COUNTED_MAX, None) else {
            return Ok(0);
        };
        let counted = SqlStatement {
            sql: format!("SELECT count(*) FROM ({}) AS c", due.sql),
            is_indexed: false,
            ..due
        };
        self.count(&counted).await
    }

    /// When the first of the rows that wait is due.
    async fn next_due(&mut self, table: &Table, at: Time) -> Result<Option<Time>, TableError> {
        if let Some(failed) = self.shape.failed.clone() {
            let statement = sql::next_due(
                table,
                &self.shape,
                &failed,
                at.before(table.rules.max_age()),
            );
            let rows = self.rows(&statement).await?;
            let until = |row: &Vec<SqlValue>| {
                let failures = count::read(row.first()?, &failed.failures, self.shape.dialect)?;
                let failures = u32::try_from(failures).unwrap_or(u32::MAX);
                let last_failure = first(&failed, row.get(1)?);
                match table.rules.judge(
                    OpenRow {
                        inserted: at,
                        failures,
                        last_failure,
                    },
                    None,
                    at,
                ) {
                    RowDecision::Waits(until) => Some(until),
                    RowDecision::Due | RowDecision::Expired => None,
                }
            };
            return Ok(rows.iter().filter_map(until).min());
        }
        self.next_tick(table, at).await
    }

    /// When the first band ticks that has rows which are young enough by then.
    async fn next_tick(&mut self, table: &Table, at: Time) -> Result<Option<Time>, TableError> {
        let (mut next, mut before) = (None, None);
        for RetryBand { until, every } in table.rules.bands() {
            let tick = last_tick(*every, at).after(*every);
            let from = at.before(*until).max(tick.before(table.rules.max_age()));
            if next.is_none_or(|next| tick < next) && before.is_none_or(|before| from < before) {
                for state in OpenState::ALL {
                    let statement = sql::count_open(table, &self.shape, state, Some(from), before);
                    if self.count(&statement).await? > 0 {
                        next = Some(tick);
                    }
                }
            }
            before = Some(at.before(*until));
        }
        Ok(next)
    }
}

/// The first of many dates, as its statement gives it.
fn first(failed: &FailureColumns, cell: &SqlValue) -> Option<Time> {
    match (cell, failed.last_failure.form) {
        (SqlValue::Whole(micros), DateForm::Text(_)) => {
            i64::try_from(*micros).ok().map(Time::from_micros)
        }
        (cell, _) => failed.last_failure.read(cell).time(),
    }
}
