//! A row and its job, or neither: `cargo run -p backstop --example transaction`.
//!
//! The application keeps its tables and backstop's in one SQLite file, and enqueues inside its own
//! transaction.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use backstop::{Backstop, Run, RunError, Task};
use rusqlite::{Connection, TransactionBehavior};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct ShipOrder {
    order: i64,
}

impl Task for ShipOrder {
    const KIND: &'static str = "ship_order";
    const QUEUE: &'static str = "orders";
}

/// Writes an order and its job in one transaction.
fn place_order(
    backstop: &Backstop,
    db: &mut Connection,
    item: &str,
) -> Result<i64, Box<dyn std::error::Error>> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT INTO orders (item) VALUES (?)", [item])?;
    let order = transaction.last_insert_rowid();
    backstop
        .draft(ShipOrder::QUEUE)
        .task(&ShipOrder { order })
        .push_in(&transaction)?;
    if item.is_empty() {
        // Returning drops the transaction: neither the order nor its job ever existed.
        return Err("an order needs an item".into());
    }
    transaction.commit()?;
    Ok(order)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let backstop = Backstop::open(&format!("sqlite:{}", file.display())).await?;
    let mut db = Connection::open(&file)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")?;

    println!("order {}", place_order(&backstop, &mut db, "a teapot")?);
    if let Err(error) = place_order(&backstop, &mut db, "") {
        println!("refused: {error}");
    }

    let shipped = |task: ShipOrder, _: Run| async move {
        println!("shipping order {}", task.order);
        Ok::<(), RunError>(())
    };
    let progress = backstop.worker().handle(shipped).drain().await?;
    assert_eq!(progress.done, 1, "one committed order, one job");
    Ok(())
}
