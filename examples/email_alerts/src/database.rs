//! The service's own connections to its tables: a few, kept open.

use crate::limits::{CONNECTIONS_MAX, STATEMENT_TIME_MAX};
use backstop::core::port::{StoreError, StoreResult};
use backstop::postgres::tokio_postgres::Client;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Database(Arc<Shared>);

struct Shared {
    url: String,
    idle: Mutex<Vec<Client>>,
    places: Arc<Semaphore>,
}

/// A connection, for as long as this lives.
pub struct Connection {
    client: Option<Client>,
    shared: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

impl Database {
    /// The database at an address, which the jobs are in as well.
    pub fn at(url: &str) -> Self {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self(Arc::new(Shared {
            url: url.to_owned(),
            idle: Mutex::default(),
            places,
        }))
    }

    /// A connection, when there is one.
    pub async fn connection(&self) -> StoreResult<Connection> {
        let place = Arc::clone(&self.0.places).acquire_owned().await;
        let place = place.expect("nobody closes the semaphore");
        let idle = self.idle();
        let client = match idle {
            Some(client) => client,
            None => connect(&self.0.url).await?,
        };
        Ok(Connection {
            client: Some(client),
            shared: Arc::clone(&self.0),
            _place: place,
        })
    }

    fn idle(&self) -> Option<Client> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|client| !client.is_closed());
        idle.pop()
    }
}

async fn connect(url: &str) -> StoreResult<Client> {
    let client = backstop::postgres::connect(url).await?;
    let limit_ms = STATEMENT_TIME_MAX.as_millis();
    let limits = format!(
        "SET statement_timeout = {limit_ms}; SET idle_in_transaction_session_timeout = {limit_ms}"
    );
    let set = client.batch_execute(&limits).await;
    set.map_err(|error| StoreError::unavailable("connecting", error))?;
    Ok(client)
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("only a drop takes it away")
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("only a drop takes it away")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().filter(|client| !client.is_closed()) {
            self.shared
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(client);
        }
    }
}
