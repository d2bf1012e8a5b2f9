//! Now and then a worker vanishes in the middle of its jobs: a process of its own, killed.

use crate::error::CliError;
use backstop::config::ENV_STORE;
use backstop::{StoreAddress, StoreKind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// How long between two of them.
const EVERY: Duration = Duration::from_secs(40);
/// How long one lives; its jobs take longer.
const WORKER_LIFETIME: Duration = Duration::from_secs(4);

/// What it takes to start one.
pub(super) struct WorkerKiller {
    program: PathBuf,
    address: StoreAddress,
    config: PathBuf,
}

impl WorkerKiller {
    /// `None` where another process cannot reach the store.
    pub(super) fn new(address: &StoreAddress, config: &Path) -> Result<Option<Self>, CliError> {
        if address.kind() == Some(StoreKind::Memory) {
            return Ok(None);
        }
        let program = std::env::current_exe()?;
        Ok(Some(Self {
            program,
            address: address.clone(),
            config: config.to_owned(),
        }))
    }

    /// Starts a worker and kills it, for ever.
    pub(super) async fn run_periodically(self) {
        loop {
            tokio::time::sleep(EVERY / 2).await;
            if let Err(error) = self.once().await {
                tracing::warn!(%error, "the demo could not start a worker to be killed");
            }
            tokio::time::sleep(EVERY / 2).await;
        }
    }

    async fn once(&self) -> std::io::Result<()> {
        let mut command = Command::new(&self.program);
        // By the demo's configuration: that of the folder it was started in may be about real work.
        command.arg("--config").arg(&self.config);
        command.args([
            "work",
            "images",
            "--quiet",
            "--concurrency",
            "2",
            "--lease",
            "5s",
            "--",
            "sleep",
            "6",
        ]);
        // The store's address goes by the environment: it may hold a password.
        command
            .env(ENV_STORE, self.address.as_written())
            .kill_on_drop(true);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut worker = command.spawn()?;
        tokio::time::sleep(WORKER_LIFETIME).await;
        worker.kill().await
    }
}
