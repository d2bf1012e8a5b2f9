//! The way to Redis: one connection that all calls share, made when it is needed and made anew when it fails, and a
//! retry around every command. Every command of this store may be repeated, so that a lost answer is just asked for
//! again.

use crate::dial::{Dial, Wire};
use crate::error::{Kind, kind, store_error};
use crate::reply;
use crate::script::ScriptCall;
use backstop_core::port::{Answer, StoreError};
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long a connection may take to be made.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// How long an answer may take: longer than any script of ours runs.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);
/// How long a command is tried in all.
pub(crate) const CALL_TIME_MAX: Duration = Duration::from_secs(9);
/// The wait before a command is tried again: at first, and at most.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The way to Redis.
pub(crate) struct Link {
    dial: Dial,
    live: RwLock<Option<Live>>,
    dialing: tokio::sync::Mutex<()>,
    turns: AtomicU64,
    /// The servers that were met last, by the id each draws when it starts.
    servers: Mutex<BTreeSet<String>>,
    /// Rings when a server was met that was not known: it restarted, or another took its place.
    pub(crate) replaced: Notify,
    /// How often that happened.
    pub(crate) replacements: AtomicU64,
    clock_offset_micros: AtomicI64,
}

/// A connection, and the how-many-th it is.
#[derive(Clone)]
struct Live {
    wire: Wire,
    turn: u64,
}

impl Link {
    pub(crate) fn new(dial: Dial) -> Self {
        Self {
            dial,
            live: RwLock::new(None),
            dialing: tokio::sync::Mutex::new(()),
            turns: AtomicU64::new(0),
            servers: Mutex::new(BTreeSet::new()),
            replaced: Notify::new(),
            replacements: AtomicU64::new(0),
            clock_offset_micros: AtomicI64::new(0),
        }
    }

    /// How subscriptions are made.
    pub(crate) fn dial(&self) -> &Dial {
        &self.dial
    }

    /// What to add to this machine's clock to get the server's, as it was when they met.
    pub(crate) fn clock_offset_micros(&self) -> i64 {
        self.clock_offset_micros.load(Ordering::Relaxed)
    }

    /// One command, and its answer.
    pub(crate) async fn ask(&self, doing: &'static str, command: &Cmd) -> Answer<Value> {
        self.persist(doing, |mut wire| async move { wire.send(command).await }).await
    }

    /// One script, and its answer.
    pub(crate) async fn run(&self, doing: &'static str, call: &ScriptCall) -> Answer<Value> {
        self.persist(doing, |mut wire| async move {
            match wire.send(&call.command).await {
                Err(error) if kind(&error) == Kind::NoScript => wire.send(&call.whole()).await,
                answer => answer,
            }
        })
        .await
    }

    /// One command to every master: its address, and its answer.
    pub(crate) async fn ask_masters(
        &self,
        doing: &'static str,
        command: &Cmd,
    ) -> Answer<Vec<(String, Value)>> {
        let answers = self.persist(doing, |wire| async move { ask_masters(wire, command).await }).await?;
        let Value::Map(answers) = answers else { return Err(crate::error::strange(doing)) };
        Ok(answers.into_iter().filter_map(|(node, answer)| Some((reply::text(node)?, answer))).collect())
    }

    /// One command to the master at this address.
    pub(crate) async fn ask_at(&self, doing: &'static str, node: &str, command: &Cmd) -> Answer<Value> {
        self.persist(doing, |wire| async move {
            match wire {
                Wire::Server(_) => wire.clone().send(command).await,
                Wire::Cluster(mut connection) => {
                    let (host, port) = node.rsplit_once(':').unwrap_or((node, ""));
                    let port = port.parse().unwrap_or_default();
                    let at = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
                    connection.route_command(command.clone(), RoutingInfo::SingleNode(at)).await
                }
            }
        })
        .await
    }

