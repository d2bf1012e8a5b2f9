//! Logs: to stderr, warnings unless asked for more, never through a progress bar.

use crate::args::Globals;
use crate::output::progress;
use std::io::{self, Write};
use tracing_subscriber::EnvFilter;

/// Starts logging for the life of the process. `RUST_LOG` has the last word.
pub(crate) fn start(globals: &Globals) {
    // The Redis client warns of every try of its own; what comes of them is told by whoever made the call.
    let level = match (globals.quiet, globals.verbose) {
        (true, 0) => "error",
        (_, 0) => "warn,redis=error",
        (_, 1) => "info,redis=error",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(crate::output::stderr_has_colour())
        .with_target(false)
        .with_writer(|| BesideProgress);
    // Fails only if logging was started before, which is then as good.
    let _ = logs.try_init();
}

/// Writes whole lines above the progress bars.
struct BesideProgress;

impl Write for BesideProgress {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        progress::suspended(|| io::stderr().write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
