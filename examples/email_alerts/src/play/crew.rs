//! The processes of a run: workers, and one that sweeps.

use crate::limits::STOP_TIME_MAX;
use crate::worker::{Role, Setup};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

/// The processes, the sweeper first. They end when their input does, so none is left behind,
/// however a run ends.
pub(super) struct Crew {
    program: PathBuf,
    setup: Setup,
    members: Vec<Member>,
}

struct Member {
    role: Role,
    process: Child,
    input: ChildStdin,
}

impl Crew {
    pub(super) async fn start(program: &Path, setup: &Setup, workers: usize) -> Result<Self> {
        let mut crew = Self {
            program: program.to_owned(),
            setup: setup.clone(),
            members: Vec::new(),
        };
        for nth in 0..=workers {
            let member = crew
                .hire(if nth == 0 {
                    Role::Sweeper
                } else {
                    Role::Worker
                })
                .await?;
            crew.members.push(member);
        }
        Ok(crew)
    }

    /// Kills one with SIGKILL, wherever it is, and starts another in its place.
    pub(super) async fn kill_one(&mut self, nth: usize) -> Result<()> {
        self.members[nth].process.kill().await?;
        self.members[nth] = self.hire(self.members[nth].role).await?;
        Ok(())
    }

    /// Lets all of them end what they are doing.
    pub(super) async fn stop(self) -> Result<()> {
        let mut processes = Vec::new();
        for Member { process, input, .. } in self.members {
            drop(input);
            processes.push(process);
        }
        for mut process in processes {
            let ended = timeout(STOP_TIME_MAX, process.wait())
                .await
                .context("a worker does not end")??;
            ensure!(
                ended.success(),
                "a worker failed ({ended}); see above for its reason"
            );
        }
        Ok(())
    }

    async fn hire(&self, role: Role) -> Result<Member> {
        let mut command = Command::new(&self.program);
        command
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let started = command
            .spawn()
            .with_context(|| format!("{} cannot be started", self.program.display()));
        let mut process = started?;
        let mut input = process.stdin.take().context("a worker without input")?;
        let told = format!("{}\n", serde_json::to_string(&(role, &self.setup))?);
        input.write_all(told.as_bytes()).await?;
        Ok(Member {
            role,
            process,
            input,
        })
    }
}
