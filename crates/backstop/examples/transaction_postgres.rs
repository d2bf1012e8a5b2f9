//! A row and its job, or neither, on PostgreSQL: `cargo run -p backstop --features postgres
//! --example transaction_postgres -- postgres://USER@HOST/DATABASE`.
//!
//! The application keeps its tables and backstop's in one database, and enqueues inside its own
//! transaction.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use backstop::postgres::tokio_postgres::Client;
use backstop::{Backstop, Run, RunError, Task};
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
async fn place_order(
    backstop: &Backstop,
    db: &mut Client,
    item: &str,
) -> Result<i64, Box<dyn std::error::Error>> {
    let transaction = db.transaction().await?;
    let insert = "INSERT INTO example_orders (item) VALUES ($1) RETURNING id";
    let order = transaction.query_one(insert, &[&item]).await?.try_get(0)?;
    backstop
        .draft(ShipOrder::QUEUE)
        .task(&ShipOrder { order })
        .push_in_postgres(&transaction)
        .await?;
    if item.is_empty() {
        // Returning drops the transaction: neither the order nor its job ever existed.
        return Err("an order needs an item".into());
    }
    transaction.commit().await?;
    Ok(order)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args()
        .nth(1)
        .ok_or("which database? postgres://USER@HOST/DATABASE")?;
    let backstop = Backstop::open(&address).await?;
    let mut db = backstop::postgres::connect(&address).await?;
    db.batch_execute("CREATE TEMPORARY TABLE example_orders (id bigserial, item text NOT NULL)")
        .await?;

    println!(
        "order {}",
        place_order(&backstop, &mut db, "a teapot").await?
    );
    if let Err(error) = place_order(&backstop, &mut db, "").await {
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
