//! A table on a store: what can be asked of it, and done to it.

use super::catalogue::CatalogueLookup;
use super::claim::cursor;
use super::link::{SqlStatement, TableLink, TableLinkError, TransactionMode, connect};
use super::pass_work::{TakenRow, parse_rows};
use super::row::{RowKey, SqlValue};
use super::schema::{ColumnRoles, DateSamples, TableSchema};
use super::sql::{RowPlace, sample, sample_failures, select_by_keys, survey};
use super::{DatabaseSource, Table};
use crate::client::Backstop;
use crate::worker::default_worker_name;
use backstop_core::limits::{
    TABLE_CLAIM_MAX, TABLE_RECORDS_MAX, TABLE_SAMPLE, TABLE_STATEMENT_MAX,
};
use backstop_core::port::StoreError;
use backstop_core::table::{DueCriteria, ScanPart, TableState, TableSurvey};
use backstop_core::{Time, WorkerName};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// A table on a store.
#[derive(Clone, Debug)]
pub struct AdoptedTable {
    pub(super) backstop: Backstop,
    pub(super) table: Table,
    pub(super) runner: WorkerName,
    /// When it says so, no more rows are taken.
    pub(super) stop: CancellationToken,
    /// One for each handler that may be at work, in whatever pass.
    pub(super) places: Arc<Semaphore>,
}

/// A row that is due.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct DueRow {
    /// Its key: a number, or text.
    pub key: Value,
}

