//! A PostgreSQL of its own.

use super::account::Account;
use super::process::{Launch, NotStarted, Process, on_a_free_port, running};
use super::{program, unique_name};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How often a server that was killed is started until it stays.
const RESTARTS_MAX: usize = 100;

/// How a PostgreSQL is started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Whether it waits for the disk.
    pub fsync: Fsync,
    /// What it shows to clients that want an encrypted connection; without, it has none.
    pub tls: Option<Tls>,
    /// More settings, as its configuration file has them: `("synchronous_commit", "off")`.
    pub options: Vec<(&'static str, String)>,
}

/// Whether a server waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fsync {
    /// No: for tests that crash nothing.
    #[default]
    Off,
    /// Yes, as in earnest.
    On,
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The file with the certificate.
    pub certificate: PathBuf,
    /// The file with its key.
    pub key: PathBuf,
}

/// A PostgreSQL on a port of its own, with a database `backstop` that belongs to the role
/// `backstop`.
#[derive(Debug)]
pub struct Postgres {
    addr: SocketAddr,
    process: Process,
}

impl Postgres {
    /// Starts one.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "settings are written where they are passed"
    )]
    pub fn start(settings: Settings) -> Self {
        on_a_free_port("PostgreSQL", |addr| Self::start_at(addr, &settings))
    }

    fn start_at(addr: SocketAddr, settings: &Settings) -> Result<Self, NotStarted> {
        let account = Account::not_root();
        let folder = account.folder()?;
        let data = folder.join("data");
        init(account, &data)?;
        if let Some(tls) = &settings.tls {
            copy(account, &tls.certificate, &folder.join("certificate.pem"))?;
            copy(account, &tls.key, &folder.join("key.pem"))?;
        }
        let arguments = arguments(addr, &folder, settings);
        // SIGINT ends the sessions; SIGTERM would wait for them.
        let launch = Launch {
            account,
            folder,
            signal: "INT",
            program: "postgres",
            arguments,
        };
        let process = Process::start(launch, || answers(addr))?;
        admin(addr, "postgres", "CREATE ROLE backstop LOGIN")?;
        admin(addr, "postgres", "CREATE DATABASE backstop OWNER backstop")?;
        Ok(Self { addr, process })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        url_at(self.addr)
    }

    /// The address with a schema that nobody else has.
    pub fn fresh_url(&self) -> String {
        self.fresh_url_at(self.addr)
    }

    /// As [`Postgres::fresh_url`], by way of a proxy.
    pub fn fresh_url_at(&self, addr: SocketAddr) -> String {
        format!("{}?schema={}", url_at(addr), unique_name())
    }

    /// Runs a statement in the database as superuser, and returns what it gives: lines of values
    /// between `|`.
    pub fn sql(&self, statement: &str) -> String {
        running("psql", admin(self.addr, "backstop", statement))
    }

    /// Ends every session with the database but the one that asks for it; answers how many there
    /// were.
    pub fn kill_backends(&self) -> usize {
        let ended = self.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
              WHERE datname = 'backstop' AND pid <> pg_backend_pid()",
        );
        ended.trim().parse().expect("a count is a number")
    }

    /// Stops it in good order; sessions are ended.
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
        // The sessions of a server that was killed outlive it for a moment, and it does not start
        // beside them.
        let started = (0..RESTARTS_MAX)
            .map(|_| self.process.start_again(|| answers(self.addr)))
            .find(|started| !matches!(started, Err(NotStarted::LastRunInUse)))
            .unwrap_or(Err(NotStarted::LastRunInUse));
        running("PostgreSQL", started);
    }

    /// All it has logged.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// The address of the database `backstop` of whatever listens there.
pub(super) fn url_at(addr: SocketAddr) -> String {
    format!("postgres://backstop@{addr}/backstop")
}

fn init(account: Account, data: &Path) -> Result<(), NotStarted> {
    let (initdb, data) = (program::find("initdb")?, data.display().to_string());
    let words = [
        "--pgdata",
        &data,
        "--username=postgres",
        "--auth=trust",
        "--no-sync",
    ];
    let plain = ["--locale=C.UTF-8", "--encoding=UTF8"];
    let sorted = by_a_language(&account.run(&initdb, &["--help"])?);
    account.run(&initdb, &[&words[..], &plain, sorted].concat())?;
    Ok(())
}

/// Sorting by a language and not by bytes, as most databases in use do: a statement that counts on
/// bytes shows there. PostgreSQL 14 can do so only with a language that is installed on the
/// machine, and none may be.
fn by_a_language(help: &str) -> &'static [&'static str] {
    if help.contains("--locale-provider") {
        &["--locale-provider=icu", "--icu-locale=en-US"]
    } else {
        &[]
    }
}

pub(super) fn copy(account: Account, from: &Path, to: &Path) -> Result<(), NotStarted> {
    let content = std::fs::read(from);
    let content =
        content.map_err(|error| NotStarted::Failed(format!("{}: {error}", from.display())))?;
    account.write(to, &content)
}

fn arguments(addr: SocketAddr, folder: &Path, settings: &Settings) -> Vec<String> {
    let fsync = match settings.fsync {
        Fsync::Off => "off",
        Fsync::On => "on",
    };
    let mut options = vec![
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", addr.port().to_string()),
        ("unix_socket_directories", String::new()),
        ("max_connections", "300".to_owned()),
        ("shared_buffers", "256MB".to_owned()),
        ("max_wal_size", "8GB".to_owned()),
        ("autovacuum", "on".to_owned()),
        ("fsync", fsync.to_owned()),
    ];
    if settings.tls.is_some() {
        let file = |name| folder.join(name).display().to_string();
        options.push(("ssl", "on".to_owned()));
        options.push(("ssl_cert_file", file("certificate.pem")));
        options.push(("ssl_key_file", file("key.pem")));
    }
    options.extend(settings.options.iter().cloned());
    let data = ["-D".to_owned(), folder.join("data").display().to_string()];
    let options = options
        .into_iter()
        .flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]);
    data.into_iter().chain(options).collect()
}

/// Whether it takes connections.
fn answers(addr: SocketAddr) -> bool {
    admin(addr, "postgres", "SELECT 1").is_ok()
}

fn admin(addr: SocketAddr, database: &str, statement: &str) -> Result<String, NotStarted> {
    let mut command = Command::new(program::find("psql")?);
    command.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()]);
    command.args([
        "-U",
        "postgres",
        "-d",
        database,
        "-v",
        "ON_ERROR_STOP=1",
        "-X",
        "-q",
        "-A",
        "-t",
    ]);
    program::output(
        command
            .args(["-c", statement])
            .env("PGCONNECT_TIMEOUT", "5"),
    )
}
