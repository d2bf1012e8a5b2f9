//! PgBouncer before a PostgreSQL, in the mode that is hardest on its clients.

use super::account::Account;
use super::postgres::{Postgres, url_at};
use super::process::{Launch, NotStarted, Process, on_a_free_port};
use super::unique_name;
use std::net::{SocketAddr, TcpStream};

/// Sessions with the database, for all clients together: few, so that a client is given another one
/// all the time.
const POOL_SIZE: usize = 4;
/// A session that has seen the schemas of a hundred tests keeps the plans of all of them, and slows
/// down.
const SERVER_SECS_MAX: u32 = 3;

/// A `PgBouncer` that gives its sessions out for one transaction at a time.
#[derive(Debug)]
pub struct Bouncer {
    addr: SocketAddr,
    process: Process,
}

impl Bouncer {
    /// Starts one before `postgres`.
    pub fn start(postgres: &Postgres) -> Self {
        on_a_free_port("PgBouncer", |addr| Self::start_at(addr, postgres.addr()))
    }

    fn start_at(addr: SocketAddr, database: SocketAddr) -> Result<Self, NotStarted> {
        let account = Account::not_root();
        let folder = account.folder()?;
        let file = folder.join("pgbouncer.ini");
        let configuration = format!(
            "[databases]\n\
             backstop = host=127.0.0.1 port={} user=backstop\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             default_pool_size = {POOL_SIZE}\n\
             server_lifetime = {SERVER_SECS_MAX}\n\
             max_client_conn = 300\n",
            database.port(),
            addr.port(),
        );
        account.write(&file, configuration.as_bytes())?;
        let arguments = vec![file.display().to_string()];
        // SIGINT would wait until its clients have gone.
        let launch = Launch {
            account,
            folder,
            signal: "TERM",
            program: "pgbouncer",
            arguments,
        };
        Ok(Self {
            addr,
            process: Process::start(launch, || TcpStream::connect(addr).is_ok())?,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of the database behind it.
    pub fn url(&self) -> String {
        url_at(self.addr)
    }

    /// The address with a schema that nobody else has.
    pub fn fresh_url(&self) -> String {
        format!("{}?schema={}", self.url(), unique_name())
    }

    /// All it has logged.
    pub fn log(&self) -> String {
        self.process.log()
    }
}