/// What went wrong with a table. No message shows a password.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The database refuses, or does not answer.
    #[error("{0}")]
    Database(String),
    /// A statement took too long.
    #[error(
        "{0}: the statement was stopped after {TABLE_STATEMENT_MAX}; `backstop table check` says which index helps"
    )]
    TooSlow(String),
    /// There is no such table.
    #[error("{place}: there is no table {table}; {}", list_existing("tables", .existing))]
    NoTable {
        place: String,
        table: String,
        existing: Vec<String>,
    },
    /// There is no such column.
    #[error("table {table} has no column {column} for `{role}`; {}. `backstop table check {table}` says how to name yours", list_existing("columns", .existing))]
    NoColumn {
        /// The table, as it is called here.
        table: String,
        /// What the column is for.
        role: &'static str,
        column: String,
        existing: Vec<String>,
    },
    /// A column that says no time.
    #[error(
        "table {table}: column {column} is of type {type_name}, which says no time, or none as `dates` has it; use a timestamp, text, or a whole number since 1970"
    )]
    NoDate {
        /// The table, as it is called here.
        table: String,
        column: String,
        type_name: String,
    },
    /// A column that is no key.
    #[error(
        "table {table}: column {column} is of type {type_name}, which rounds: it is no key; use a whole number, text, or a UUID"
    )]
    NoKey {
        /// The table, as it is called here.
        table: String,
        column: String,
        type_name: String,
    },
    /// A column that says no number.
    #[error(
        "table {table}: column {column} is of type {type_name}, which says no number of failures; use a column of whole numbers"
    )]
    NoCount {
        /// The table, as it is called here.
        table: String,
        column: String,
        type_name: String,
    },
    /// Two rows cannot be told from each other.
    #[error(
        "table {table}: more than one row has {key} in column {column}, and a change of one would change the others; name a column in `columns.id` that no two rows share"
    )]
    OneKey {
        /// The table, as it is called here.
        table: String,
        column: String,
        /// What they have in common.
        key: String,
    },
    #[error(
        "table {0} has no handler; write `handler = {{ exec = [\"./invoice\"] }}` in [tables.{0}]"
    )]
    NoHandler(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn list_existing(what: &str, names: &[String]) -> String {
    const SHOWN: usize = 20;
    match names {
        [] => format!("there are no {what}"),
        names => {
            let more = if names.len() > SHOWN { ", …" } else { "" };
            format!(
                "there are {}{more}",
                names[..names.len().min(SHOWN)].join(", ")
            )
        }
    }
}

impl TableError {
    pub(super) fn of(source: &DatabaseSource, error: &TableLinkError) -> Self {
        match error {
            TableLinkError::Failed(cause) | TableLinkError::Locked(cause) => {
                Self::Database(source.redacted_cause(cause))
            }
            TableLinkError::TooSlow => Self::TooSlow(source.address().to_string()),
        }
    }
}

impl Backstop {
    /// A table, to be looked at and worked off by hand. Workers run theirs by themselves.
    pub fn adopted_table(&self, table: &Table) -> AdoptedTable {
        AdoptedTable::by(
            self,
            table,
            &default_worker_name(self),
            CancellationToken::new(),
        )
    }
}

/// A connection to a table, and what is known about it.
pub(super) struct OpenTable {
    pub(super) link: Box<dyn TableLink>,
    pub(super) shape: TableSchema,
    source: DatabaseSource,
}

impl AdoptedTable {
    pub(crate) fn by(
        backstop: &Backstop,
        table: &Table,
        runner: &WorkerName,
        stop: CancellationToken,
    ) -> Self {
        let places = Arc::new(Semaphore::new(table.concurrency));
        Self {
            backstop: backstop.clone(),
            table: table.clone(),
            runner: runner.clone(),
            stop,
            places,
        }
    }

    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Takes no more rows: a pass that goes on ends with those whose handlers are at work. Holds
    /// for all clones of this.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn now(&self) -> Time {
        self.backstop.now()
    }

    /// Whether a handler could begin now.
    pub(crate) fn has_place(&self) -> bool {
        self.places.available_permits() > 0
    }

    /// Waits until it was told to stop.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// What a pass would take if it were `at`, in the order in which it would: at most `max`, or as
    /// many as one pass takes. What a runner left, or passed over because it was locked, comes
    /// first, then what is left of a round that is open, then what is due by now; rows in
    /// somebody's hands are not among them. Runs nothing and changes nothing.
    pub async fn due(&self, at: Time, max: Option<usize>) -> Result<Vec<DueRow>, TableError> {
        let max = max.unwrap_or(self.table.max_records).min(TABLE_RECORDS_MAX);
        let mut table_state = self.load_state().await?;
        let now = self.backstop.current_time().await;
        table_state.orphan_expired_leases(now);
        table_state.recall_locked();
        let (mut opened, _) = self.open_surveyed().await?;
        let mut due = self
            .list_due_orphans(&mut opened, &table_state, at, max)
            .await?;
        let wanted = (max + table_state.held_row_count() + table_state.aside.len() + 1)
            .min(2 * TABLE_RECORDS_MAX);
        for view in self.views_of(&table_state, at, at.max(now), &opened.shape) {
            if due.len() >= max {
                break;
            }
            let picked = opened
                .pick(&self.table, &view, wanted, table_state.is_cut)
                .await?;
            let aside = opened
                .still_extra(&self.table, &table_state, &picked.places, (view.at, at))
                .await?;
            let is_free = |token: &str| !table_state.is_held(token) && !aside.contains(token);
            for key in picked.places.into_iter().map(|place| place.key) {
                if due.len() < max && !due.contains(&key) && is_free(&key.token()) {
                    due.push(key);
                }
            }
        }
        Ok(due
            .into_iter()
            .map(|key| DueRow { key: key.json() })
            .collect())
    }

    async fn list_due_orphans(
        &self,
        opened: &mut OpenTable,
        table_state: &TableState,
        at: Time,
        max: usize,
    ) -> Result<Vec<RowKey>, TableError> {
        let mut due = Vec::new();
        let keys: Vec<RowKey> = table_state
            .orphans
            .iter()
            .filter_map(|token| RowKey::from_token(token))
            .collect();
        for part in keys.chunks(TABLE_CLAIM_MAX) {
            let view = ScanView::all(at);
            let rows = opened.read_rows(&self.table, part).await?;
            let is_due = |key: &&RowKey| {
                rows.iter()
                    .any(|row| row.key() == *key && row.is_due(&self.table, &view))
            };
            due.extend(part.iter().filter(is_due).cloned());
        }
        due.truncate(max);
        Ok(due)
    }

    /// Looks at every open row for those that no query for due rows can see, and notes what it
    /// finds: a pass does so once an hour.
    pub async fn survey(&self) -> Result<TableSurvey, TableError> {
        let mut opened = self.open().await?;
        let survey = opened
            .survey(&self.table, self.backstop.current_time().await)
            .await?;
        self.change_state(|table_state| table_state.survey = Some(survey))
            .await?;
        Ok(survey)
    }

    /// Takes rows that are tried by their age for tried as of then, so that only later ticks make
    /// them due. Without it the first pass over a table tries all that it has.
    pub async fn skip_to(&self, at: Time) -> Result<(), TableError> {
        self.change_state(|table_state| table_state.skip_to(at))
            .await?;
        Ok(())
    }

    pub(super) async fn open(&self) -> Result<OpenTable, TableError> {
        OpenTable::new(&self.table).await
    }

    /// The same with what a new survey finds.
    pub(super) async fn open_with_new_survey(
        &self,
        at: Time,
    ) -> Result<(OpenTable, TableSurvey), TableError> {
        let mut opened = self.open().await?;
        let survey = opened.survey(&self.table, at).await?;
        if survey.is_mixed {
            opened.shape.set_mixed();
        }
        Ok((opened, survey))
    }

    /// The same with what the last survey found, or a new one does.
    pub(super) async fn open_surveyed(&self) -> Result<(OpenTable, TableSurvey), TableError> {
        let (clock, mut opened) = (self.backstop.current_time().await, self.open().await?);
        let known = self
            .load_state()
            .await?
            .survey
            .filter(|survey| survey.is_fresh(clock));
        let survey = match known {
            Some(survey) => survey,
            None => opened.survey(&self.table, clock).await?,
        };
        if survey.is_mixed {
            opened.shape.set_mixed();
        }
        Ok((opened, survey))
    }
}

