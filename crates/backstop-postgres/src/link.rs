//! The connection to the server: a pool, a deadline on every call, and retries where they may help.
//!
//! Function calls use statements that are prepared once per connection: the server parses and plans
//! each of them once, which is a quarter of its work for a call with few jobs. Statements that go
//! through a pooler without sessions, or that run only once, are sent unnamed and with their
//! parameter types: this takes one round trip, and leaves nothing in a session.

use crate::address::{PoolerMode, PostgresAddress, PostgresOpenError};
use crate::dead_peer::{DeadPeers, PeerTrust};
use crate::error::{
    is_in_the_way, is_outdated, is_passing, is_unprepared, pool_error, store_error,
};
use crate::tls::connector;
use backstop_core::port::{StoreError, StoreResult};
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod,
    Runtime, TimeoutType, Timeouts,
};
use futures_util::stream::{self, BoxStream, StreamExt};
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Time limit of one try of a call. The server's `statement_timeout` ends a little before, so that
/// it does not work on a statement that no caller waits for.
pub(crate) const TRY_MAX: Duration = Duration::from_secs(5);
const SESSION: &str = "-c statement_timeout=4500 -c idle_in_transaction_session_timeout=60000 \
    -c default_transaction_isolation=read\\ committed";
/// Time limit of all tries of a call: less than the library's own deadline.
const CALL_MAX: Duration = Duration::from_millis(9_500);
/// The remaining time that is worth another try.
const TRY_MIN: Duration = Duration::from_secs(2);
/// Time limit of opening a connection. It is shorter than a try: a connection that is opened while
/// the server does not answer must not use up the time that is left when it does.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Time limit of the empty query that tests an idle connection.
const TEST_TIME_MAX: Duration = Duration::from_secs(1);
const WAIT_FIRST: Duration = Duration::from_millis(20);
const WAIT_LAST: Duration = Duration::from_secs(1);

/// A parameter and its PostgreSQL type.
pub(crate) type TypedParam<'a> = (&'a (dyn ToSql + Sync), Type);

/// Whether a commit waits for the disk (`synchronous_commit`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommitMode {
    Durable,
    /// It does not wait: what a crash undoes is done again.
    Quick,
}

/// The pool and the settings of all connections.
pub(crate) struct PostgresLink {
    pool: Pool,
    address: PostgresAddress,
    tls: Option<MakeRustlsConnect>,
    quoted_schema: String,
    /// Whether statements are prepared in sessions. False behind a pooler that changes sessions,
    /// whether the address names it or a failed statement revealed it.
    prepares: AtomicBool,
    dead_peers: Arc<DeadPeers>,
    lists: Semaphore,
}

