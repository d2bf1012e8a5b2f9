//! The example as people meet it: real worker processes, real files, the program itself.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is how to say no")]

mod commands;
mod foretold;
mod http;
mod immediate;
#[cfg(feature = "kafka")]
mod kafka;
mod played;
mod process;
mod side_by_side;

use std::path::PathBuf;

/// The program under test.
fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_uptime"))
}
