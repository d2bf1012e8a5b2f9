//! The demo's own application: a shop that loses one order in nine, and a table of invoices from
//! before there were queues.

use crate::error::CliError;
use backstop::rusqlite::{self, Connection};
use backstop::tables::TableRow;
use backstop::{Backstop, Run, RunError};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often an order is placed.
const ORDER_EVERY: Duration = Duration::from_millis(700);
/// How often an invoice is written.
const INVOICE_EVERY: Duration = Duration::from_secs(2);
/// How long it takes to fulfil an order, or to send an invoice.
const WORK: Duration = Duration::from_millis(120);
/// How long a statement waits for another writer.
const BUSY: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE orders (
  id INTEGER PRIMARY KEY,
  placed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  processed_at TEXT
);
CREATE TABLE BACKLOG (
  ID INTEGER PRIMARY KEY,
  CUSTOMER TEXT NOT NULL,
  AMOUNT_CENTS INTEGER NOT NULL,
  STATUS TEXT NOT NULL DEFAULT 'NEW',
  DATE_INSERTED TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  FAILURES INTEGER NOT NULL DEFAULT 0,
  LAST_FAILURE TEXT
);
CREATE INDEX backlog_by_failures ON BACKLOG (STATUS, FAILURES, LAST_FAILURE);
CREATE INDEX backlog_by_date ON BACKLOG (STATUS, DATE_INSERTED);
";

/// The application's database. Cheap to clone.
#[derive(Clone)]
pub(super) struct DemoShop(Arc<Mutex<Connection>>);

impl DemoShop {
    /// Makes it, in a file that is not there yet.
    pub(super) fn open(file: &Path) -> Result<Self, CliError> {
        let made = Connection::open(file).and_then(|connection| {
            connection.busy_timeout(BUSY)?;
            connection.execute_batch(SCHEMA)?;
            Ok(connection)
        });
        let failed = |error| {
            CliError::new(format!(
                "the demo's tables in {} cannot be made: {error}",
                file.display()
            ))
        };
        Ok(Self(Arc::new(Mutex::new(made.map_err(failed)?))))
    }

    /// Runs one statement off the runtime's threads; answers the last row it made.
    async fn write(
        &self,
        statement: &'static str,
        values: impl rusqlite::Params + Send + 'static,
    ) -> Result<i64, RunError> {
        let connection = Arc::clone(&self.0);
        let written = tokio::task::spawn_blocking(move || {
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            connection.execute(statement, values)?;
            Ok::<_, rusqlite::Error>(connection.last_insert_rowid())
        });
        let written = written
            .await
            .map_err(|error| RunError::retry(error.to_string()))?;
        written.map_err(|error| RunError::retry(format!("the shop's database: {error}")))
    }
}

/// Places orders for ever; the job of every ninth is lost before it is pushed, and left to the
/// sweep.
pub(super) async fn trade(backstop: Backstop, app: DemoShop) {
    let mut ticks = tokio::time::interval(ORDER_EVERY);
    loop {
        ticks.tick().await;
        let id = match app.write("INSERT INTO orders DEFAULT VALUES", ()).await {
            Ok(id) => id,
            Err(fail) => {
                tracing::warn!(?fail, "the demo's shop could not place an order");
                continue;
            }
        };
        if is_lost(id) {
            continue;
        }
        let draft = backstop
            .draft("orders")
            .kind("fulfil")
            .unique_key(&format!("order:{id}"));
        if let Err(error) = draft.json(&json!({ "id": id })).push().await {
            tracing::warn!(%error, "the demo could not push an order; its sweep will");
        }
    }
}

const fn is_lost(order: i64) -> bool {
    order % 9 == 4
}

/// Runs the job of an order. A few have no stock: their jobs die, and their rows stay unprocessed.
pub(super) async fn fulfil(app: DemoShop, run: Run) -> Result<(), RunError> {
    let payload: Value = serde_json::from_slice(run.payload())?;
    // A sweep fills in what the query found as text.
    let id = payload["id"]
        .as_i64()
        .or_else(|| payload["id"].as_str()?.parse().ok());
    let id = id.ok_or_else(|| RunError::dead("the payload names no order"))?;
    tokio::time::sleep(WORK).await;
    if id % 40 == 30 {
        return Err(RunError::retry(format!("no stock for order {id}")));
    }
    app.write(
        "UPDATE orders SET processed_at = CURRENT_TIMESTAMP WHERE id = ?1",
        [id],
    )
    .await
    .map(drop)
}

pub(super) async fn bill(app: DemoShop) {
    const CUSTOMERS: [&str; 4] = ["Ada & Co", "Bellamy", "Curie Labs", "Dijkstra BV"];
    let mut ticks = tokio::time::interval(INVOICE_EVERY);
    for number in 0_usize.. {
        ticks.tick().await;
        let customer = CUSTOMERS[number % CUSTOMERS.len()];
        let cents = 1_000 + (number * 733) % 90_000;
        let values = (customer, i64::try_from(cents).unwrap_or_default());
        let insert = "INSERT INTO BACKLOG (CUSTOMER, AMOUNT_CENTS) VALUES (?1, ?2)";
        if let Err(fail) = app.write(insert, values).await {
            tracing::warn!(?fail, "the demo could not write an invoice");
        }
    }
}

/// Sends one invoice: a third fails a few times, and one in ten for ever.
pub(super) async fn invoice(row: TableRow) -> Result<(), RunError> {
    tokio::time::sleep(WORK).await;
    let id = row.key.as_i64().unwrap_or_default();
    let tries = match id % 10 {
        9 => u32::MAX,
        0 | 3 | 6 => 4,
        _ => 0,
    };
    if row.attempt <= tries {
        return Err(RunError::retry("the mail server asked to try again later"));
    }
    Ok(())
}