impl PostgresLink {
    /// Builds the pool; it opens no connection yet.
    pub(crate) fn new(mut address: PostgresAddress) -> Result<Self, PostgresOpenError> {
        let tls = connector(&address)?;
        if address.pooler == PoolerMode::None && address.config.get_options().is_none() {
            address.config.options(SESSION);
        }
        let recycling_method = RecyclingMethod::Fast;
        let config = ManagerConfig { recycling_method };
        let manager = match tls.clone() {
            Some(tls) => Manager::from_config(address.config.clone(), tls, config),
            None => Manager::from_config(address.config.clone(), NoTls, config),
        };
        let dead_peers = Arc::<DeadPeers>::default();
        let patience = Some(TRY_MAX);
        let pool = Pool::builder(manager)
            .max_size(address.connections)
            // Reuse the connection that was used last: the server process behind it has warm
            // caches, and the others may stay idle.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: patience,
                create: Some(CONNECT_MAX),
                recycle: patience,
            })
            .pre_recycle(test_connection(Arc::clone(&dead_peers)))
            .build()
            .map_err(|error| PostgresOpenError::PostgresAddress(error.to_string()))?;
        let quoted_schema = format!("\"{}\"", address.schema);
        let prepares = AtomicBool::new(address.pooler == PoolerMode::None);
        let lists = Semaphore::new((address.connections / 2).max(1));
        Ok(Self {
            pool,
            address,
            tls,
            quoted_schema,
            prepares,
            dead_peers,
            lists,
        })
    }

    pub(crate) fn schema(&self) -> &str {
        &self.address.schema
    }

    pub(crate) fn pooler(&self) -> PoolerMode {
        self.address.pooler
    }

    pub(crate) fn connections(&self) -> usize {
        self.address.connections
    }

    /// Waits for permission to read a list. Lists use half of the connections at most, so that
    /// workers and health checks never wait behind them.
    pub(crate) async fn list_turn(&self, doing: &'static str) -> StoreResult<SemaphorePermit<'_>> {
        let turn = timeout(CALL_MAX, self.lists.acquire()).await;
        let late = || StoreError::unavailable(doing, "too many lists are being read at once");
        turn.map_err(|_| late())?.map_err(|_| late())
    }

    /// Calls one of the store's own functions. All of them are idempotent, so that a call may be
    /// tried again.
    pub(crate) async fn call(
        &self,
        doing: &'static str,
        commit: CommitMode,
        function: &str,
        params: &[TypedParam<'_>],
    ) -> StoreResult<Vec<Row>> {
        self.try_call(doing, commit, function, params)
            .await
            .map_err(CallFailure::into_error)
    }

    /// Like `call`, for callers that can react to a blocking lock.
    pub(crate) async fn try_call(
        &self,
        doing: &'static str,
        commit: CommitMode,
        function: &str,
        params: &[TypedParam<'_>],
    ) -> Result<Vec<Row>, CallFailure> {
        let sql = statement(&self.quoted_schema, commit, function, params.len());
        self.run(doing, &sql, params, StatementLifetime::InSession)
            .await
    }

    /// Runs a statement that may be tried again.
    pub(crate) async fn rows(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[TypedParam<'_>],
    ) -> StoreResult<Vec<Row>> {
        self.run(doing, sql, params, StatementLifetime::Nowhere)
            .await
            .map_err(CallFailure::into_error)
    }

    async fn run(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[TypedParam<'_>],
        lifetime: StatementLifetime,
    ) -> Result<Vec<Row>, CallFailure> {
        let (began, mut wait) = (Instant::now(), WAIT_FIRST);
        loop {
            let tried_at = Instant::now();
            let patience = TRY_MAX.min(CALL_MAX.saturating_sub(began.elapsed()));
            let failure = match timeout(patience, self.attempt(doing, sql, params, lifetime)).await
            {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(CallFailure::Passing(error))) => error,
                Ok(Err(failure)) => return Err(failure),
                Err(_) => {
                    self.dead_peers.note(tried_at.into_std());
                    StoreError::unavailable(doing, format!("no answer within {patience:?}"))
                }
            };
            let pause = wait.mul_f64(rand::rng().random_range(0.5..1.0));
            if began.elapsed() + pause + TRY_MIN > CALL_MAX {
                return Err(CallFailure::Passing(failure));
            }
            tracing::debug!(%failure, "trying again in {pause:?}");
            sleep(pause).await;
            wait = (wait * 2).min(WAIT_LAST);
        }
    }

    async fn attempt(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[TypedParam<'_>],
        lifetime: StatementLifetime,
    ) -> Result<Vec<Row>, CallFailure> {
        let client = ConnectionGuard(Some(
            self.pool
                .get()
                .await
                .map_err(|error| CallFailure::of_pool(doing, &error))?,
        ));
        let rows = match lifetime {
            StatementLifetime::InSession if self.prepares.load(Ordering::Relaxed) => {
                query_prepared(client.get(), sql, params).await
            }
            StatementLifetime::InSession | StatementLifetime::Nowhere => {
                client.get().query_typed(sql, params).await
            }
        };
        if rows.as_ref().is_err_and(is_unprepared) && self.prepares.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                "statements that were prepared are gone: a pooler seems to change sessions; say so with `pooler=transaction` in the store's address"
            );
        }
        // After any answer of the server the statement is finished and the connection can be
        // reused, unless its prepared statements are outdated.
        if rows
            .as_ref()
            .err()
            .is_none_or(|error| error.as_db_error().is_some() && !is_outdated(error))
        {
            client.give_back();
        }
        rows.map_err(|error| CallFailure::of(doing, &error))
    }

    /// Takes a connection from the pool, for a few statements that belong together.
    pub(crate) async fn client(&self, doing: &'static str) -> StoreResult<Object> {
        self.pool
            .get()
            .await
            .map_err(|error| pool_error(doing, &error))
    }

    /// Opens a connection outside of the pool, and returns it with the stream of the server's
    /// messages. The caller must poll that stream to drive the connection.
    pub(crate) async fn connect(
        &self,
        doing: &'static str,
    ) -> StoreResult<(Client, ServerMessages)> {
        let config = &self.address.config;
        let connecting = async {
            match self.tls.clone() {
                Some(tls) => config
                    .connect(tls)
                    .await
                    .map(|(client, wire)| (client, messages(wire))),
                None => config
                    .connect(NoTls)
                    .await
                    .map(|(client, wire)| (client, messages(wire))),
            }
        };
        match timeout(CONNECT_MAX, connecting).await {
            Ok(connected) => connected.map_err(|error| store_error(doing, &error)),
            Err(_) => Err(StoreError::unavailable(
                doing,
                format!("not connected within {CONNECT_MAX:?}"),
            )),
        }
    }
}

/// Where a statement is kept once it is parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StatementLifetime {
    /// In the session, as a prepared statement, where sessions last.
    InSession,
    Nowhere,
}

async fn query_prepared(
    client: &Object,
    sql: &str,
    params: &[TypedParam<'_>],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let types: Vec<Type> = params.iter().map(|(_, of)| of.clone()).collect();
    let statement = client.prepare_typed_cached(sql, &types).await?;
    let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
    client.query(&statement, &values).await
}

/// The stream of messages that the server sends on a connection.
pub(crate) type ServerMessages = BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>;

fn messages<S>(mut wire: Connection<Socket, S>) -> ServerMessages
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    stream::poll_fn(move |context| wire.poll_message(context)).boxed()
}

/// Builds the SQL that calls a function.
pub(crate) fn statement(
    quoted_schema: &str,
    commit: CommitMode,
    function: &str,
    params: usize,
) -> String {
    let places: Vec<String> = (1..=params).map(|place| format!("${place}")).collect();
    let call = format!("{quoted_schema}.{function}({})", places.join(", "));
    match commit {
        CommitMode::Durable => format!("SELECT * FROM {call}"),
        CommitMode::Quick => format!(
            "WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)) SELECT f.* FROM quick, {call} f"
        ),
    }
}

/// How a call failed: it decides whether another try makes sense.
pub(crate) enum CallFailure {
    Passing(StoreError),
    /// Another transaction holds a lock that this call needs, and did not end in time.
    InTheWay(StoreError),
    Lasting(StoreError),
}

impl CallFailure {
    fn of(doing: &'static str, error: &tokio_postgres::Error) -> Self {
        let store_failure = store_error(doing, error);
        if is_in_the_way(error) {
            Self::InTheWay(store_failure)
        } else if store_failure.is_transient() && is_passing(error) {
            Self::Passing(store_failure)
        } else {
            Self::Lasting(store_failure)
        }
    }

    fn of_pool(doing: &'static str, error: &PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::of(doing, error),
            PoolError::Timeout(TimeoutType::Create) => Self::Passing(pool_error(doing, error)),
            other => Self::Lasting(pool_error(doing, other)),
        }
    }

    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::Passing(error) | Self::InTheWay(error) | Self::Lasting(error) => error,
        }
    }
}

