//! Adopted tables: a backlog table that somebody has already, worked off by its rules and ours.
//!
//! The table has a key, a status and the time at which a row came in. It stays where it is and as
//! it is: rows that are due are handed to a handler, and become a success or an error. Which are
//! due is decided by [`backstop_core::table`], in the query and before its limit; who works on
//! which is noted in backstop's own store, so that no transaction is open while a handler runs.
//!
//! ```no_run
//! use backstop::tables::{TableRow, Table};
//! use backstop::{Backstop, RunError};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backstop = Backstop::open("sqlite:backstop.db").await?;
//! let invoices = Table::new("invoices", "sqlite:app.db", "BACKLOG")?
//!     .handler(|row: TableRow| async move {
//!         println!("{} for the {}. time", row.key, row.attempt);
//!         Ok::<(), RunError>(())
//!     });
//! let pass = backstop.adopted_table(&invoices).run().await?;
//! println!("{} done, {} failed", pass.succeeded, pass.failed);
//! backstop.worker().table(invoices).start()?.until_ctrl_c().await;
//! # Ok(())
//! # }
//! ```
//!
//! A worker runs a pass over each table it is given by itself, every [`Table::every`]; of many
//! workers one does.

mod adopted_table;
mod catalogue;
mod check;
mod claim;
mod column_guess;
mod count;
mod dead_lettered;
mod expired;
mod handler;
mod link;
mod metrics;
#[cfg(feature = "mysql")]
mod mysql;
mod newest_first;
mod pass;
mod pass_work;
mod plan;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
mod schema;
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod status;
mod status_words;

pub use crate::database::{DatabaseSource, InvalidDatabase};
pub use adopted_table::{AdoptedTable, DueRow, TableError};
pub use backstop_core::table::date::DateFormat as Dates;
pub use backstop_core::table::{
    FailingPasses, FullStorage, InvalidTableRules, TableSurvey, UnburiedRows,
};
pub use check::{CheckedColumn, CheckedIndex, TableCheckReport};
pub use handler::{RowHandler, RowJobHandler, TableRow};
pub use pass::{FailedRow, PassProgress, PassReport};
pub(crate) use pass::{PassClock, PassRows};
pub use plan::PlanSummary;
pub use status::{AgeBand, RowInHand, TableStatus};
pub use status_words::{StatusWord, StatusWords};

use crate::address::{StoreAddress, StoreKind};
use backstop_core::limits::{
    TABLE_CONCURRENCY_MAX, TABLE_EVERY_MIN, TABLE_LEASE, TABLE_NAME_MAX, TABLE_RECORDS_MAX,
};
use backstop_core::retry::RetryPolicy;
use backstop_core::sweep::SqlDialect;
use backstop_core::table::TableRules;
use backstop_core::{QueueName, Span};
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;

/// The longest time between two looks of a worker at a table, so that what a killed runner had is
/// taken over soon.
pub(crate) const LOOK_INTERVAL_MAX: Span = Span::secs(2);

/// What the columns of a table are called. Names are looked up in the catalogue of the database, as
/// they are written or else with other capitals, and quoted: whatever they say, they are names.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColumnNames {
    /// The key of a row: a whole number, text, or a UUID.
    pub id: String,
    pub status: String,
    pub inserted: String,
    /// How often it failed. Not looked at where rows are tried by their age.
    pub failures: String,
    /// When it failed last. Not looked at where rows are tried by their age.
    pub last_failure: String,
}

impl Default for ColumnNames {
    fn default() -> Self {
        Self {
            id: "ID".to_owned(),
            status: "STATUS".to_owned(),
            inserted: "DATE_INSERTED".to_owned(),
            failures: "FAILURES".to_owned(),
            last_failure: "LAST_FAILURE".to_owned(),
        }
    }
}

/// The words of the status column. A row with any other is none of our business.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusValues {
    /// Of a row that was never tried.
    pub new: String,
    /// Of a row that failed.
    pub error: String,
    /// Of a row that is done.
    pub success: String,
}

impl Default for StatusValues {
    fn default() -> Self {
        Self {
            new: "NEW".to_owned(),
            error: "ERROR".to_owned(),
            success: "SUCCESS".to_owned(),
        }
    }
}

/// What becomes of a row that is never tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExpired {
    /// It stays as it is, listed and counted.
    #[default]
    Keep,
    /// It is copied to the dead letters as well, once: also if its letter is removed there before
    /// the row is here.
    Dead,
}

/// A table that somebody has, and how it is worked off. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    name: Arc<str>,
    source: DatabaseSource,
    /// Its name in its database.
    relation: Arc<str>,
    columns: Arc<ColumnNames>,
    states: Arc<StatusValues>,
    rules: Arc<TableRules>,
    max_records: usize,
    every: Span,
    concurrency: usize,
    timeout: Option<Span>,
    dates: Option<Dates>,
    on_expired: OnExpired,
    handler: Option<Arc<dyn RowHandler>>,
}

