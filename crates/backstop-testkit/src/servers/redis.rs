//! A Redis of its own.

use super::account::Account;
use super::process::{Launch, NotStarted, Process, on_a_free_port, running};
use super::{program, unique_name};
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long a replica may take; it tells once a second how far it is.
const REPLICATED_TIME_MAX: Duration = Duration::from_secs(30);

/// How a Redis is started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// What an answered write survives.
    pub append: Append,
    /// More options, as its configuration file has them: `("maxmemory-policy", "allkeys-lru")`.
    pub options: Vec<(&'static str, String)>,
}

/// When its log of writes is brought to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Append {
    /// There is none.
    Off,
    /// Once a second.
    #[default]
    EverySecond,
    /// Before a write is answered.
    Always,
}

/// A Redis on a port of its own.
#[derive(Debug)]
pub struct Redis {
    addr: SocketAddr,
    process: Process,
}

impl Redis {
    /// Starts one.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "settings are written where they are passed"
    )]
    pub fn start(settings: Settings) -> Self {
        on_a_free_port("Redis", |addr| Self::start_at(addr, &settings))
    }

    pub(super) fn start_at(addr: SocketAddr, settings: &Settings) -> Result<Self, NotStarted> {
        let account = Account::Own;
        let folder = account.folder()?;
        let mut arguments = arguments(addr, settings.append);
        arguments.extend(["--dir".to_owned(), folder.display().to_string()]);
        for (option, value) in &settings.options {
            arguments.push(format!("--{option}"));
            // Before version 7 a value of several words is several arguments.
            arguments.extend(value.split(' ').map(ToOwned::to_owned));
        }
        let launch = Launch {
            account,
            folder,
            signal: "TERM",
            program: "redis-server",
            arguments,
        };
        Ok(Self {
            addr,
            process: Process::start(launch, || answers(addr))?,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// An address with a prefix for keys that nobody else has.
    pub fn fresh_url(&self) -> String {
        self.fresh_url_at(self.addr)
    }

    /// As [`Redis::fresh_url`], by way of a proxy.
    pub fn fresh_url_at(&self, addr: SocketAddr) -> String {
        format!("redis://{addr}?prefix={}", unique_name())
    }

    /// What `redis-cli` prints for a command.
    pub fn cli(&self, words: &[&str]) -> String {
        running("redis-cli", cli(self.addr, words))
    }

    /// As [`Redis::cli`]; `None` if it does not answer.
    pub(super) fn ask(&self, words: &[&str]) -> Option<String> {
        ask(self.addr, words)
    }

    /// Returns when a replica has all that was written until now, by whomever: `WAIT` knows only of
    /// writes of its own connection.
    pub fn until_replicated(&self) {
        let deadline = Instant::now() + REPLICATED_TIME_MAX;
        let written = number(&self.cli(&["info", "replication"]), "master_repl_offset:");
        while number(&self.cli(&["info", "replication"]), ",offset=") < written {
            assert!(
                Instant::now() < deadline,
                "no replica of {} has come to {written:?}",
                self.addr
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops it in good order.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Ends it with `kill -9`.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Stops it, unless it is stopped or killed, and starts it again. Returns when it answers.
    pub fn restart(&self) {
        self.process.stop();
        running("Redis", self.process.start_again(|| answers(self.addr)));
    }
}

/// The number behind a name where it is told first.
fn number(told: &str, name: &str) -> Option<u64> {
    let (_, rest) = told.split_once(name)?;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

fn arguments(addr: SocketAddr, append: Append) -> Vec<String> {
    let (on, when) = match append {
        Append::Off => ("no", "no"),
        Append::EverySecond => ("yes", "everysec"),
        Append::Always => ("yes", "always"),
    };
    let port = addr.port().to_string();
    let words = [
        ["--bind", "127.0.0.1"],
        ["--port", &port],
        ["--save", ""],
        ["--appendonly", on],
        ["--appendfsync", when],
        ["--maxmemory-policy", "noeviction"],
    ];
    words.concat().into_iter().map(ToOwned::to_owned).collect()
}

/// What `redis-cli` prints for a command to the server there; `None` if it does not answer.
pub(super) fn ask(addr: SocketAddr, words: &[&str]) -> Option<String> {
    cli(addr, words).ok()
}

/// Whether it answers and has loaded what it keeps.
pub(super) fn answers(addr: SocketAddr) -> bool {
    cli(addr, &["ping"]).is_ok_and(|answer| answer.trim() == "PONG")
}

/// Whether a node has all that its master has; a master has.
pub(super) fn is_in_step(node: &Redis) -> bool {
    let is = |info: &str| info.contains("role:master") || info.contains("master_link_status:up");
    node.ask(&["info", "replication"])
        .is_some_and(|info| is(&info))
}

fn cli(addr: SocketAddr, words: &[&str]) -> Result<String, NotStarted> {
    let mut command = Command::new(program::find("redis-cli")?);
    command
        .args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()])
        .args(words);
    program::output(&mut command)
}
