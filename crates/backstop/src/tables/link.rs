//! A connection to the database of a table: statements go in, cells come out. What they mean is not
//! its business.

use super::TableError;
use super::catalogue::CatalogueLookup;
use super::row::SqlValue;
use crate::database::DatabaseSource;
use async_trait::async_trait;
use backstop_core::limits::TABLE_STATEMENT_MAX;
use backstop_core::sweep::SqlDialect;

/// What takes the place of a parameter.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum SqlParam {
    Whole(i128),
    Text(String),
    Bytes(Vec<u8>),
}

/// A statement with its parameters beside it: nothing of a row is ever in its text.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SqlStatement {
    pub(super) sql: String,
    pub(super) params: Vec<SqlParam>,
    /// Whether there is an index for every part of it. A database that is wrong about how many
    /// rows it leads to is to use it all the same.
    pub(super) is_indexed: bool,
}

/// What a transaction is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransactionMode {
    Reading,
    Writing,
}

/// What went wrong with a statement.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum TableLinkError {
    #[error("{0}")]
    Failed(String),
    /// Somebody else has locked what it wants, and does not let go in time.
    #[error("{0}")]
    Locked(String),
    #[error("stopped after {TABLE_STATEMENT_MAX}")]
    TooSlow,
}

/// A connection. Every call has a deadline.
#[async_trait]
pub(super) trait TableLink: Send {
    /// Begins a transaction; short, and never open while a handler runs.
    async fn begin(&mut self, mode: TransactionMode) -> Result<(), TableLinkError>;

    async fn commit(&mut self) -> Result<(), TableLinkError>;

    /// Ends a transaction without its changes. Where this fails the connection ends, and the
    /// transaction with it.
    async fn roll_back(&mut self);

    /// The rows that a statement gives.
    async fn rows(
        &mut self,
        statement: &SqlStatement,
    ) -> Result<Vec<Vec<SqlValue>>, TableLinkError>;

    /// Runs a statement of ours that has no parameters.
    async fn run(&mut self, sql: &str) -> Result<(), TableLinkError>;

    /// How many rows a statement found to change.
    async fn change(&mut self, statement: &SqlStatement) -> Result<u64, TableLinkError>;

    /// How the database would go about a statement, line by line.
    async fn plan(&mut self, statement: &SqlStatement) -> Result<Vec<String>, TableLinkError>;

    /// What the catalogue says about a table.
    async fn catalogue(&mut self, table: &str) -> Result<CatalogueLookup, TableLinkError>;

    fn product(&self) -> &'static str;

    /// What stands behind a query to lock its rows and leave out those that somebody else has
    /// locked.
    fn locking(&self) -> &'static str;
}

/// Connects to the database of a table.
pub(super) async fn connect(source: &DatabaseSource) -> Result<Box<dyn TableLink>, TableError> {
    let connected: Result<Box<dyn TableLink>, TableLinkError> = match source.dialect() {
        #[cfg(feature = "sqlite")]
        SqlDialect::Sqlite => super::sqlite::connect(source.address()).await,
        #[cfg(feature = "postgres")]
        SqlDialect::Postgres => super::postgres::connect(source.address()).await,
        #[cfg(feature = "mysql")]
        SqlDialect::Mysql => super::mysql::connect(source.address()).await,
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql")))]
        _ => Err(TableLinkError::Failed(
            "this program was built without the database".to_owned(),
        )),
    };
    connected.map_err(|error| TableError::of(source, &error))
}
