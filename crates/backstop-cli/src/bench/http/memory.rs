//! What a server in a process of its own takes of memory: with nothing to do, and with many jobs
//! that wait.

use super::{BenchClient, push, rounds};
use crate::bench::BenchArgs;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// What it may take, in megabytes.
const IDLE_MB_MAX: f64 = 50.0;
const WAITING_MB_MAX: f64 = 150.0;
/// How long it is left alone before it is looked at: what it does by itself has been done by then.
const LEFT_ALONE: Duration = Duration::from_secs(3);
/// How long it may take to start.
const START_MAX: Duration = Duration::from_secs(30);

/// Resident memory of a server, in megabytes. There is none where the machine does not tell.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct ServerMemory {
    pub(super) idle_mb: Option<f64>,
    pub(super) idle_mb_max: f64,
    pub(super) waiting: usize,
    pub(super) waiting_mb: Option<f64>,
    pub(super) waiting_mb_max: f64,
}

/// Starts a server on a file in `folder`, looks at it, fills it over HTTP, has its lists and pages
/// asked for, and looks again.
pub(super) async fn measure(
    args: &BenchArgs,
    folder: &Path,
    bar: &ProgressBar,
) -> Result<ServerMemory> {
    bar.set_message("the memory of an idle server");
    let (mut server, address) = start(folder).await?;
    let idle_mb = resident_mb(&server).await;
    let waiting = args.present;
    bar.set_message(format!(
        "the memory of a server with {waiting} waiting jobs"
    ));
    push(address, rounds(waiting)).await?;
    look(address).await?;
    let waiting_mb = resident_mb(&server).await;
    server.kill().await?;
    Ok(ServerMemory::of(idle_mb, waiting, waiting_mb))
}

impl ServerMemory {
    pub(super) fn of(idle_mb: Option<f64>, waiting: usize, waiting_mb: Option<f64>) -> Self {
        Self {
            idle_mb,
            idle_mb_max: IDLE_MB_MAX,
            waiting,
            waiting_mb,
            waiting_mb_max: WAITING_MB_MAX,
        }
    }

    /// Whether it takes more than it may.
    pub(super) fn falls_short(&self) -> bool {
        let is_over = |mb: Option<f64>, max: f64| mb.is_some_and(|mb| mb > max);
        is_over(self.idle_mb, self.idle_mb_max) || is_over(self.waiting_mb, self.waiting_mb_max)
    }
}

/// This program again, as a server. It ends with this process, and heeds no configuration.
async fn start(folder: &Path) -> Result<(Child, SocketAddr)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--store",
            "sqlite:memory.db",
        ])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("a server could not be started")?;
    let stdout = child.stdout.take().context("the server has no stdout")?;
    let mut line = String::new();
    let mut stdout = BufReader::new(stdout);
    tokio::time::timeout(START_MAX, stdout.read_line(&mut line))
        .await
        .context("the server did not start in time")??;
    let startup_message: serde_json::Value =
        serde_json::from_str(&line).context("the server did not say where it is")?;
    let url = startup_message["url"]
        .as_str()
        .context("the server did not say where it is")?;
    let address = url.trim_start_matches("http://").parse()?;
    Ok((child, address))
}

/// Asks for what shows jobs.
async fn look(address: SocketAddr) -> Result<()> {
    let mut client = BenchClient::connect(address).await?;
    for path in [
        "/",
        "/queues",
        "/jobs",
        "/v1/queues",
        "/v1/jobs?limit=1000",
        "/metrics",
    ] {
        client
            .get(path)
            .await
            .with_context(|| format!("{path} was not answered"))?;
    }
    Ok(())
}

/// What a process that was left alone for a while takes; `None` where the machine does not tell.
async fn resident_mb(process: &Child) -> Option<f64> {
    tokio::time::sleep(LEFT_ALONE).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()?)).ok()?;
    resident_kb(&status).map(|kb| kb / 1_000.0 * 1.024)
}

/// The line `VmRSS:  12345 kB`, in units of 1,024 bytes.
fn resident_kb(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_what_the_machine_tells() {
        assert_eq!(
            resident_kb("Name:\tbackstop\nVmRSS:\t   48828 kB\nThreads:\t9\n"),
            Some(48_828.0)
        );
        assert_eq!(resident_kb("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn it_falls_short_above_either_bound_and_not_where_nothing_is_known() {
        let of = |idle_mb, waiting_mb| ServerMemory::of(idle_mb, 1, waiting_mb);
        assert!(!of(Some(50.0), Some(150.0)).falls_short() && !of(None, None).falls_short());
        assert!(
            of(Some(50.1), Some(60.0)).falls_short() && of(Some(20.0), Some(150.1)).falls_short()
        );
    }
}
