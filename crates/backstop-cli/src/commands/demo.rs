//! `backstop demo`: all four systems at work, in a browser; or a backlog worked off in ten seconds.

mod live;
mod play;
mod short;
mod show;
mod workload;

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::StoreAddress;
use clap::Args;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How much of it, and where.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop demo                             then open the address it prints
  backstop demo --seconds 60
  backstop demo --listen 127.0.0.1:8080
  backstop demo --no-server                 a backlog worked off, and a summary, in ten seconds
  backstop demo --no-server --jobs 500 --store sqlite:demo.db

Serves the dashboard and plays, until Ctrl-C: jobs that fail, are tried again and die; a breaker that opens and closes; a stream
whose records come out of order, late or never; schedules with runs that were missed and made up; a sweep over a table with lost
rows; a backlog table with Fibonacci retries; canary redrives; a worker that vanishes, and its jobs that run again.
Without --store a new file in the temporary folder is used; it stays, and what is printed says how to look at it.")]
pub(crate) struct DemoArgs {
    /// Play for so long, then end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400), conflicts_with = "no_server")]
    seconds: Option<u64>,
    /// Where the dashboard is served [default: 127.0.0.1:7007, or the next free port]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "no_server")]
    listen: Option<SocketAddr>,
    /// Only push a backlog, work it off, and sum it up
    #[arg(long)]
    no_server: bool,
    /// Jobs of the backlog, with --no-server
    #[arg(long, value_name = "N", default_value_t = 3_000, requires = "no_server", value_parser = clap::value_parser!(u64).range(30..=100_000))]
    jobs: u64,
}

pub(crate) async fn run(args: &DemoArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    if args.no_server {
        return short::run(args.jobs, context).await;
    }
    live::run(args, context).await
}

/// A folder that outlives the demo, for nobody else on this machine: it has a store in it, and the
/// configuration that commands go by.
fn new_folder() -> Result<PathBuf, CliError> {
    let own = Permissions::from_mode(0o700);
    Ok(tempfile::Builder::new()
        .prefix("backstop-demo-")
        .permissions(own)
        .tempdir()?
        .keep())
}

fn store_in(folder: &Path) -> StoreAddress {
    StoreAddress::new(format!("sqlite:{}", folder.join("backstop.db").display()))
}
