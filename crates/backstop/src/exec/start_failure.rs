//! A program that cannot be started: deleted during a deployment, not executable, no room for a
//! process. That is the machine's trouble and no job's, so no job pays for it with an attempt.

use crate::handler::Run;
use backstop_core::limits::{UNSTARTED_LOG_EVERY, UNSTARTED_WAIT};
use backstop_core::verdict::RunEnding;
use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When it was said last that a program cannot be started; shared by all copies of its handler.
#[derive(Clone, Debug, Default)]
pub(super) struct StartFailureLog(Arc<Mutex<Option<Instant>>>);

/// Whether another job might start where this one did not: its kind goes into the environment,
/// where not every byte may stand.
pub(super) fn is_the_jobs_doing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

impl StartFailureLog {
    /// The job goes back, and somebody is told once in a while.
    pub(super) fn ending(&self, run: &Run, program: &OsStr, error: &io::Error) -> RunEnding {
        if self.should_log(Instant::now()) {
            let (program, next) = (program.to_string_lossy(), next_step(error));
            tracing::error!(
                queue = %run.queue(),
                "{program} cannot be started: {error}; its jobs go back for {UNSTARTED_WAIT} each and spend no attempt; {next}"
            );
        }
        RunEnding::Released(UNSTARTED_WAIT)
    }

    fn should_log(&self, now: Instant) -> bool {
        // One value, always whole.
        let mut last_logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let every = Duration::from(UNSTARTED_LOG_EVERY);
        let is_due = last_logged.is_none_or(|last| now.saturating_duration_since(last) >= every);
        if is_due {
            *last_logged = Some(now);
        }
        is_due
    }
}

fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "put the program, and the interpreter that its first line names, in its place; a relative path counts from where the worker was started"
        }
        io::ErrorKind::PermissionDenied => "chmod +x it",
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            "give this machine room for more processes, or lower `concurrency`"
        }
        _ => "mend it, or name the program that runs it in front",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_logged_once_in_a_while_by_all_copies_together() {
        let (absence, start) = (StartFailureLog::default(), Instant::now());
        let copy = absence.clone();
        let every = Duration::from(UNSTARTED_LOG_EVERY);
        assert!(absence.should_log(start));
        assert!(!copy.should_log(start + every.saturating_sub(Duration::from_millis(1))));
        assert!(copy.should_log(start + every));
        assert!(!absence.should_log(start + every));
    }
}