/// A hook of the pool that tests an idle connection before a call uses it. Without the test, a
/// connection whose peer is gone would delay the call for as long as a call may take.
fn test_connection(dead_peers: Arc<DeadPeers>) -> Hook {
    Hook::async_fn(move |client, metrics| {
        let dead_peers = Arc::clone(&dead_peers);
        let used_at = metrics.recycled.unwrap_or(metrics.created);
        Box::pin(async move {
            let tested_at = std::time::Instant::now();
            match dead_peers.judge(used_at, tested_at) {
                PeerTrust::Sound => return Ok(()),
                PeerTrust::Gone => {
                    return Err(HookError::message("it was in use when another fell silent"));
                }
                PeerTrust::Doubtful => {}
            }
            if let Ok(answered) = timeout(TEST_TIME_MAX, client.simple_query("")).await {
                answered.map(drop).map_err(HookError::Backend)
            } else {
                dead_peers.note(tested_at);
                Err(HookError::message("it fell silent"))
            }
        })
    })
}

/// A connection that returns to the pool only if its call has ended. If its answer is still to
/// come, the next call would wait for that answer; if the server hangs on it, it must not be used
/// again.
struct ConnectionGuard(Option<Object>);

impl ConnectionGuard {
    fn get(&self) -> &Object {
        self.0.as_ref().expect("given back only by value")
    }

    fn give_back(mut self) {
        self.0.take();
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
