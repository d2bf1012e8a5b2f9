//! A command and everything it started, ended as one.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::time::Instant;

const TERM_GRACE: Duration = Duration::from_secs(1);
/// How often a group that was asked to end is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A process group. Dropped before its leader has ended, it is ended: nothing outlives the run it
/// belongs to.
pub(super) struct ProcessGroup(Option<GroupLeader>);

/// The group as long as its leader has not been waited for. Dropped, it is killed on the spot.
struct GroupLeader {
    leader: Child,
    /// The number of leader and group; nobody else can get it before the leader is waited for.
    pid: Option<Pid>,
}

impl ProcessGroup {
    pub(super) fn led_by(leader: Child) -> Self {
        let pid = leader
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        Self(Some(GroupLeader { leader, pid }))
    }

    /// Waits for the leader to end by itself. What it left running is left alone: it was meant to
    /// outlive it.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let Some(led) = self.0.as_mut() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let status = led.leader.wait().await;
        led.pid = None;
        self.0 = None;
        status
    }

    /// Asks the group to end, and makes it.
    pub(super) async fn end(&mut self) {
        if let Some(led) = self.0.as_mut() {
            led.end().await;
        }
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let Some(mut led) = self.0.take() else { return };
        led.signal(Signal::TERM);
        // Without a runtime, or if it goes down before the second is over, `led` is dropped: killed
        // on the spot.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { led.end().await });
        }
    }
}

impl GroupLeader {
    async fn end(&mut self) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + TERM_GRACE;
        while !self.has_exited() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        // Also when the leader has gone: its children may have ignored the request. Before the
        // leader is waited for, so that the number is still the group's own.
        self.signal(Signal::KILL);
        self.pid = None;
        let _ = self.leader.wait().await;
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // An error says that the group is gone, which is what was wanted.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Looks without waiting for it: the number stays taken.
    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.pid
            .is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
    }
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
