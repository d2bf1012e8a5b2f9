//! Commands as handlers: the payload on stdin, the exit code decides.
//!
//! | the command | the job |
//! |---|---|
//! | exits 0 | done |
//! | exits 65 | dead at once |
//! | exits 75 | released: runs again soon, the attempt is not spent |
//! | exits otherwise, is killed | failed; the end of its stderr is the error |
//! | cannot be started | released: nothing is wrong with the job, and the attempt is not spent. A line of a shell can always be started: what the shell does not find is an exit 127 |

mod find;
mod group;
mod start_failure;
mod tail;

use crate::config::{ENV_STORE, ENV_TOKEN};
use crate::handler::{Handler, Run};
use async_trait::async_trait;
use backstop_core::Span;
use backstop_core::failure::{ErrorReport, FailureCause};
use backstop_core::verdict::{FailureAdvice, RunEnding};
pub use find::InvalidExec;
use group::ProcessGroup;
use start_failure::StartFailureLog;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tail::OutputTail;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStderr, ChildStdin, Command};

/// `EX_DATAERR` of sysexits.h: the input is wrong, and will be wrong the next time.
const EXIT_DEAD: i32 = 65;
/// `EX_TEMPFAIL` of sysexits.h: nothing is wrong with the job, but it cannot run now.
const EXIT_RELEASED: i32 = 75;
/// How long a released job waits.
const RELEASED_WAIT: Span = Span::secs(1);
/// A command may leave processes behind that keep its pipes open; what they still write is waited
/// for so long.
const PIPES_GRACE: Duration = Duration::from_millis(250);

/// A command that runs jobs: one process per run, in a process group of its own.
///
/// A run that is called off or times out takes the whole group with it: SIGTERM, then SIGKILL a
/// second later.
#[derive(Clone, Debug)]
pub struct Exec {
    program: OsString,
    args: Vec<OsString>,
    stdout: ExecOutput,
    start_failures: StartFailureLog,
}

/// Where what a command writes to its stdout goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExecOutput {
    #[default]
    Discarded,
    /// To the stderr of this process: its own stdout may be read by a program.
    Shown,
}

impl Exec {
    /// A program and its arguments, started without a shell.
    pub fn new<A: Into<OsString>>(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self {
            program: program.into(),
            args,
            stdout: ExecOutput::default(),
            start_failures: StartFailureLog::default(),
        }
    }

    /// A line for the shell, `sh -c`.
    pub fn shell(line: impl Into<OsString>) -> Self {
        Self::new("sh", [OsString::from("-c"), line.into()])
    }

    /// With its stdout going elsewhere than usual.
    #[must_use]
    pub fn stdout(mut self, stdout: ExecOutput) -> Self {
        self.stdout = stdout;
        self
    }

    /// Whether its program is there and can be started, as far as can be told without starting it.
    pub fn check(&self) -> Result<(), InvalidExec> {
        find::check(&self.program, std::env::var_os("PATH").as_deref())?;
        match self.args.as_slice() {
            [flag, line, ..] if self.program == "sh" && flag == "-c" => find::check_line(line),
            _ => Ok(()),
        }
    }

    fn command(&self, run: &Run) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            // It reads payloads of strangers and may run whatever they talk it into: it is not
            // given the keys of the store.
            .env_remove(ENV_STORE)
            .env_remove(ENV_TOKEN)
            .env("BACKSTOP_JOB_ID", run.id().to_string())
            .env("BACKSTOP_QUEUE", run.queue().as_str())
            .env("BACKSTOP_KIND", run.kind().as_str())
            .env("BACKSTOP_ATTEMPT", run.attempt().to_string())
            .env("BACKSTOP_LEASE", run.lease().number.to_string())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .stdout(match self.stdout {
                ExecOutput::Discarded => Stdio::null(),
                ExecOutput::Shown => Stdio::from(io::stderr()),
            })
            // Its own group: Ctrl-C at the terminal reaches the worker alone, and the group can be
            // killed as one.
            .process_group(0);
        match run.traceparent() {
            Some(traceparent) => command.env("TRACEPARENT", traceparent),
            // This process may have one of its own, and the job has nothing to do with it.
            None => command.env_remove("TRACEPARENT"),
        };
        command
    }
}

