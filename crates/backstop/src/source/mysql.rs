//! Connections to MySQL and MariaDB. Without TLS: a server elsewhere is reached by a tunnel.

use crate::address::Address;
use backstop_core::Span;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, ServerError};

/// The server stopped a statement at its time limit: MariaDB's number for it, and MySQL's.
const STOPPED: [u16; 2] = [1_969, 3_024];

/// A connection of one's own. A change counts the rows it found, also where it left them as they were.
pub(crate) async fn connect(address: &Address) -> mysql_async::Result<Conn> {
    let url = address.as_written();
    let url = url.strip_prefix("mariadb://").map_or_else(|| url.to_owned(), |rest| format!("mysql://{rest}"));
    let opts = OptsBuilder::from_opts(Opts::from_url(&url)?).client_found_rows(true);
    Conn::new(opts).await
}

/// Whether it is MariaDB: its words for some things are its own.
pub(crate) async fn is_mariadb(conn: &mut Conn) -> mysql_async::Result<bool> {
    let version: Option<String> = conn.query_first("SELECT VERSION()").await?;
    Ok(version.is_some_and(|version| version.contains("MariaDB")))
}

/// Each has its own word for it, and MariaDB counts in seconds.
pub(crate) fn time_limit(is_mariadb: bool, limit: Span) -> String {
    let millis = limit.as_millis().max(1);
    if is_mariadb {
        format!("SET SESSION max_statement_time = {}.{:03}", millis / 1_000, millis % 1_000)
    } else {
        format!("SET SESSION max_execution_time = {millis}")
    }
}

/// Whether the server stopped a statement at its time limit.
pub(crate) fn is_stopped(said: &ServerError) -> bool {
    STOPPED.contains(&said.code)
}
