//! Real servers for tests: private ones, on free ports of this machine, gone when the test process
//! is gone.
//!
//! | you want | write |
//! |---|---|
//! | a store of your own on a server that all tests of the process share | `servers::postgres().fresh_url()` |
//! | a server to stop, to kill or to set up in another way | `Postgres::start(postgres::Settings { .. })` |
//! | a network that fails | [`Proxy`] before a server, and `server.fresh_url_at(proxy.addr())` |
//!
//! A server that does not start is no case a test could handle, so starting panics and says what to
//! do. Nothing here knows a database driver: servers are set up with the programs that come with
//! them. Where those are missing, `scripts/servers` is run once to install them.

mod account;
mod bouncer;
mod cluster;
pub mod mariadb;
mod port;
pub mod postgres;
mod process;
mod program;
mod proxy;
pub mod redis;
mod sentinel;

pub use bouncer::Bouncer;
pub use cluster::{Cluster, Moving};
pub use mariadb::Mariadb;
pub use postgres::Postgres;
pub use proxy::{Mode, Proxy};
pub use redis::Redis;
pub use sentinel::Sentinel;

use std::process::Command;
use std::sync::OnceLock;

/// The PostgreSQL of this test process.
pub fn postgres() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(|| Postgres::start(postgres::Settings::default()))
}

/// The MariaDB of this test process.
pub fn mariadb() -> &'static Mariadb {
    static SHARED: OnceLock<Mariadb> = OnceLock::new();
    SHARED.get_or_init(Mariadb::start)
}

/// The Redis of this test process.
pub fn redis() -> &'static Redis {
    static SHARED: OnceLock<Redis> = OnceLock::new();
    SHARED.get_or_init(|| Redis::start(redis::Settings::default()))
}

/// The Redis Cluster of this test process: three masters without replicas.
pub fn cluster() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start(0))
}

/// Prometheus' own tool, which checks rules and tries them.
pub fn promtool() -> Command {
    Command::new(process::running("promtool", program::find("promtool")))
}

/// A name that no other test of any process has.
fn unique_name() -> String {
    format!("t_{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests;