/// A table that cannot be adopted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTable {
    /// Its own name is wrong.
    #[error("`{0}` is not a name for a table here; use 1 to {TABLE_NAME_MAX} of A-Z a-z 0-9 . _ -")]
    Name(String),
    #[error("`url`: {0}")]
    Source(#[from] InvalidDatabase),
    /// Its strategy cannot be asked for in a query.
    #[error("`strategy`: {0}")]
    Rules(#[from] InvalidTableRules),
    /// Two states, or two columns, are the same.
    #[error("`{0}` are not all different; write a word of its own for each")]
    Alike(&'static str),
    /// A name in the database that is none.
    #[error("`{0}` is empty, or has a NUL in it; write the name as it is in the database")]
    NoName(&'static str),
    /// A number is out of its range.
    #[error("`{what}` must be from {least} to {most}")]
    Range {
        what: &'static str,
        /// The least it may be.
        least: String,
        /// The most it may be.
        most: String,
    },
}

impl Table {
    /// The table `table` of the database at `url`, called `name` here. With the usual settings: the
    /// columns and words of [`ColumnNames`] and [`StatusValues`], Fibonacci minutes up to a day,
    /// rows up to 30 days old, at most 100 a pass, every minute, eight at a time.
    pub fn new(name: &str, url: &str, table: &str) -> Result<Self, InvalidTable> {
        // The same letters as a queue's, so that the name can stand in a cell's, in a label and in
        // that of its dead letters' queue.
        if name.len() > TABLE_NAME_MAX || QueueName::new(name).is_err() {
            return Err(InvalidTable::Name(
                name.chars().take(TABLE_NAME_MAX).collect(),
            ));
        }
        Ok(Self {
            name: name.into(),
            source: DatabaseSource::new(url)?,
            relation: check_name("table", table)?.into(),
            columns: Arc::default(),
            states: Arc::default(),
            rules: Arc::new(TableRules::new(&default_strategy(), None)?),
            max_records: 100,
            every: Span::minutes(1),
            concurrency: 8,
            timeout: None,
            dates: None,
            on_expired: OnExpired::default(),
            handler: None,
        })
    }

    pub fn columns(mut self, columns: ColumnNames) -> Result<Self, InvalidTable> {
        let names = [
            ("columns.id", &columns.id),
            ("columns.status", &columns.status),
            ("columns.inserted", &columns.inserted),
            ("columns.failures", &columns.failures),
            ("columns.last_failure", &columns.last_failure),
        ];
        for (what, name) in names {
            check_name(what, name)?;
        }
        check_distinct("columns", &names.map(|(_, name)| name.as_str()))?;
        self.columns = Arc::new(columns);
        Ok(self)
    }

    pub fn states(mut self, states: StatusValues) -> Result<Self, InvalidTable> {
        let words = [&states.new, &states.error, &states.success];
        if words.iter().any(|word| word.contains('\0')) {
            return Err(InvalidTable::NoName("states"));
        }
        check_distinct("states", &words.map(String::as_str))?;
        self.states = Arc::new(states);
        Ok(self)
    }

    /// Tried again as this policy says: by age if it is progressive, by failures otherwise. A
    /// policy with `max_attempts` ends rows that failed so often, and every policy has three unless
    /// it says `unlimited`. Past `max_age` a row is expired; without one after the last band, or
    /// after 30 days.
    pub fn strategy(
        mut self,
        policy: &RetryPolicy,
        max_age: Option<Span>,
    ) -> Result<Self, InvalidTable> {
        self.rules = Arc::new(TableRules::new(policy, max_age)?);
        Ok(self)
    }

    /// One pass takes at most so many rows.
    pub fn max_records(mut self, max: usize) -> Result<Self, InvalidTable> {
        self.max_records = check_at_most("max_records", max, TABLE_RECORDS_MAX)?;
        Ok(self)
    }

    /// Workers run a pass this often, at multiples of it since 1970.
    pub fn every(mut self, every: Span) -> Result<Self, InvalidTable> {
        if every < TABLE_EVERY_MIN || every > Span::days(365) {
            let (least, most) = (TABLE_EVERY_MIN.to_string(), Span::days(365).to_string());
            return Err(InvalidTable::Range {
                what: "every",
                least,
                most,
            });
        }
        self.every = every;
        Ok(self)
    }

    /// One runner has at most so many handlers at work.
    pub fn concurrency(mut self, concurrency: usize) -> Result<Self, InvalidTable> {
        self.concurrency = check_at_most("concurrency", concurrency, TABLE_CONCURRENCY_MAX)?;
        Ok(self)
    }

    /// A handler that takes longer has failed. Without a limit a handler that hangs keeps its place
    /// for as long as its worker lives; other rows go on in the places that are free, and
    /// [`AdoptedTable::status`] tells of it.
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Span>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Its dates are in this form, whatever they look like.
    #[must_use]
    pub fn dates(mut self, dates: Option<Dates>) -> Self {
        self.dates = dates;
        self
    }

    /// What becomes of rows that are never tried again.
    #[must_use]
    pub fn on_expired(mut self, on_expired: OnExpired) -> Self {
        self.on_expired = on_expired;
        self
    }

    /// Its rows are handled by this. A closure from [`TableRow`] is the usual form; a command or a
    /// web service is a [`RowJobHandler`].
    #[must_use]
    pub fn handler(mut self, handler: impl RowHandler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name in its database, as somebody wrote it.
    pub fn table_name(&self) -> &str {
        &self.relation
    }

    pub const fn source(&self) -> &DatabaseSource {
        &self.source
    }

    /// What is wrong with a store for this table, if its runners are to be on more than one
    /// machine: who has which row is noted in the store, and a runner that does not see it runs the
    /// row as well. A database in a file has its runners on one machine anyway.
    pub fn unshared_store_warning(&self, store: &StoreAddress) -> Option<String> {
        let place = match store.kind()? {
            StoreKind::Memory => "in the memory of one process",
            StoreKind::Sqlite => "a file of this machine",
            StoreKind::Postgres | StoreKind::Redis => return None,
        };
        (self.source.dialect() != SqlDialect::Sqlite).then(|| {
            format!(
                "the table is on a server, and the store is {place}: runners that do not share it run every row once each; \
                 give all runners of the table one store, as in --store postgres://…"
            )
        })
    }

    /// When its rows are tried.
    pub fn rules(&self) -> &TableRules {
        &self.rules
    }

    /// How often workers run a pass.
    pub const fn period(&self) -> Span {
        self.every
    }

    /// The most rows of a pass.
    pub const fn records_max(&self) -> usize {
        self.max_records
    }

    /// Whether it has a handler.
    pub const fn is_handled(&self) -> bool {
        self.handler.is_some()
    }

    /// The longest time from the death of a runner to the next run of the rows it had, if a worker
    /// with this table lives: its lease, the look of a worker at what has ended, and what the
    /// stores may add.
    pub fn recovery_bound(&self) -> Span {
        TABLE_LEASE.plus(LOOK_INTERVAL_MAX).plus(Span::secs(1))
    }

    /// The queue in which its dead letters lie.
    pub fn dead_letter_queue(&self) -> QueueName {
        QueueName::new(&format!("tables.{}", self.name))
            .expect("a table's name has the letters of a queue's, and leaves room for the prefix")
    }

    /// The name of the cell that its runners share.
    fn cell(&self) -> String {
        format!("tables/{}/desk", self.name)
    }

    /// The name of a cell of rows that were copied to the dead letters.
    fn dead_lettered_cell(&self, number: usize) -> String {
        format!("tables/{}/buried/{number}", self.name)
    }
}

/// The strategy of a table that says nothing about it.
pub(crate) fn default_strategy() -> RetryPolicy {
    RetryPolicy::from_json(
        br#"{"kind":"fibonacci","unit":"1m","cap":"1d","max_attempts":"unlimited"}"#,
    )
    .expect("a policy")
}

fn check_name<'a>(what: &'static str, name: &'a str) -> Result<&'a str, InvalidTable> {
    if name.is_empty() || name.contains('\0') {
        Err(InvalidTable::NoName(what))
    } else {
        Ok(name)
    }
}

fn check_distinct(what: &'static str, names: &[&str]) -> Result<(), InvalidTable> {
    let is_repeated = |at: usize| {
        names[..at]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(names[at]))
    };
    if (0..names.len()).any(is_repeated) {
        Err(InvalidTable::Alike(what))
    } else {
        Ok(())
    }
}

fn check_at_most(what: &'static str, number: usize, most: usize) -> Result<usize, InvalidTable> {
    if (1..=most).contains(&number) {
        Ok(number)
    } else {
        Err(InvalidTable::Range {
            what,
            least: "1".to_owned(),
            most: most.to_string(),
        })
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Table");
        shown
            .field("name", &self.name)
            .field("source", &self.source)
            .field("table", &self.relation);
        shown
            .field("every", &self.every)
            .field("is_handled", &self.is_handled())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_other_machines_do_not_see_is_warned_about() {
        let check = |url: &str, store: &str, is_warned: bool| {
            let table = Table::new("t", url, "t").expect("a table");
            assert_eq!(
                table
                    .unshared_store_warning(&StoreAddress::new(store))
                    .is_some(),
                is_warned,
                "{url} {store}"
            );
        };
        for url in ["postgres://h/d", "mysql://h/d"] {
            check(url, "sqlite:backstop.db", true);
            check(url, "memory:", true);
            check(url, "postgres://h/d", false);
            check(url, "redis://h", false);
        }
        check("sqlite:app.db", "sqlite:backstop.db", false);
    }
}
