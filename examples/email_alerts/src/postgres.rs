//! A PostgreSQL of the example's own, for those who have none at hand: in a temporary folder, on a
//! free port, gone with this process.
//!
//! This process may be killed, so its end is seen to by a small shell: it holds the server, and the
//! end of its input tells it that nobody is there any more.

use crate::limits::{PORT_TRIES_MAX, START_TIME_MAX};
use anyhow::{Context, Result, bail, ensure};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Debian keeps each version in a folder of its own here.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Below the ports that systems give to outgoing connections.
const PORTS: std::ops::Range<u16> = 10_000..20_000;
/// Between two looks at a server that is starting.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Holds the server: FOLDER SERVER [ARGUMENT...]. SIGINT ends its sessions; SIGTERM would wait for
/// them.
const GUARD: &str = r#"folder=$1; shift
"$@" >"$folder/log" 2>&1 &
cat >/dev/null
kill -s INT $!
wait
rm -rf "$folder""#;

/// A server that ends when this is dropped, or this process is gone.
pub struct Postgres {
    guard: Child,
    port: u16,
}

impl Postgres {
    /// Starts one, and returns when it answers.
    pub async fn start() -> Result<Self> {
        let programs = programs()?;
        for _ in 0..PORT_TRIES_MAX {
            if let Some(server) = Self::start_on(&programs, free_port()?).await? {
                return Ok(server);
            }
        }
        bail!("somebody else was quicker on {PORT_TRIES_MAX} ports; try again")
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts one on a port; `None` if somebody else was quicker to use it.
    async fn start_on(programs: &Path, port: u16) -> Result<Option<Self>> {
        let folder = run("mktemp", &["-d", "--tmpdir", "email-alerts-XXXXXXXX"])?
            .trim_end()
            .to_owned();
        let data = format!("{folder}/data");
        let initdb = programs.join("initdb").display().to_string();
        let made = [
            "--pgdata",
            &data,
            "--username=postgres",
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ];
        run(&initdb, &made)?;
        let mut guard = Command::new("sh");
        guard
            .args(["-c", GUARD, "guard", &folder])
            .args(prefix())
            .arg(programs.join("postgres"));
        let port_setting = format!("port={port}");
        for setting in [
            "listen_addresses=127.0.0.1",
            &port_setting,
            "unix_socket_directories=",
            "max_connections=300",
            "fsync=off",
        ] {
            guard.args(["-c", setting]);
        }
        // Its own group: a Ctrl-C in the terminal is for this process, the guard has to outlive it.
        guard.args(["-D", &data]).current_dir("/").process_group(0);
        let guard = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("sh")?;
        let server = Self { guard, port };
        Ok(server.answers(Path::new(&folder)).await?.then_some(server))
    }

    /// Waits until it answers; whether it ever will.
    async fn answers(&self, folder: &Path) -> Result<bool> {
        let began = Instant::now();
        while let Err(error) = backstop::postgres::connect(&self.url()).await {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            if log.contains("Address already in use") {
                return Ok(false);
            }
            ensure!(
                began.elapsed() < START_TIME_MAX,
                "PostgreSQL does not answer: {error}; its log:\n{log}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(true)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // The folder is gone when the guard is; one that cannot be waited for leaves nothing else
        // to do.
        let _ = self.guard.wait();
    }
}

/// The programs of the newest PostgreSQL.
fn programs() -> Result<PathBuf> {
    let versions = Path::new(VERSIONS).read_dir().into_iter().flatten();
    let newest = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .max();
    let newest = newest.with_context(|| {
        format!("there is no PostgreSQL in {VERSIONS}; install one (apt install postgresql), or name a database with --postgres URL")
    })?;
    Ok(Path::new(VERSIONS).join(newest.to_string()).join("bin"))
}

fn free_port() -> Result<u16> {
    let ports = (0..1_000).map(|_| rand::random_range(PORTS));
    let mut free = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().context("no port is free")
}

/// The words before a program that must not run as root.
fn prefix() -> &'static [&'static str] {
    // The owner of our entry in /proc is the account we run under.
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if is_root {
        &[
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
        ]
    } else {
        &[]
    }
}

/// Runs a program to its end, not as root, and returns what it printed.
fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let words: Vec<&str> = prefix()
        .iter()
        .chain([&program])
        .chain(arguments)
        .copied()
        .collect();
    // Not where this process runs: that folder may be closed to the account.
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir("/")
        .output();
    let output = output.with_context(|| format!("{program} cannot be run"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {complaint}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
