//! Plain connections to PostgreSQL.

use anyhow::{Context, Result};
use backstop::StoreAddress;
use backstop::postgres::tokio_postgres::Client;

/// Connects as the store would, but for the limit on the time of a statement: a table of a million
/// rows is dropped in one.
pub(in super::super) async fn connect(address: &StoreAddress) -> Result<Client> {
    let client = backstop::postgres::connect(address.as_written()).await?;
    client.batch_execute("SET statement_timeout = 0").await?;
    Ok(client)
}

/// Drops a schema of ours with all that is in it, if it is there.
pub(in super::super) async fn drop_schema(client: &Client, schema: &str) -> Result<()> {
    // Not told of the many things that go along, nor that there was nothing.
    let drop = format!("SET client_min_messages = warning; DROP SCHEMA IF EXISTS {schema} CASCADE");
    client
        .batch_execute(&drop)
        .await
        .with_context(|| format!("schema {schema} could not be dropped"))
}
