//! Adopted tables.

use super::read::ok;
use super::{Problem, ProblemShape};
use crate::App;
use crate::wire::table::{TableFailingShape, TableShape, TableStatusShape, TablesShape};
use axum::extract::State;
use axum::response::Response;
use backstop::config::TableConfig;
use futures_util::future::join_all;
use std::time::Duration;

/// How long counting the rows of a table may take. A large one without the suggested indexes takes
/// longer, and says so.
const COUNT_MAX: Duration = Duration::from_secs(10);

/// List the tables of the configuration, and how they stand. Counts their rows; one that cannot be
/// counted hides no other.
#[utoipa::path(
    get, path = "/tables", tag = "tables",
    responses(
        (status = 200, body = TablesShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(app): State<App>) -> Result<Response, Problem> {
    let config = app.config();
    let tables = join_all(config.tables.values().map(|table| read_table(&app, table))).await;
    Ok(ok(&TablesShape {
        tables: tables.into_iter().collect::<Result<_, _>>()?,
    }))
}

async fn read_table<'a>(app: &App, config: &'a TableConfig) -> Result<TableShape<'a>, Problem> {
    let (table, backstop) = (&config.table, app.backstop());
    let adopted = backstop.adopted_table(table);
    let failing = adopted.failing().await?;
    let status = tokio::time::timeout(COUNT_MAX, adopted.status(backstop.now())).await;
    let (status, error) = match status {
        Ok(Ok(status)) => (Some(TableStatusShape::new(&status, None)), None),
        Ok(Err(error)) => (None, Some(error.to_string())),
        Err(_) => (
            None,
            Some(format!(
                "its rows were not counted in {COUNT_MAX:?}; `backstop table check {}` says which index helps",
                table.name()
            )),
        ),
    };
    Ok(TableShape {
        name: table.name(),
        table: table.table_name(),
        every: table.period(),
        max_records: table.records_max(),
        status,
        error,
        failing: failing.as_ref().map(TableFailingShape::new),
    })
}
