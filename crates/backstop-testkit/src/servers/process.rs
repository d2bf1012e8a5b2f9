//! A server process that ends with the test process, and its folder with it.
//!
//! A test process may be killed, and statics are never dropped, so neither destructors nor signal
//! handlers can see to that. A small shell does: it holds the server, and the end of its input
//! tells it that we are gone.

use super::account::Account;
use super::program;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const GUARD: &str = include_str!("guard.sh");

/// How often a server is started on another port because somebody else was quicker.
const PORT_TRIES_MAX: usize = 5;
/// A server that does not answer by then does not start.
const START_TIME_MAX: Duration = Duration::from_mins(1);
/// Between two looks at a server that is starting.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server that is not there.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStarted {
    /// Somebody listens on its port.
    #[error("its port is in use")]
    PortInUse,
    /// What is left of its last run is not gone yet.
    #[error("parts of its last run are still there")]
    LastRunInUse,
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// What to run, and how it is ended.
pub(super) struct Launch {
    /// Who runs it.
    pub account: Account,
    /// Where it keeps its files; made for it, and removed at the end.
    pub folder: PathBuf,
    /// The signal on which it stops in good order.
    pub signal: &'static str,
    /// Its program.
    pub program: &'static str,
    /// The program's arguments.
    pub arguments: Vec<String>,
}

/// A server: running, stopped or killed.
#[derive(Debug)]
pub(super) struct Process {
    folder: PathBuf,
    guard: Mutex<Guard>,
}

#[derive(Debug)]
struct Guard {
    shell: Child,
    /// `None` once the guard has been told that all is over.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// Starts a server on a port that is free: `start` is given one address after another until it is
/// not taken.
pub(super) fn on_a_free_port<T>(
    name: &str,
    start: impl Fn(SocketAddr) -> Result<T, NotStarted>,
) -> T {
    let started = (0..PORT_TRIES_MAX)
        .map(|_| start(super::port::free()))
        .find(|started| !matches!(started, Err(NotStarted::PortInUse)))
        .unwrap_or(Err(NotStarted::PortInUse));
    running(name, started)
}

/// What was started. A test has nothing better to do without it than to say why.
#[expect(
    clippy::panic,
    reason = "what a test needs and does not get ends the test"
)]
pub(super) fn running<T>(name: &str, started: Result<T, NotStarted>) -> T {
    started.unwrap_or_else(|cause| panic!("{name} for tests: {cause}"))
}

impl Process {
    /// Starts a server, and returns when `answers` says that it does.
    pub(super) fn start(launch: Launch, answers: impl Fn() -> bool) -> Result<Self, NotStarted> {
        let program = program::find(launch.program)?;
        let mut guard = Command::new("sh");
        guard
            .args(["-c", GUARD, "guard"])
            .arg(&launch.folder)
            .arg(launch.signal);
        guard
            .args(launch.account.prefix())
            .arg(program)
            .args(&launch.arguments);
        // Its own group: a Ctrl-C in the terminal is for the test, the guard has to outlive it.
        guard.process_group(0).current_dir("/");
        let mut shell = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| NotStarted::Failed(format!("sh: {error}")))?;
        let orders = shell.stdin.take();
        let answered = BufReader::new(shell.stdout.take().expect("it is piped"));
        let guard = Mutex::new(Guard {
            shell,
            orders,
            answers: answered,
        });
        let process = Self {
            folder: launch.folder,
            guard,
        };
        process.start_again(answers)?;
        Ok(process)
    }

    /// Starts it after it was stopped or killed.
    pub(super) fn start_again(&self, answers: impl Fn() -> bool) -> Result<(), NotStarted> {
        let before_bytes = self.log().len();
        self.order("start");
        let deadline = Instant::now() + START_TIME_MAX;
        while !answers() {
            let log = self.log();
            let log = log.get(before_bytes..).unwrap_or_default();
            if log.contains("Address already in use") {
                return Err(NotStarted::PortInUse);
            }
            if log.contains("pre-existing shared memory block") {
                return Err(NotStarted::LastRunInUse);
            }
            if Instant::now() > deadline {
                return Err(NotStarted::Failed(format!(
                    "no answer after {START_TIME_MAX:?}; its log:\n{log}"
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Stops it in good order, and returns when it is gone.
    pub(super) fn stop(&self) {
        self.order("stop");
    }

    /// Ends it with `kill -9`, and returns when it is gone.
    pub(super) fn kill(&self) {
        self.order("kill");
    }

    /// All it has printed.
    pub(super) fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn order(&self, order: &str) {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let orders = guard.orders.as_mut().expect("only a drop takes it away");
        writeln!(orders, "{order}").expect("the guard listens");
        let mut answer = String::new();
        guard
            .answers
            .read_line(&mut answer)
            .expect("the guard answers");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let guard = self.guard.get_mut().unwrap_or_else(PoisonError::into_inner);
        guard.orders = None;
        // The folder is gone when the guard is; a guard that cannot be waited for leaves nothing
        // else to do.
        let _ = guard.shell.wait();
    }
}