/// As of when rows are looked at, and where from.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ScanView {
    pub(super) at: Time,
    pub(super) last_pass: Option<Time>,
    /// The rows behind this one.
    pub(super) behind: Option<RowPlace>,
    pub(super) until: Option<RowPlace>,
}

impl ScanView {
    /// Of all rows, whenever they were tried before.
    pub(super) const fn all(at: Time) -> Self {
        Self {
            at,
            last_pass: None,
            behind: None,
            until: None,
        }
    }

    /// What of it is due. Between two places only what lies between their times is asked for: an
    /// index leads there.
    pub(super) fn criteria(&self, table: &Table, shape: &TableSchema) -> DueCriteria {
        let time = |place: &Option<RowPlace>| shape.inserted.time_at(&place.as_ref()?.inserted);
        table
            .rules
            .criteria(self.last_pass, self.at)
            .between(time(&self.behind), time(&self.until))
    }

    /// The leg of a round that it is a view of.
    pub(super) fn scan_part(&self) -> ScanPart {
        let [cursor, until] = [&self.behind, &self.until].map(|place| place.as_ref().map(cursor));
        ScanPart {
            since: self.last_pass,
            at: self.at,
            cursor,
            until,
        }
    }
}

impl OpenTable {
    pub(super) async fn new(table: &Table) -> Result<Self, TableError> {
        let source = table.source.clone();
        let mut link = connect(&source).await?;
        let to_error = |error: TableLinkError| TableError::of(&source, &error);
        let catalogue = match link.catalogue(&table.relation).await.map_err(to_error)? {
            CatalogueLookup::Table(catalogue) => catalogue,
            CatalogueLookup::Others(there) => {
                let place = source.address().to_string();
                return Err(TableError::NoTable {
                    place,
                    table: table.relation.to_string(),
                    existing: there,
                });
            }
        };
        let roles = ColumnRoles::of(table, &catalogue);
        let (dialect, name) = (source.dialect(), &catalogue.quoted);
        let inserted = roles
            .id
            .zip(roles.inserted)
            .map(|(id, inserted)| sample(dialect, name, id, inserted, TABLE_SAMPLE));
        let failed = Some(())
            .filter(|()| table.rules.counts_failures())
            .and_then(|()| {
                sample_failures(dialect, name, &roles, &table.states.error, TABLE_SAMPLE)
            });
        let seen = DateSamples {
            inserted: read_sample(link.as_mut(), inserted)
                .await
                .map_err(to_error)?,
            last_failure: read_sample(link.as_mut(), failed).await.map_err(to_error)?,
        };
        let shape = TableSchema::new(table, catalogue, &seen)?;
        Ok(Self {
            link,
            shape,
            source,
        })
    }

    pub(super) fn table_error(&self, error: &TableLinkError) -> TableError {
        TableError::of(&self.source, error)
    }

