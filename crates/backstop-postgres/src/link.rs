//! The way to the server: pooled connections, a deadline on everything, and a second try where one
//! may help.
//!
//! Calls of functions are prepared once a connection: the server parses and plans each of them
//! once, which is a quarter of what it does for a call with few jobs. Whatever goes through a
//! pooler that has no sessions, or is asked once, is sent without a name and brings its types
//! along: one round trip, and nothing of it stays in a session.

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

/// One try of one call. The server gives up a little before, so that nothing goes on that nobody
/// waits for.
pub(crate) const TRY_MAX: Duration = Duration::from_secs(5);
const SESSION: &str = "-c statement_timeout=4500 -c idle_in_transaction_session_timeout=60000 \
    -c default_transaction_isolation=read\\ committed";
/// All tries of one call: less than the library's own deadline.
const CALL_MAX: Duration = Duration::from_millis(9_500);
/// Time that is worth another try.
const TRY_MIN: Duration = Duration::from_secs(2);
/// A connection from nothing to ready. Shorter than a try: one that is made while nobody answers
/// does not use up what is left when somebody does.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The answer of a connection that was not used for a while, to nothing.
const TEST_TIME_MAX: Duration = Duration::from_secs(1);
const WAIT_FIRST: Duration = Duration::from_millis(20);
const WAIT_LAST: Duration = Duration::from_secs(1);

/// A parameter and its type.
pub(crate) type TypedParam<'a> = (&'a (dyn ToSql + Sync), Type);

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommitMode {
    Durable,
    /// It does not: what a crash takes back is done again.
    Quick,
}

/// The way to the server.
pub(crate) struct PostgresLink {
    pool: Pool,
    address: PostgresAddress,
    tls: Option<MakeRustlsConnect>,
    quoted_schema: String,
    /// Whether statements are kept in sessions. Not behind a pooler that changes them, said or
    /// found out.
    prepares: AtomicBool,
    dead_peers: Arc<DeadPeers>,
    lists: Semaphore,
}

impl PostgresLink {
    /// Prepares the way; nobody connects yet.
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
            // The one used last: the server's process behind it has everything at hand, and the
            // others may sleep.
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

    /// The right to ask for a list. Lists use half of the connections at most: workers and health
    /// checks never wait behind them.
    pub(crate) async fn list_turn(&self, doing: &'static str) -> StoreResult<SemaphorePermit<'_>> {
        let turn = timeout(CALL_MAX, self.lists.acquire()).await;
        let late = || StoreError::unavailable(doing, "too many lists are being read at once");
        turn.map_err(|_| late())?.map_err(|_| late())
    }

    /// Calls one of the store's own functions. All of them may be called again.
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

    /// The same, for those who can do something about what is in the way.
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

    /// Runs a statement that may be run again.
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
        // Whatever the server has answered, it is done with: the connection is as good as before,
        // unless what it keeps is not.
        if rows
            .as_ref()
            .err()
            .is_none_or(|error| error.as_db_error().is_some() && !is_outdated(error))
        {
            client.give_back();
        }
        rows.map_err(|error| CallFailure::of(doing, &error))
    }

    /// A connection from the pool, for a few statements that belong together.
    pub(crate) async fn client(&self, doing: &'static str) -> StoreResult<Object> {
        self.pool
            .get()
            .await
            .map_err(|error| pool_error(doing, &error))
    }

    /// A connection of one's own, and what the server says on it: somebody must read that for the
    /// connection to move.
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

/// Where a statement is kept once it was parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StatementLifetime {
    /// In the session, under a name, where sessions last.
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

/// What the server says on a connection.
pub(crate) type ServerMessages = BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>;

fn messages<S>(mut wire: Connection<Socket, S>) -> ServerMessages
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    stream::poll_fn(move |context| wire.poll_message(context)).boxed()
}

/// The text that calls a function.
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

/// Whether trying again at once makes sense.
pub(crate) enum CallFailure {
    Passing(StoreError),
    /// Somebody's transaction is in the way, and did not end in time.
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

/// Asks a connection that was not used for a while for a sign of life before a call is trusted to
/// it: one whose other end is gone would keep the call waiting for as long as a call may take.
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

/// A connection that goes back to the pool only if its call ended: one whose answer is still to
/// come would give it to the next call to wait for, and one that the server hangs on must not be
/// used again.
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
