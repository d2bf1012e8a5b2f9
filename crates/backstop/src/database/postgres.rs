//! Connections to a PostgreSQL server that holds rows of users', under the same rules as the
//! store's.

use crate::address::StoreAddress;
use backstop_core::port::StoreError;
use tokio_postgres::Client;

pub(crate) async fn connect(address: &StoreAddress) -> Result<Client, String> {
    backstop_postgres::connect(address.as_written())
        .await
        .map_err(|error| match error {
            // It is the database of the rows that is spoken of, not the store.
            StoreError::Unavailable { cause, .. } => {
                format!("the database cannot be reached: {cause}")
            }
            other => other.to_string(),
        })
}
