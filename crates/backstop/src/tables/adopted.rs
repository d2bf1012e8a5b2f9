//! A table on a store: what can be asked of it, and done to it.

use super::catalogue::Found;
use super::link::{For, Link, LinkError, Statement, connect};
use super::row::{Cell, Key};
use super::shape::{Roles, Seen, Shape};
use super::sql::{Place, pick, sample, sample_failures};
use super::{Source, Table};
use crate::client::Backstop;
use crate::worker::usual_worker;
use backstop_core::limits::{TABLE_RECORDS_MAX, TABLE_SAMPLE, TABLE_STATEMENT_MAX};
use backstop_core::port::StoreError;
use backstop_core::{Time, WorkerName};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A table on a store.
#[derive(Clone, Debug)]
pub struct Adopted {
    pub(super) backstop: Backstop,
    pub(super) table: Table,
    pub(super) runner: WorkerName,
    /// When it says so, no more rows are taken.
    pub(super) stop: CancellationToken,
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
    #[error("{place}: there is no table {table}; {}", are("tables", .there))]
    NoTable {
        /// Where.
        place: String,
        /// The table.
        table: String,
        /// Those that are there.
        there: Vec<String>,
    },
    /// There is no such column.
    #[error("table {table} has no column {column} for `{role}`; {}. `backstop table check {table}` prints what is missing", are("columns", .there))]
    NoColumn {
        /// The table, as it is called here.
        table: String,
        /// What the column is for.
        role: &'static str,
        /// The column.
        column: String,
        /// Those that are there.
        there: Vec<String>,
    },
    /// A column that says no time.
    #[error(
        "table {table}: column {column} is of type {type_name}, which says no time; use a timestamp, text, or a number since 1970"
    )]
    NoDate {
        /// The table, as it is called here.
        table: String,
        /// The column.
        column: String,
        /// Its type.
        type_name: String,
    },
    /// Nothing handles its rows.
    #[error("table {0} has no handler; write `handler = {{ exec = [\"./invoice\"] }}` in [tables.{0}]")]
    NoHandler(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn are(what: &str, names: &[String]) -> String {
    const SHOWN: usize = 20;
    match names {
        [] => format!("there are no {what}"),
        names => {
            let more = if names.len() > SHOWN { ", …" } else { "" };
            format!("there are {}{more}", names[..names.len().min(SHOWN)].join(", "))
        }
    }
}

impl TableError {
    pub(super) fn of(source: &Source, error: &LinkError) -> Self {
        match error {
            LinkError::Failed(cause) => Self::Database(source.told(cause)),
            LinkError::TooSlow => Self::TooSlow(source.address().to_string()),
        }
    }
}

impl Backstop {
    /// A table, to be looked at and worked off by hand. Workers run theirs by themselves.
    pub fn adopted(&self, table: &Table) -> Adopted {
        Adopted::by(self, table, &usual_worker(self), CancellationToken::new())
    }
}

/// A connection to a table, and what is known about it.
pub(super) struct Opened {
    pub(super) link: Box<dyn Link>,
    pub(super) shape: Shape,
    source: Source,
}

impl Adopted {
    pub(crate) fn by(
        backstop: &Backstop,
        table: &Table,
        runner: &WorkerName,
        stop: CancellationToken,
    ) -> Self {
        Self { backstop: backstop.clone(), table: table.clone(), runner: runner.clone(), stop }
    }

    /// The table.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Takes no more rows: a pass that goes on ends with those whose handlers are at work. Holds for all clones of this.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn now(&self) -> Time {
        self.backstop.now()
    }

    /// Waits until it was told to stop.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// What a pass would take if it were `at`, in the order in which it would: at most `max`, or as many as one pass takes. Runs
    /// nothing and changes nothing.
    pub async fn due(&self, at: Time, max: Option<usize>) -> Result<Vec<DueRow>, TableError> {
        let max = max.unwrap_or(self.table.max_records).min(TABLE_RECORDS_MAX);
        let view = self.view(at).await?;
        let mut opened = self.open().await?;
        let picked = opened.pick(&self.table, &view, max).await?;
        Ok(picked.into_iter().map(|place| DueRow { key: place.key.json() }).collect())
    }

    pub(super) async fn open(&self) -> Result<Opened, TableError> {
        Opened::new(&self.table).await
    }
}

/// As of when rows are looked at, and where from.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct View {
    pub(super) at: Time,
    pub(super) last_pass: Option<Time>,
    pub(super) behind: Option<Place>,
}

impl Opened {
    pub(super) async fn new(table: &Table) -> Result<Self, TableError> {
        let source = table.source.clone();
        let mut link = connect(&source).await?;
        let told = |error: LinkError| TableError::of(&source, &error);
        let catalogue = match link.catalogue(&table.relation).await.map_err(told)? {
            Found::Table(catalogue) => catalogue,
            Found::Others(there) => {
                let place = source.address().to_string();
                return Err(TableError::NoTable { place, table: table.relation.to_string(), there });
            }
        };
        let roles = Roles::of(table, &catalogue);
        let (dialect, name) = (source.dialect(), &catalogue.quoted);
        let inserted = roles
            .id
            .zip(roles.inserted)
            .map(|(id, inserted)| sample(dialect, name, id, inserted, TABLE_SAMPLE));
        let failed = Some(())
            .filter(|()| table.rules.counts_failures())
            .and_then(|()| sample_failures(dialect, name, &roles, &table.states.error, TABLE_SAMPLE));
        let seen = Seen {
            inserted: look(link.as_mut(), inserted).await.map_err(told)?,
            last_failure: look(link.as_mut(), failed).await.map_err(told)?,
        };
        let shape = Shape::new(table, catalogue, &seen)?;
        Ok(Self { link, shape, source })
    }

    pub(super) fn told(&self, error: &LinkError) -> TableError {
        TableError::of(&self.source, error)
    }

    /// Rows, in a short transaction of their own.
    pub(super) async fn rows(&mut self, statement: &Statement) -> Result<Vec<Vec<Cell>>, TableError> {
        let rows = read(self.link.as_mut(), statement).await;
        rows.map_err(|error| self.told(&error))
    }

    /// What is due, newest first.
    pub(super) async fn pick(
        &mut self,
        table: &Table,
        view: &View,
        max: usize,
    ) -> Result<Vec<Place>, TableError> {
        let criteria = table.rules.criteria(view.last_pass, view.at);
        let Some(statement) = pick(table, &self.shape, &criteria, view.behind.as_ref(), max) else {
            return Ok(Vec::new());
        };
        let rows = self.rows(&statement).await?;
        let place =
            |row: &Vec<Cell>| Some(Place { key: Key::of(row.first()?)?, inserted: Key::of(row.get(1)?)? });
        Ok(rows.iter().filter_map(place).collect())
    }
}

/// The cells of one column; none if nothing was to be asked.
async fn look(link: &mut dyn Link, asked: Option<Statement>) -> Result<Vec<Cell>, LinkError> {
    let Some(statement) = asked else { return Ok(Vec::new()) };
    Ok(read(link, &statement).await?.into_iter().flatten().collect())
}

/// Rows, in a short transaction of their own.
pub(super) async fn read(link: &mut dyn Link, statement: &Statement) -> Result<Vec<Vec<Cell>>, LinkError> {
    link.begin(For::Reading).await?;
    let rows = link.rows(statement).await;
    link.roll_back().await;
    rows
}