    /// Tries until it succeeds, cannot succeed, or time is up.
    async fn persist<Trying>(&self, doing: &'static str, attempt: impl Fn(Wire) -> Trying) -> Answer<Value>
    where
        Trying: Future<Output = RedisResult<Value>>,
    {
        let deadline = Instant::now() + CALL_TIME_MAX;
        let mut pause = PAUSE_FIRST;
        let mut failure = None;
        loop {
            let Ok(tried) = timeout_at(deadline, self.try_once(&attempt)).await else {
                return Err(failure.unwrap_or_else(|| StoreError::unavailable(doing, "no answer in time")));
            };
            let error = match tried {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let passes = matches!(kind(&error), Kind::Connection | Kind::Passing | Kind::NoScript);
            let wait = pause.mul_f64(rand::random_range(0.5..1.0));
            if !passes || Instant::now() + wait >= deadline {
                return Err(store_error(doing, &error));
            }
            tracing::debug!(doing, %error, "trying Redis again");
            failure = Some(store_error(doing, &error));
            sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn try_once<Trying>(&self, attempt: impl Fn(Wire) -> Trying) -> RedisResult<Value>
    where
        Trying: Future<Output = RedisResult<Value>>,
    {
        let live = self.live().await?;
        let answer = attempt(live.wire).await;
        if answer.as_ref().is_err_and(|error| kind(error) == Kind::Connection) {
            self.give_up(live.turn);
        }
        answer
    }

    async fn live(&self) -> RedisResult<Live> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let _alone = self.dialing.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        // The client's own timeout does not cover every way in which a cluster can fail to answer.
        let wire = timeout(CONNECT_TIME_MAX * 2, self.dial.connect()).await.map_err(|_| too_slow())??;
        self.meet(wire.clone()).await?;
        let live = Live { wire, turn: self.turns.fetch_add(1, Ordering::Relaxed) };
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
        Ok(live)
    }

    fn current(&self) -> Option<Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets go of a connection that failed, unless it was replaced meanwhile.
    fn give_up(&self, turn: u64) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| live.turn == turn) {
            *live = None;
        }
    }

    /// Learns who answers on a new connection, and what time it is there.
    async fn meet(&self, mut wire: Wire) -> RedisResult<()> {
        let time = wire.send(&redis::cmd("TIME")).await?;
        if let Some(server) = time_micros(time) {
            self.clock_offset_micros.store(server - machine_micros(), Ordering::Relaxed);
        }
        let Value::Map(answers) = ask_masters(wire, redis::cmd("INFO").arg("server")).await? else {
            return Ok(());
        };
        let texts = answers.into_iter().filter_map(|(_, info)| reply::text(info));
        let met: BTreeSet<String> =
            texts.filter_map(|info| field(&info, "run_id").map(str::to_owned)).collect();
        let mut known = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.is_empty() && !met.is_subset(&known) {
            self.replaced.notify_one();
            self.replacements.fetch_add(1, Ordering::AcqRel);
        }
        *known = met;
        Ok(())
    }
}

async fn ask_masters(wire: Wire, command: &Cmd) -> RedisResult<Value> {
    match wire {
        Wire::Server(_) => {
            let answer = wire.clone().send(command).await?;
            Ok(Value::Map(vec![(Value::SimpleString("server".to_owned()), answer)]))
        }
        Wire::Cluster(mut connection) => {
            let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            connection.route_command(command.clone(), everywhere).await
        }
    }
}

fn too_slow() -> RedisError {
    RedisError::from((ErrorKind::Io, "no connection in time"))
}

/// Microseconds since 1970 by this machine's clock.
pub(crate) fn machine_micros() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}

/// The answer to TIME.
pub(crate) fn time_micros(answer: Value) -> Option<i64> {
    let mut parts = reply::list(answer)?.into_iter().map(reply::whole);
    Some(parts.next()?? * 1_000_000 + parts.next()??)
}

/// A field of an INFO.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
