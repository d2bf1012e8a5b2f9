//! The connection to Redis. All calls share one connection, which is opened on first use and
//! replaced when it fails. Every command is retried: every command of this store may be repeated,
//! so a call whose reply was lost is just sent again.

use crate::dialer::{RedisDialer, SharedConnection};
use crate::error::{RedisErrorKind, kind, store_error};
use crate::reply;
use crate::script::ScriptCall;
use backstop_core::Span;
use backstop_core::port::{StoreError, StoreResult};
use futures_util::future::join_all;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The timeout for opening a connection.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// The timeout for a reply: longer than any script of ours runs.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);
/// The timeout for one master's reply to a command that goes to all masters.
const NODE_TIME_MAX: Duration = Duration::from_secs(2);
/// The timeout for a command with all its retries.
pub(crate) const CALL_TIME_MAX: Duration = Duration::from_secs(9);
/// The backoff before a command is retried: first and maximum.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Retry budget for one shard of a multi-shard call; the other shards' results wait for it.
const PARALLEL_TIME_MAX: Duration = Duration::from_millis(500);
/// Timeout for a silent shard of a multi-shard call: longer than a live server takes to reply, even
/// a busy one.
const PARALLEL_ANSWER_MAX: Duration = Duration::from_millis(2_500);
/// The minimum of that timeout when it is derived from a lease.
const WITHIN_MIN: Duration = Duration::from_millis(500);
/// The minimum time between two reconnects to a cluster of which a part is unreachable.
const RENEW_PAUSE: Duration = Duration::from_secs(1);

/// How long a caller waits for a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallPatience {
    /// As long as any call may take.
    Whole,
    /// In a cluster only a short time, because the caller also serves other shards.
    Parallel,
    /// As `Parallel`, for a caller whose leases on other shards keep running: at most a small
    /// fraction of that lease.
    Within(Span),
}

impl CallPatience {
    /// How long a failed try may be repeated, and how long the whole call may take.
    fn times(self, is_cluster: bool) -> (Duration, Duration) {
        match self {
            Self::Parallel if is_cluster => (PARALLEL_TIME_MAX, PARALLEL_ANSWER_MAX),
            // A worker sends a heartbeat every third of a lease. A heartbeat waits at most twice
            // this time and must finish before the last fifth of the lease.
            Self::Within(lease) if is_cluster => {
                let time =
                    Duration::from(lease.scaled(1.0 / 6.0)).clamp(WITHIN_MIN, ANSWER_TIME_MAX);
                (PARALLEL_TIME_MAX, time)
            }
            Self::Parallel | Self::Within(_) | Self::Whole => (CALL_TIME_MAX, CALL_TIME_MAX),
        }
    }
}

pub(crate) struct RedisLink {
    dial: RedisDialer,
    live: RwLock<Option<LiveConnection>>,
    /// When the last connection was opened.
    dialing: tokio::sync::Mutex<Option<Instant>>,
    turns: AtomicU64,
    /// The run id of each server, by address. A server draws its run id when it starts.
    servers: Mutex<BTreeMap<String, String>>,
    /// Notified when an unknown server was met: it restarted, or another one took its place.
    pub(crate) replaced: Notify,
    pub(crate) replacements: AtomicU64,
    clock_offset_micros: AtomicI64,
    /// Notified when a shard did not answer a caller that cannot wait.
    failed: Notify,
}

/// A connection and its generation number.
#[derive(Clone)]
struct LiveConnection {
    wire: SharedConnection,
    turn: u64,
}

impl RedisLink {
    pub(crate) fn new(dial: RedisDialer) -> Self {
        Self {
            dial,
            live: RwLock::new(None),
            dialing: tokio::sync::Mutex::new(None),
            turns: AtomicU64::new(0),
            servers: Mutex::new(BTreeMap::new()),
            replaced: Notify::new(),
            replacements: AtomicU64::new(0),
            clock_offset_micros: AtomicI64::new(0),
            failed: Notify::new(),
        }
    }

    pub(crate) fn dial(&self) -> &RedisDialer {
        &self.dial
    }

