//! Finding what is due, newest first, also where very many rows are.
//!
//! Rows that are tried by their failures are found by an index that knows nothing of their
//! insertion: all that are due are read, and sorted for the newest few. Where that are millions, as
//! after an outage or in a table that was just adopted, it takes minutes. So no more than a crowd
//! is read by it:
//!
//! | rows that are due | how the newest are found |
//! |---|---|
//! | fewer than are wanted | all of them, sorted |
//! | more, and no crowd | all of them, sorted |
//! | a crowd | the newest errors are looked at in the order of insertion, in two steps; if there are enough among them, these are the newest |
//! | a crowd behind many errors that wait | all of them, sorted |

use super::Table;
use super::adopted_table::{OpenTable, ScanView, TableError, place};
use super::row::SqlValue;
use super::sql::{RowPlace, pick, pick_beyond, pick_newest};
use backstop_core::limits::TABLE_RECORDS_MAX;
use backstop_core::table::DueCriteria;

/// Rows for each that is wanted which are a crowd; and at most.
const CANDIDATES_FOR_EACH: usize = 20;
const CANDIDATES_MAX: usize = 50_000;
/// Newest errors that are looked at, in crowds.
const SCANNED_SHARES: [usize; 2] = [1, 10];

/// What a query for due rows found.
#[derive(Default)]
pub(super) struct PickedRows {
    pub(super) places: Vec<RowPlace>,
    /// Rows whose key cannot be noted down.
    pub(super) unkeyed: usize,
}

/// How many rows are a crowd where so many are wanted.
fn candidates_max(max: usize) -> usize {
    CANDIDATES_FOR_EACH
        .saturating_mul(max)
        .min(CANDIDATES_MAX)
        .max(max)
}

impl OpenTable {
    /// What is due, newest first. Rows that turn out to have no key take nobody's place: more are
    /// asked for then. Where a crowd is likely to be due, the newest are looked at first.
    pub(super) async fn pick(
        &mut self,
        table: &Table,
        view: &ScanView,
        max: usize,
        is_crowded: bool,
    ) -> Result<PickedRows, TableError> {
        const LIMIT_MAX: usize = 4 * TABLE_RECORDS_MAX;
        let criteria = view.criteria(table, &self.shape);
        if is_crowded && let Some(places) = self.pick_newest(table, &criteria, max).await? {
            return Ok(PickedRows { places, unkeyed: 0 });
        }
        let mut limit = max;
        loop {
            let cap = Some(candidates_max(limit))
                .filter(|_| !is_crowded && self.shape.has_failure_index());
            let Some(statement) = pick(table, &self.shape, &criteria, view, limit, cap) else {
                return Ok(PickedRows::default());
            };
            let mut rows = self.rows(&statement).await?;
            if let Some(cap) = cap
                && rows.len() == limit
                && self.is_crowded(table, &criteria, cap).await?
            {
                if let Some(places) = self.pick_newest(table, &criteria, max).await? {
                    return Ok(PickedRows { places, unkeyed: 0 });
                }
                let all = pick(table, &self.shape, &criteria, view, limit, None);
                rows = self.rows(&all.unwrap_or(statement)).await?;
            }
            let places: Vec<RowPlace> =
                rows.iter().filter_map(|row| place(row)).take(max).collect();
            self.check_distinct_keys(table, places.iter().map(|place| &place.key))?;
            let unkeyed = rows.len() - rows.iter().filter_map(|row| place(row)).count();
            if unkeyed == 0 || places.len() == max || rows.len() < limit || limit >= LIMIT_MAX {
                return Ok(PickedRows { places, unkeyed });
            }
            limit = (max + 2 * unkeyed).clamp(limit + 1, LIMIT_MAX);
        }
    }

    /// Whether more than so many errors are due.
    async fn is_crowded(
        &mut self,
        table: &Table,
        criteria: &DueCriteria,
        cap: usize,
    ) -> Result<bool, TableError> {
        Ok(!self
            .rows(&pick_beyond(table, &self.shape, criteria, cap))
            .await?
            .is_empty())
    }

    /// What is due, if the newest errors say all about it.
    async fn pick_newest(
        &mut self,
        table: &Table,
        criteria: &DueCriteria,
        max: usize,
    ) -> Result<Option<Vec<RowPlace>>, TableError> {
        for crowds in SCANNED_SHARES {
            let newest = self
                .newest_of(table, criteria, max, crowds * candidates_max(max))
                .await?;
            if newest.is_some() {
                return Ok(newest);
            }
        }
        Ok(None)
    }

    /// What is due, if enough of so many of the newest errors are.
    async fn newest_of(
        &mut self,
        table: &Table,
        criteria: &DueCriteria,
        max: usize,
        among: usize,
    ) -> Result<Option<Vec<RowPlace>>, TableError> {
        let Some(statement) = pick_newest(table, &self.shape, criteria, max, among) else {
            return Ok(None);
        };
        let rows = self.rows(&statement).await?;
        let is_error = |row: &&Vec<SqlValue>| matches!(row.get(2), Some(SqlValue::Text(state)) if state == "e");
        if rows.iter().filter(is_error).count() < max {
            return Ok(None);
        }
        let places: Option<Vec<RowPlace>> = rows.iter().take(max).map(|row| place(row)).collect();
        if let Some(places) = &places {
            self.check_distinct_keys(table, places.iter().map(|place| &place.key))?;
        }
        Ok(places)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::tables::row::RowKey;
    use backstop_core::Time;
    use rusqlite::Connection;

    #[tokio::test]
    async fn the_newest_errors_say_all_if_enough_of_them_are_due_and_nothing_otherwise() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("app.db");
        let db = Connection::open(&file).expect("a database");
        db.execute_batch(
            "CREATE TABLE t (ID INTEGER PRIMARY KEY, STATUS TEXT, DATE_INSERTED INTEGER, FAILURES INTEGER, LAST_FAILURE INTEGER);
             CREATE INDEX by_insertion ON t (STATUS, DATE_INSERTED); CREATE INDEX by_failures ON t (STATUS, FAILURES, LAST_FAILURE);
             WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 100)
             INSERT INTO t SELECT n, 'ERROR', 1772366400 - n, 1, 1772360000 FROM up",
        )
        .expect("rows");
        let table = Table::new("t", &format!("sqlite:{}", file.display()), "t").expect("a table");
        let mut opened = OpenTable::new(&table).await.expect("a table");
        let view = ScanView::all(Time::from_millis(1_772_366_400_000));
        let criteria = view.criteria(&table, &opened.shape);
        for (waiting, expected) in [(0, Some([1, 2, 3])), (57, Some([58, 59, 60])), (58, None)] {
            let wait = format!("UPDATE t SET LAST_FAILURE = 1772366400 WHERE ID <= {waiting}");
            db.execute_batch(&wait).expect("rows that wait");
            let newest = opened
                .newest_of(&table, &criteria, 3, 60)
                .await
                .expect("an answer");
            let keys = newest.map(|places| {
                places
                    .into_iter()
                    .map(|place| place.key)
                    .collect::<Vec<_>>()
            });
            assert_eq!(
                keys,
                expected.map(|ids| ids.map(RowKey::Whole).to_vec()),
                "{waiting}"
            );
        }
    }
}
