//! The way to Redis: one connection that all calls share, made when it is needed and made anew when
//! it fails, and a retry around every command. Every command of this store may be repeated, so that
//! a lost answer is just asked for again.

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

/// How long a connection may take to be made.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// How long an answer may take: longer than any script of ours runs.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);
/// How long one master of several may take to answer a question that all of them are asked.
const NODE_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a command is tried in all.
pub(crate) const CALL_TIME_MAX: Duration = Duration::from_secs(9);
/// The wait before a command is tried again: at first, and at most.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Of calls that are one for several queues of a cluster: after so long a part that failed is not
/// tried again. The others wait for it.
const PARALLEL_TIME_MAX: Duration = Duration::from_millis(500);
/// And after so long one that says nothing is not waited for: longer than a server that is there
/// takes, even when it is busy.
const PARALLEL_ANSWER_MAX: Duration = Duration::from_millis(2_500);
/// The least of it where a lease says how much time there is.
const WITHIN_MIN: Duration = Duration::from_millis(500);
/// Connections to a cluster of which a part is gone are made anew no more often.
const RENEW_PAUSE: Duration = Duration::from_secs(1);

/// How long somebody waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallPatience {
    /// As long as a call may take.
    Whole,
    /// Not long, in a cluster: others are there to be worked for.
    Parallel,
    /// The same, with leases of the others that last no longer for it: a small part of such a
    /// lease.
    Within(Span),
}

impl CallPatience {
    /// How long a failed try may be repeated, and how long the whole may take.
    fn times(self, is_cluster: bool) -> (Duration, Duration) {
        match self {
            Self::Parallel if is_cluster => (PARALLEL_TIME_MAX, PARALLEL_ANSWER_MAX),
            // Beats come every third of a lease, take two of these at most, and have to be through
            // before its last fifth.
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
    /// When a connection was made last.
    dialing: tokio::sync::Mutex<Option<Instant>>,
    turns: AtomicU64,
    /// The servers that were met, by their addresses: the id each draws when it starts.
    servers: Mutex<BTreeMap<String, String>>,
    /// Rings when a server was met that was not known: it restarted, or another took its place.
    pub(crate) replaced: Notify,
    pub(crate) replacements: AtomicU64,
    clock_offset_micros: AtomicI64,
    /// Rings when a part of a cluster did not answer somebody who cannot wait.
    failed: Notify,
}

/// A connection, and the how-many-th it is.
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

    /// What to add to this machine's clock to get the server's, as it was when they met.
    pub(crate) fn clock_offset_micros(&self) -> i64 {
        self.clock_offset_micros.load(Ordering::Relaxed)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.dial, RedisDialer::Cluster { .. })
    }

    /// Which servers were met last, as a number: another one if any of them is another.
    pub(crate) fn servers_met(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .hash(&mut hasher);
        hasher.finish()
    }

    /// One command, and its answer.
    pub(crate) async fn ask(&self, doing: &'static str, command: &Cmd) -> StoreResult<Value> {
        self.ask_within(doing, command, CallPatience::Whole).await
    }

    /// One command, and its answer if it comes in time.
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

    /// One script, and its answer.
    pub(crate) async fn run(&self, doing: &'static str, call: &ScriptCall) -> StoreResult<Value> {
        self.run_within(doing, call, CallPatience::Whole).await
    }

    /// One script, and its answer if it comes in time.
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

    /// One command to every master: its address, and its answer. Fails unless all of them answer.
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

    /// One command to every master: its address, and its answer if it gives one; at least one does.
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

    /// One command to the master at this address.
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

    /// Tries until it succeeds, cannot succeed, or time is up.
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
                // Silence is as much a reason to look where the masters are as a connection that
                // broke.
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
                // Whoever is beside others does not wait for that, too.
                CallPatience::Parallel | CallPatience::Within(_) => self.failed.notify_one(),
            }
        }
        answer
    }

    /// Makes connections anew where somebody met silence, as long as the store is there. Without
    /// anybody there to do so, whoever is asked next by a call that waits does it.
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

    /// Puts another connection in the place of one to a cluster that failed, unless that has just
    /// been done. Until there is one, whoever asks the parts of the cluster that are still there
    /// goes on with the old.
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

    /// Lets go of a connection that failed, unless it was replaced meanwhile.
    fn give_up(&self, turn: u64) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| live.turn == turn) {
            *live = None;
        }
    }

    /// Looks whether the same servers answer as before: a client that finds its way to another
    /// master by itself does not say so.
    pub(crate) async fn refresh_servers(&self) {
        let Some(live) = self.current() else { return };
        if let Err(error) = self.read_servers(live.wire).await {
            tracing::debug!(%error, "nobody says which servers there are");
        }
    }

    /// Learns who answers on a connection, and what time it is there.
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

/// Remembers the masters there are, and the ids of those that answered; whether one of them was not
/// there before. One that does not answer is taken to be the one it was.
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

/// A master and what it said.
type MasterReply = (String, RedisResult<Value>);

/// Asks every master by itself: one that is gone takes no other's answer with it.
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

/// The addresses of the masters in an answer to CLUSTER SLOTS.
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

/// The answers of those who gave one. What is refused is not the fault of a master that is gone.
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

/// A field of an INFO.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests;