#[async_trait]
impl Handler for Exec {
    async fn run(&self, run: Run) -> RunEnding {
        let mut child = match self.command(&run).spawn() {
            Ok(child) => child,
            Err(error) if start_failure::is_the_jobs_doing(&error) => {
                return not_run(&self.program, &error);
            }
            Err(error) => return self.start_failures.ending(&run, &self.program, &error),
        };
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let mut group = ProcessGroup::led_by(child);
        let mut tail = OutputTail::default();
        let talk = async {
            tokio::join!(
                write_stdin(stdin, run.payload()),
                read_stderr(stderr, &mut tail)
            );
        };
        let status = tokio::select! {
            biased;
            status = wait_for_exit(&mut group, talk) => Some(status),
            () = run.cancelled() => None,
        };
        match status {
            Some(Ok(status)) => ending(status, &tail),
            Some(Err(error)) => not_run(&self.program, &error),
            // Whatever it answers to SIGTERM is no answer about the job: some exit 0 on it with the
            // work undone.
            None => {
                group.end().await;
                RunEnding::Released(Span::ZERO)
            }
        }
    }
}

/// Talks with the command until it ends.
async fn wait_for_exit(
    group: &mut ProcessGroup,
    talk: impl Future<Output = ()>,
) -> io::Result<ExitStatus> {
    tokio::pin!(talk);
    let mut is_talking = true;
    let status = loop {
        tokio::select! {
            biased;
            status = group.wait() => break status,
            // Closed pipes are no answer; the exit code is.
            () = &mut talk, if is_talking => is_talking = false,
        }
    };
    if is_talking {
        let _ = tokio::time::timeout(PIPES_GRACE, talk).await;
    }
    status
}

/// Writes the payload. A command that does not care to read all of it may still succeed.
async fn write_stdin(stdin: Option<ChildStdin>, payload: &[u8]) {
    let Some(mut stdin) = stdin else { return };
    if let Err(error) = stdin.write_all(payload).await {
        tracing::debug!(%error, "the command did not read all of its payload");
    }
}

async fn read_stderr(stderr: Option<ChildStderr>, tail: &mut OutputTail) {
    let Some(stderr) = stderr else { return };
    if let Err(error) = tail.read(stderr).await {
        tracing::debug!(%error, "the command's stderr could not be read to its end");
    }
}

fn ending(status: ExitStatus, tail: &OutputTail) -> RunEnding {
    let failed = |advice, error_type: String, plainly: String| RunEnding::Failed {
        cause: FailureCause::Failed,
        error: ErrorReport {
            error_type: Some(error_type),
            stack_trace: (!tail.text().is_empty()).then(|| tail.text()),
            ..ErrorReport::message(tail.last_line().unwrap_or(plainly))
        },
        advice,
        progressed: false,
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => RunEnding::Done,
        (Some(EXIT_RELEASED), _) => RunEnding::Released(RELEASED_WAIT),
        (Some(code), _) => {
            let advice = if code == EXIT_DEAD {
                FailureAdvice::Dead
            } else {
                FailureAdvice::Retry
            };
            failed(
                advice,
                format!("Exit {code}"),
                format!("exited with code {code}"),
            )
        }
        (None, Some(signal)) => failed(
            FailureAdvice::Retry,
            format!("Signal {signal}"),
            format!("killed by signal {signal}"),
        ),
        (None, None) => failed(
            FailureAdvice::Retry,
            "Exit".to_owned(),
            format!("ended with {status}"),
        ),
    }
}

/// What the system said about this run alone.
fn not_run(program: &OsStr, error: &io::Error) -> RunEnding {
    let message = format!("{} could not be run: {error}", program.to_string_lossy());
    RunEnding::failed(ErrorReport {
        error_type: Some("NotRun".to_owned()),
        ..ErrorReport::message(message)
    })
}

#[cfg(test)]
mod tests;
