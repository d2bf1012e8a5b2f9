//! A MariaDB of its own: a database of users', never a store.

use super::account::Account;
use super::postgres::{Tls, copy};
use super::process::{Launch, NotStarted, Process, on_a_free_port, running};
use super::{program, unique_name};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// The user that tests connect as, who may do anything to databases made by [`Mariadb::fresh_url`].
const USER: &str = "backstop";
/// What the user has to say: a test can look for it where it must not be.
pub const PASSWORD: &str = "kept-from-view";

/// A MariaDB on a port of its own.
#[derive(Debug)]
pub struct Mariadb {
    addr: SocketAddr,
    // Held for its end: the server goes with it.
    _process: Process,
}

impl Mariadb {
    /// Starts one.
    pub fn start() -> Self {
        on_a_free_port("MariaDB", |addr| Self::start_at(addr, None))
    }

    /// Starts one that shows a certificate to clients that want an encrypted connection.
    pub fn start_with_tls(tls: &Tls) -> Self {
        on_a_free_port("MariaDB", |addr| Self::start_at(addr, Some(tls)))
    }

    fn start_at(addr: SocketAddr, tls: Option<&Tls>) -> Result<Self, NotStarted> {
        let account = Account::not_root();
        let folder = account.folder()?;
        init(account, &folder.join("data"))?;
        let mut arguments = arguments(addr, &folder);
        if let Some(tls) = tls {
            for (option, from) in [("ssl-cert", &tls.certificate), ("ssl-key", &tls.key)] {
                let to = folder.join(option);
                copy(account, from, &to)?;
                arguments.push(format!("--{option}={}", to.display()));
            }
        }
        let launch = Launch {
            account,
            folder,
            signal: "TERM",
            program: "mariadbd",
            arguments,
        };
        let process = Process::start(launch, || admin(addr, "SELECT 1").is_ok())?;
        admin(
            addr,
            &format!("CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'"),
        )?;
        Ok(Self {
            addr,
            _process: process,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of a database that nobody else has, made for the caller.
    pub fn fresh_url(&self) -> String {
        let database = unique_name();
        self.sql(&format!(
            "CREATE DATABASE {database} CHARACTER SET utf8mb4; GRANT ALL ON {database}.* TO {USER}@'%'"
        ));
        format!("mysql://{USER}:{PASSWORD}@{}/{database}", self.addr)
    }

    /// Runs statements as root, and returns what they give: lines of values between tabs.
    pub fn sql(&self, statements: &str) -> String {
        running("mariadb", admin(self.addr, statements))
    }

    /// Runs statements as root in the database of an address.
    pub fn sql_in(&self, url: &str, statements: &str) -> String {
        let database = url.rsplit('/').next().unwrap_or_default();
        self.sql(&format!("USE {database}; {statements}"))
    }
}

fn init(account: Account, data: &Path) -> Result<(), NotStarted> {
    let data = format!("--datadir={}", data.display());
    let words = [
        "--no-defaults",
        &data,
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ];
    account.run(&program::find("mariadb-install-db")?, &words)?;
    Ok(())
}

fn arguments(addr: SocketAddr, folder: &Path) -> Vec<String> {
    let file = |name| folder.join(name).display().to_string();
    vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", file("data")),
        format!("--socket={}", file("socket")),
        format!("--pid-file={}", file("pid")),
        format!("--port={}", addr.port()),
        "--bind-address=127.0.0.1".to_owned(),
        "--skip-name-resolve".to_owned(),
        "--innodb-flush-log-at-trx-commit=0".to_owned(),
        // Not the zone of this program: a time that is taken for local shows here.
        "--default-time-zone=+05:30".to_owned(),
    ]
}

fn admin(addr: SocketAddr, statements: &str) -> Result<String, NotStarted> {
    let mut command = Command::new(program::find("mariadb")?);
    command.args([
        "--no-defaults",
        "--protocol=tcp",
        "--user=root",
        "--batch",
        "--skip-column-names",
    ]);
    command.args(["-h", &addr.ip().to_string(), "-P", &addr.port().to_string()]);
    command.args([
        "--connect-timeout=5",
        "--default-character-set=utf8mb4",
        "-e",
        statements,
    ]);
    program::output(&mut command)
}