    /// How far the server's clock is ahead of ours, measured when we connected.
    pub(crate) fn clock_offset_micros(&self) -> i64 {
        self.clock_offset_micros.load(Ordering::Relaxed)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.dial, RedisDialer::Cluster { .. })
    }

    /// A hash of the run ids of all servers; it changes when a server is replaced.
    pub(crate) fn servers_met(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .hash(&mut hasher);
        hasher.finish()
    }

    /// Sends one command and returns its reply.
    pub(crate) async fn ask(&self, doing: &'static str, command: &Cmd) -> StoreResult<Value> {
        self.ask_within(doing, command, CallPatience::Whole).await
    }

    /// Sends one command and returns its reply, if that comes in time.
    pub(crate) async fn ask_within(
        &self,
        doing: &'static str,
        command: &Cmd,
        patience: CallPatience,
    ) -> StoreResult<Value> {
        self.call_with_retries(doing, patience, |mut wire| async move {
            wire.send(command).await
        })
        .await
    }

    /// Runs one script and returns its reply.
    pub(crate) async fn run(&self, doing: &'static str, call: &ScriptCall) -> StoreResult<Value> {
        self.run_within(doing, call, CallPatience::Whole).await
    }

    /// Runs one script and returns its reply, if that comes in time.
    pub(crate) async fn run_within(
        &self,
        doing: &'static str,
        call: &ScriptCall,
        patience: CallPatience,
    ) -> StoreResult<Value> {
        self.call_with_retries(doing, patience, |mut wire| async move {
            match wire.send(&call.command).await {
                Err(error) if kind(&error) == RedisErrorKind::NoScript => {
                    wire.send(&call.whole()).await
                }
                answer => answer,
            }
        })
        .await
    }

    /// Sends one command to every master; returns addresses and replies. Fails unless all of them
    /// reply.
    pub(crate) async fn ask_masters(
        &self,
        doing: &'static str,
        command: &Cmd,
    ) -> StoreResult<Vec<(String, Value)>> {
        self.call_with_retries(doing, CallPatience::Whole, |wire| async move {
            all_of(ask_masters(wire, command).await?)
        })
        .await
    }

    /// Sends one command to every master; returns addresses and replies. Fails unless at least one
    /// replies.
    pub(crate) async fn ask_reachable_masters(
        &self,
        doing: &'static str,
        command: &Cmd,
    ) -> StoreResult<Vec<(String, Option<Value>)>> {
        self.call_with_retries(doing, CallPatience::Whole, |wire| async move {
            reachable_of(ask_masters(wire, command).await?)
        })
        .await
    }

    /// Sends one command to the master at this address.
    pub(crate) async fn ask_at(
        &self,
        doing: &'static str,
        node: &str,
        command: &Cmd,
    ) -> StoreResult<Value> {
        self.call_with_retries(doing, CallPatience::Whole, |wire| {
            ask_node(wire, node, command)
        })
        .await
    }

    /// Retries until the call succeeds, cannot succeed, or its time is up.
    async fn call_with_retries<T, Trying>(
        &self,
        doing: &'static str,
        patience: CallPatience,
        attempt: impl Fn(SharedConnection) -> Trying,
    ) -> StoreResult<T>
    where
        Trying: Future<Output = RedisResult<T>>,
    {
        let began = Instant::now();
        let (trying, whole) = patience.times(self.is_cluster());
        let (last_try, deadline) = (began + trying, began + whole);
        let mut pause = PAUSE_FIRST;
        let mut failure = None;
        loop {
            let Ok(tried) = timeout_at(deadline, self.try_once(patience, &attempt)).await else {
                // A timeout, like a broken connection, is a reason to look for the masters again.
                self.failed.notify_one();
                return Err(
                    failure.unwrap_or_else(|| StoreError::unavailable(doing, "no answer in time"))
                );
            };
            let error = match tried {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let passes = matches!(
                kind(&error),
                RedisErrorKind::Connection | RedisErrorKind::Passing | RedisErrorKind::NoScript
            );
            let wait = pause.mul_f64(rand::random_range(0.5..1.0));
            if !passes || Instant::now() + wait >= last_try {
                return Err(store_error(doing, &error));
            }
            tracing::debug!(doing, %error, "trying Redis again");
            failure = Some(store_error(doing, &error));
            sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn try_once<T, Trying>(
        &self,
        patience: CallPatience,
        attempt: impl Fn(SharedConnection) -> Trying,
    ) -> RedisResult<T>
    where
        Trying: Future<Output = RedisResult<T>>,
    {
        let live = self.live().await?;
        let answer = attempt(live.wire).await;
        if answer.as_ref().is_err_and(|error| {
            matches!(
                kind(error),
                RedisErrorKind::Connection | RedisErrorKind::Stranger
            )
        }) {
            match patience {
                _ if !self.is_cluster() => self.give_up(live.turn),
                CallPatience::Whole => self.renew(live.turn).await,
                // A caller that also serves other shards does not wait for the reconnect.
                CallPatience::Parallel | CallPatience::Within(_) => self.failed.notify_one(),
            }
        }
        answer
    }

    /// Reconnects to a cluster whenever a caller reports silence; runs as long as the store exists.
    /// If this task is not running, the next call with `CallPatience::Whole` reconnects.
    pub(crate) async fn renew_when_failed(&self) {
        while self.is_cluster() {
            self.failed.notified().await;
            if let Some(live) = self.current() {
                self.renew(live.turn).await;
            }
        }
    }

    async fn live(&self) -> RedisResult<LiveConnection> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let mut dialed_at = self.dialing.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        self.connect(&mut dialed_at).await
    }

    async fn connect(&self, dialed_at: &mut Option<Instant>) -> RedisResult<LiveConnection> {
        *dialed_at = Some(Instant::now());
        // The client's own timeout does not cover every way in which a cluster can fail to answer.
        let wire = timeout(CONNECT_TIME_MAX * 2, self.dial.connect())
            .await
            .map_err(|_| too_slow())??;
        self.read_servers(wire.clone()).await?;
        let live = LiveConnection {
            wire,
            turn: self.turns.fetch_add(1, Ordering::Relaxed),
        };
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
        Ok(live)
    }

    /// Replaces a failed connection to a cluster, unless that was just done. Until the new
    /// connection exists, calls to the reachable parts of the cluster use the old one.
    async fn renew(&self, turn: u64) {
        let Ok(mut dialed_at) = self.dialing.try_lock() else {
            return;
        };
        let is_replaced = self.current().is_none_or(|live| live.turn != turn);
        if is_replaced || dialed_at.is_some_and(|at| at.elapsed() < RENEW_PAUSE) {
            return;
        }
        if let Err(error) = self.connect(&mut dialed_at).await {
            tracing::debug!(%error, "no other connection to the cluster");
        }
    }

    fn current(&self) -> Option<LiveConnection> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Drops a connection that failed, unless it was replaced meanwhile.
    fn give_up(&self, turn: u64) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| live.turn == turn) {
            *live = None;
        }
    }

    /// Checks whether the same servers answer as before. The cluster client follows a failover by
    /// itself and does not report it.
    pub(crate) async fn refresh_servers(&self) {
        let Some(live) = self.current() else { return };
        if let Err(error) = self.read_servers(live.wire).await {
            tracing::debug!(%error, "nobody says which servers there are");
        }
    }

    /// Reads the servers' run ids and clock over a connection.
    async fn read_servers(&self, mut wire: SharedConnection) -> RedisResult<()> {
        let time = wire.send(&redis::cmd("TIME")).await?;
        if let Some(server) = time_micros(time) {
            self.clock_offset_micros
                .store(server - machine_micros(), Ordering::Relaxed);
        }
        let replies = reachable_of(ask_masters(wire, redis::cmd("INFO").arg("server")).await?)?;
        let met = replies.into_iter().map(|(node, info)| {
            let info = info.and_then(reply::text);
            (
                node,
                info.and_then(|info| field(&info, "run_id").map(str::to_owned)),
            )
        });
        let mut known = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if record_servers(&mut known, met.collect()) {
            self.replaced.notify_one();
            self.replacements.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// Stores the run ids of the masters that replied; returns whether a new master was met. A master
/// that did not reply keeps its run id.
fn record_servers(
    known: &mut BTreeMap<String, String>,
    met: BTreeMap<String, Option<String>>,
) -> bool {
    let are_first = known.is_empty();
    let is_new = |id: &String| !known.values().any(|known| known == id);
    let is_any_new = met.values().flatten().any(is_new);
    known.retain(|node, _| met.contains_key(node));
    known.extend(met.into_iter().filter_map(|(node, id)| Some((node, id?))));
    is_any_new && !are_first
}

/// The address of a master, and its reply.
type MasterReply = (String, RedisResult<Value>);

/// Asks every master separately, so that an unreachable one does not spoil the replies of the
/// others.
async fn ask_masters(wire: SharedConnection, command: &Cmd) -> RedisResult<Vec<MasterReply>> {
    let SharedConnection::Cluster(mut connection) = wire.clone() else {
        let answer = wire.clone().send(command).await?;
        return Ok(vec![("server".to_owned(), Ok(answer))]);
    };
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    let slots = connection.route_command(slots, anywhere).await?;
    let masters = masters(slots).ok_or((
        ErrorKind::ClusterConnectionNotFound,
        "no address of a master",
    ))?;
    let requests = masters.into_iter().map(|node| {
        let wire = wire.clone();
        async move {
            let answer = timeout(NODE_TIME_MAX, ask_node(wire, &node, command)).await;
            let answer = answer.unwrap_or_else(|_| Err(too_slow()));
            (node, answer)
        }
    });
    Ok(join_all(requests).await)
}

/// The addresses of the masters in a reply to CLUSTER SLOTS.
fn masters(slots: Value) -> Option<BTreeSet<String>> {
    let master = |range: Value| {
        let mut node = reply::list(reply::list(range)?.into_iter().nth(2)?)?.into_iter();
        let host = reply::text(node.next()?).filter(|host| !host.is_empty())?;
        Some(format!("{host}:{}", reply::whole(node.next()?)?))
    };
    reply::list(slots)?.into_iter().map(master).collect()
}

fn all_of(replies: Vec<MasterReply>) -> RedisResult<Vec<(String, Value)>> {
    replies
        .into_iter()
        .map(|(node, answer)| answer.map(|answer| (node, answer)))
        .collect()
}

/// Replaces the errors of unreachable masters by `None`. A refusal is still an error, because it
/// has another cause than an unreachable master.
fn reachable_of(replies: Vec<MasterReply>) -> RedisResult<Vec<(String, Option<Value>)>> {
    let (mut there, mut failure) = (Vec::with_capacity(replies.len()), None);
    for (node, answer) in replies {
        match answer {
            Ok(answer) => there.push((node, Some(answer))),
            Err(error)
                if matches!(
                    kind(&error),
                    RedisErrorKind::Connection | RedisErrorKind::Passing
                ) =>
            {
                there.push((node, None));
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match failure {
        Some(error) if there.iter().all(|(_, answer)| answer.is_none()) => Err(error),
        _ => Ok(there),
    }
}

async fn ask_node(mut wire: SharedConnection, node: &str, command: &Cmd) -> RedisResult<Value> {
    match &mut wire {
        SharedConnection::Server(_) => wire.send(command).await,
        SharedConnection::Cluster(connection) => {
            let (host, port) = node.rsplit_once(':').unwrap_or((node, ""));
            let port = port.parse().unwrap_or_default();
            let at = SingleNodeRoutingInfo::ByAddress {
                host: host.to_owned(),
                port,
            };
            connection
                .route_command(command.clone(), RoutingInfo::SingleNode(at))
                .await
        }
    }
}

fn too_slow() -> RedisError {
    RedisError::from((ErrorKind::Io, "no connection in time"))
}

/// Microseconds since 1970 by this machine's clock.
pub(crate) fn machine_micros() -> i64 {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn time_micros(answer: Value) -> Option<i64> {
    let mut parts = reply::list(answer)?.into_iter().map(reply::whole);
    Some(parts.next()?? * 1_000_000 + parts.next()??)
}

/// The value of a field in an INFO reply.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests;
