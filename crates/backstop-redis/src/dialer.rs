//! Opens connections: to one server, to the master that sentinels name, or to a cluster.

use crate::link::{ANSWER_TIME_MAX, CONNECT_TIME_MAX};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::Mutex;

pub(crate) enum RedisDialer {
    Server(Client),
    Sentinel(Mutex<SentinelClient>),
    Cluster {
        client: ClusterClient,
        /// Some nodes of the cluster, for subscriptions: every node receives all published
        /// messages.
        nodes: Vec<Client>,
    },
}

/// A connection that many calls share.
#[derive(Clone)]
pub(crate) enum SharedConnection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl SharedConnection {
    /// Sends one command and returns its reply.
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(connection) => command.query_async(connection).await.map_err(alone),
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

/// Turns the MOVED or ASK of a server that was opened as a single server into a permanent error: a
/// retry cannot reach the other nodes of its cluster.
fn alone(error: RedisError) -> RedisError {
    use redis::ServerErrorKind::{Ask, Moved};
    match error.kind() {
        ErrorKind::Server(Moved | Ask) => {
            RedisError::from((ErrorKind::InvalidClientConfig, IN_A_CLUSTER))
        }
        _ => error,
    }
}

/// The advice for an address of a single server that is part of a cluster.
const IN_A_CLUSTER: &str = "this server is part of a cluster; write redis+cluster://HOST:PORT instead of redis://HOST:PORT";

impl RedisDialer {
    pub(crate) async fn connect(&self) -> RedisResult<SharedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIME_MAX))
            .set_response_timeout(Some(ANSWER_TIME_MAX));
        match self {
            Self::Server(client) => client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map(SharedConnection::Server),
            Self::Sentinel(client) => client
                .lock()
                .await
                .get_async_connection_with_config(&config)
                .await
                .map(SharedConnection::Server),
            Self::Cluster { client, .. } => client
                .get_async_connection()
                .await
                .map(SharedConnection::Cluster),
        }
    }

    /// Opens a connection for a subscription.
    pub(crate) async fn subscriber(&self) -> RedisResult<PubSub> {
        match self {
            Self::Server(client) => client.get_async_pubsub().await,
            Self::Sentinel(client) => {
                client
                    .lock()
                    .await
                    .async_get_client()
                    .await?
                    .get_async_pubsub()
                    .await
            }
            Self::Cluster { nodes, .. } => {
                let mut failure =
                    RedisError::from((ErrorKind::ClusterConnectionNotFound, "no node is known"));
                for node in nodes {
                    match node.get_async_pubsub().await {
                        Ok(subscriber) => return Ok(subscriber),
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
        }
    }
}
