//! A Redis with a replica, and sentinels that watch over both.

use super::account::Account;
use super::process::{Launch, NotStarted, Process, on_a_free_port};
use super::redis::{Redis, Settings, answers, ask, is_in_step};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What the sentinels call the master they watch.
const MASTER_NAME: &str = "backstop";
/// As many as it takes for two to agree when one is gone.
const SENTINELS: usize = 3;
/// Sentinels that do not know each other, or a new master, by then never will.
const AGREE_TIME_MAX: Duration = Duration::from_mins(1);
/// Between two looks at them.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A master, a replica, three sentinels.
#[derive(Debug)]
pub struct Sentinel {
    master: Redis,
    replica: Redis,
    sentinels: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    addr: SocketAddr,
    /// Held for its drop.
    _process: Process,
}

impl Sentinel {
    /// Starts all of them, and returns when they know each other.
    pub fn start() -> Self {
        let at_once = ("repl-diskless-sync-delay", "0".to_owned());
        let master = Redis::start(Settings {
            options: vec![at_once],
            ..Settings::default()
        });
        let port = master.addr().port();
        let follow = ("replicaof", format!("127.0.0.1 {port}"));
        let replica = Redis::start(Settings {
            options: vec![follow],
            ..Settings::default()
        });
        let watcher = |_| on_a_free_port("a sentinel", |addr| Watcher::start_at(addr, port));
        let sentinel = Self {
            master,
            replica,
            sentinels: (0..SENTINELS).map(watcher).collect(),
        };
        sentinel.until(
            "they know each other, and the replica has all",
            |sentinel| {
                sentinel.sentinels.iter().all(Watcher::knows_all) && is_in_step(&sentinel.replica)
            },
        );
        sentinel
    }

    /// Their addresses and the name of the master.
    pub fn url(&self) -> String {
        let sentinels: Vec<String> = self
            .sentinels
            .iter()
            .map(|watcher| watcher.addr.to_string())
            .collect();
        format!("redis+sentinel://{}/{MASTER_NAME}", sentinels.join(","))
    }

    /// The sentinels' addresses.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|watcher| watcher.addr).collect()
    }

    /// What the sentinels call the master.
    pub fn master_name(&self) -> &'static str {
        MASTER_NAME
    }

    /// The node that was master at the start.
    pub fn master(&self) -> &Redis {
        &self.master
    }

    /// The node that was its replica.
    pub fn replica(&self) -> &Redis {
        &self.replica
    }

    /// Kills the first master with `kill -9`, and returns when the sentinels have made the replica
    /// master.
    pub fn fail_over(&self) {
        self.master.kill();
        let promoted = self.replica.addr().port().to_string();
        self.until("the replica is master", |sentinel| {
            sentinel
                .sentinels
                .iter()
                .all(|watcher| watcher.master().contains(&promoted))
                && sentinel
                    .replica
                    .ask(&["role"])
                    .is_some_and(|role| role.starts_with("master"))
        });
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + AGREE_TIME_MAX;
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "the sentinels: waited {AGREE_TIME_MAX:?} until {what}"
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Watcher {
    fn start_at(addr: SocketAddr, master: u16) -> Result<Self, NotStarted> {
        let account = Account::Own;
        let folder = account.folder()?;
        // A sentinel writes what it learns into its configuration.
        let file = folder.join("sentinel.conf");
        let configuration = format!(
            "port {}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor {MASTER_NAME} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER_NAME} 1000\n\
             sentinel failover-timeout {MASTER_NAME} 5000\n",
            addr.port(),
            folder.display(),
        );
        account.write(&file, configuration.as_bytes())?;
        let arguments = vec![file.display().to_string(), "--sentinel".to_owned()];
        let launch = Launch {
            account,
            folder,
            signal: "TERM",
            program: "redis-server",
            arguments,
        };
        let process = Process::start(launch, || answers(addr))?;
        Ok(Self {
            addr,
            _process: process,
        })
    }

    /// Whether it knows the replica and the other sentinels.
    fn knows_all(&self) -> bool {
        let known = ask(self.addr, &["sentinel", "master", MASTER_NAME]).unwrap_or_default();
        known.contains("num-slaves\n1\n") && known.contains("num-other-sentinels\n2\n")
    }

    /// The address of the master, as it knows it.
    fn master(&self) -> String {
        let words = ["sentinel", "get-master-addr-by-name", MASTER_NAME];
        ask(self.addr, &words).unwrap_or_default()
    }
}