    /// Rows, in a short transaction of their own.
    pub(super) async fn rows(
        &mut self,
        statement: &SqlStatement,
    ) -> Result<Vec<Vec<SqlValue>>, TableError> {
        let rows = read(self.link.as_mut(), statement).await;
        rows.map_err(|error| self.table_error(&error))
    }

    /// Those among these rows that were tried out of their turn, and are not due again as of `at`.
    pub(super) async fn still_extra(
        &mut self,
        table: &Table,
        table_state: &TableState,
        places: &[RowPlace],
        (at, clock): (Time, Time),
    ) -> Result<HashSet<String>, TableError> {
        let tried = |key: &RowKey| table_state.extra_try_at(&key.token(), clock);
        let keys: Vec<RowKey> = places
            .iter()
            .map(|place| &place.key)
            .filter(|key| tried(key).is_some())
            .cloned()
            .collect();
        let mut still = HashSet::new();
        for part in keys.chunks(TABLE_CLAIM_MAX) {
            for row in self.read_rows(table, part).await? {
                let view = ScanView {
                    last_pass: tried(row.key()),
                    ..ScanView::all(at)
                };
                if !row.is_due(table, &view) {
                    still.insert(row.key().token());
                }
            }
        }
        Ok(still)
    }

    /// Every row has a key of its own. Where no index says so it is seen here, before anything is
    /// done with them.
    pub(super) fn check_distinct_keys<'a>(
        &self,
        table: &Table,
        mut keys: impl Iterator<Item = &'a RowKey>,
    ) -> Result<(), TableError> {
        let mut seen = HashSet::new();
        match keys.find(|key| !seen.insert(key.token())) {
            None => Ok(()),
            Some(key) => Err(TableError::OneKey {
                table: table.name().to_owned(),
                column: self.shape.id.name.clone(),
                key: key.json().to_string(),
            }),
        }
    }

    /// A look at every open row.
    pub(super) async fn survey(
        &mut self,
        table: &Table,
        at: Time,
    ) -> Result<TableSurvey, TableError> {
        let counted = match read(self.link.as_mut(), &survey(table, &self.shape, at)).await {
            Ok(rows) => rows,
            Err(TableLinkError::TooSlow) => {
                tracing::warn!(
                    table = table.name(),
                    "the open rows could not be looked through in {TABLE_STATEMENT_MAX}; `backstop table check` says which index helps"
                );
                Vec::new()
            }
            Err(error) => return Err(self.table_error(&error)),
        };
        let count = |at: usize| match counted.first().and_then(|row| row.get(at)) {
            Some(SqlValue::Whole(count)) => u64::try_from(*count).unwrap_or_default(),
            _ => 0,
        };
        Ok(TableSurvey {
            at,
            undated: count(0),
            unkeyed: count(1),
            is_mixed: count(2) > 0,
        })
    }

    /// Rows as they are, without a claim to them.
    pub(super) async fn read_rows(
        &mut self,
        table: &Table,
        keys: &[RowKey],
    ) -> Result<Vec<TakenRow>, TableError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self
            .rows(&select_by_keys(table, &self.shape, keys, ""))
            .await?;
        Ok(parse_rows(&self.shape, rows))
    }
}

/// The place of a row, by its key and its time of insertion.
pub(super) fn place(row: &[SqlValue]) -> Option<RowPlace> {
    let key = RowKey::of(row.first()?).filter(RowKey::is_short)?;
    Some(RowPlace {
        key,
        inserted: RowKey::of(row.get(1)?)?,
    })
}

/// The cells of one column; none if nothing was to be asked.
async fn read_sample(
    link: &mut dyn TableLink,
    query: Option<SqlStatement>,
) -> Result<Vec<SqlValue>, TableLinkError> {
    let Some(statement) = query else {
        return Ok(Vec::new());
    };
    Ok(read(link, &statement)
        .await?
        .into_iter()
        .flatten()
        .collect())
}

/// Rows, in a short transaction of their own.
pub(super) async fn read(
    link: &mut dyn TableLink,
    statement: &SqlStatement,
) -> Result<Vec<Vec<SqlValue>>, TableLinkError> {
    link.begin(TransactionMode::Reading).await?;
    let rows = link.rows(statement).await;
    link.roll_back().await;
    rows
}
