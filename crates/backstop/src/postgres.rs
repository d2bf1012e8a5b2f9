//! Enqueueing inside your own transactions on PostgreSQL.
//!
//! ```no_run
//! use backstop::{Backstop, postgres};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let address = "postgres://shop@localhost/shop";
//! let backstop = Backstop::open(address).await?;
//!
//! let mut client = postgres::connect(address).await?; // or from your own pool of `postgres::tokio_postgres`
//! let transaction = client.transaction().await?;
//! let order: i64 = transaction.query_one("INSERT INTO orders DEFAULT VALUES RETURNING id", &[]).await?.get(0);
//! backstop.draft("orders").kind("ship").json(&order).push_in_postgres(&transaction).await?;
//! transaction.commit().await?; // the order and its job, or neither
//! # Ok(())
//! # }
//! ```
//!
//! From any other language, and from triggers: `SELECT backstop.enqueue('orders', 'ship',
//! '{"order":17}')`.

use crate::client::Backstop;
use backstop_core::NewJob;
use backstop_core::port::{EnqueueOutcome, StoreResult};

#[cfg(feature = "sqlx")]
pub use backstop_postgres::enqueue_in_sqlx;
pub use backstop_postgres::{
    EnqueueStatement, SCHEMA, connect, enqueue_in, enqueue_statement, schema_of,
};
/// The driver this is built with: a transaction to enqueue in must be of this version.
pub use tokio_postgres;

impl Backstop {
    /// Enqueues inside a transaction of your own, on your own connection to the database this store
    /// is in: the jobs come into being with your commit, or not at all.
    pub async fn enqueue_in_postgres(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        jobs: &[NewJob],
    ) -> StoreResult<Vec<EnqueueOutcome>> {
        let now = self.current_time().await;
        enqueue_in(transaction, self.location().schema()?, jobs, now).await
    }
}
