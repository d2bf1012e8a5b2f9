//! Databases of users', one of each kind: tables in them, and statements on them.

use backstop::rusqlite::Connection;
use backstop_testkit::servers::{mariadb, postgres};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// A database of a user's.
pub(crate) enum Database {
    /// SQLite's, in a folder.
    Sqlite(TempDir),
    /// PostgreSQL's, in a schema.
    Postgres(String),
    /// MariaDB's, at an address.
    Mariadb(String),
}

impl Database {
    /// One of each kind, empty.
    pub(crate) fn all() -> Vec<Self> {
        let schema = format!("u{}", unique());
        postgres().sql(&format!(
            "CREATE SCHEMA {schema}; GRANT ALL ON SCHEMA {schema} TO backstop"
        ));
        vec![
            Self::Sqlite(TempDir::new().expect("a folder")),
            Self::Postgres(schema),
            Self::Mariadb(mariadb().fresh_url()),
        ]
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("app.db").display()),
            Self::Postgres(schema) => {
                format!("{}?options=-c%20search_path%3D{schema}", postgres().url())
            }
            Self::Mariadb(url) => url.clone(),
        }
    }

    /// Runs statements, and returns what they give where that is text.
    pub(crate) fn sql(&self, statements: &str) -> String {
        match self {
            Self::Sqlite(folder) => {
                let db = Connection::open(folder.path().join("app.db")).expect("a database");
                db.execute_batch(statements).expect(statements);
                String::new()
            }
            Self::Postgres(schema) => postgres().sql(&format!(
                "SET ROLE backstop; SET search_path = {schema}; SET TimeZone = 'UTC'; {statements}"
            )),
            Self::Mariadb(url) => {
                mariadb().sql_in(url, &format!("SET time_zone = '+00:00'; {statements}"))
            }
        }
    }

    /// How many rows a table has.
    pub(crate) fn count(&self, table: &str) -> usize {
        let counted = match self {
            Self::Sqlite(folder) => {
                let db = Connection::open(folder.path().join("app.db")).expect("a database");
                let count = |row: &backstop::rusqlite::Row<'_>| row.get::<_, i64>(0);
                db.query_row(&format!("SELECT count(*) FROM {table}"), [], count)
                    .expect("a count")
                    .to_string()
            }
            _ => self.sql(&format!("SELECT count(*) FROM {table}")),
        };
        counted.trim().parse().expect("a number")
    }

    /// The words that differ.
    pub(crate) fn dialect<'a>(
        &self,
        sqlite: &'a str,
        postgres: &'a str,
        mariadb: &'a str,
    ) -> &'a str {
        match self {
            Self::Sqlite(_) => sqlite,
            Self::Postgres(_) => postgres,
            Self::Mariadb(_) => mariadb,
        }
    }
}

/// A name that no other test of this process has.
fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
