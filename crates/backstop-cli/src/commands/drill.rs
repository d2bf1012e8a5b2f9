//! `backstop drill`: kill something on purpose, and see whether the promise holds.

mod child;
mod part;
mod store;
mod worker;

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::{Backstop, QueueName, Span, StoreAddress, StoreKind};
use backstop_core::amend::{AmendAction, Filter, Selection};
use backstop_core::limits::{LEASE_MAX, LEASE_MIN};
use clap::{Args, ValueEnum};
use part::DrillPart;
use std::time::Duration;
use tempfile::TempDir;

/// The queue of all drills. What is in it is a drill's: it is removed before and after.
const QUEUE: &str = "backstop.drill";
/// What no step of a drill takes, its lease apart.
const PATIENCE: Duration = Duration::from_mins(1);

/// What is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum KillTarget {
    /// A worker, in the middle of a job.
    Worker,
    /// The process that has a SQLite store open, in the middle of a write.
    Store,
}

/// What to kill, and how long a lease is.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  backstop drill
  backstop drill --lease 2s --json
  backstop drill --lease 2s --within 3s
  backstop drill --store postgres://app@db.example.org/shop
  backstop drill --kill store

--kill worker starts two workers of its own, kills one with SIGKILL in the middle of a job, and measures the time until the other
runs that job again, beside the time that is promised. Exits 1 if it took longer than that, or than --within.

--kill store kills a process in the middle of its writes to a SQLite file, three times over, and looks whether every job that was
acknowledged is there and the file is whole. It does not kill servers: it did not start them.

Without --store all of it happens in a file of its own, which is removed. With --store it happens in the queue backstop.drill,
whose jobs are removed; no other job is touched.")]
pub(crate) struct DrillArgs {
    /// What is killed
    #[arg(long, value_enum, default_value = "worker")]
    kill: KillTarget,
    /// How long a job stays with a worker that gives no sign of life
    #[arg(long, value_name = "D", default_value = "15s")]
    lease: Span,
    /// How soon a killed worker's job must run again, if what is promised is too long for you
    #[arg(long, value_name = "D")]
    within: Option<Span>,
    /// Plays a part in a drill that another process leads
    #[arg(long, value_enum, hide = true)]
    part: Option<DrillPart>,
}

/// Holds a drill, or plays a part in one.
pub(crate) async fn run(args: &DrillArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    if args.lease < LEASE_MIN || args.lease > LEASE_MAX {
        return Err(CliError::misuse(format!(
            "--lease must be from {LEASE_MIN} to {LEASE_MAX}; it is {}",
            args.lease
        ))
        .advise("backstop drill --lease 15s"));
    }
    if let Some(part) = args.part {
        return part::run_part(part, args.lease, context).await;
    }
    let place = DrillStore::new(args.kill, context.named_store.as_ref())?;
    let backstop = context.open_at(&place.address).await?;
    clear(&backstop).await?;
    let result = match args.kill {
        KillTarget::Worker => {
            worker::run_drill(&backstop, &place.address, args.lease, args.within, context).await
        }
        KillTarget::Store => store::run_drill(&backstop, &place.address, args.lease, context).await,
    };
    clear(&backstop).await?;
    result
}

/// Where a drill is held.
struct DrillStore {
    address: StoreAddress,
    /// A folder that is gone with the drill.
    _folder: Option<TempDir>,
}

impl DrillStore {
    fn new(kill: KillTarget, named: Option<&StoreAddress>) -> Result<Self, CliError> {
        let Some(address) = named.cloned() else {
            let folder = tempfile::Builder::new()
                .prefix("backstop-drill-")
                .tempdir()?;
            let address = StoreAddress::new(format!(
                "sqlite:{}",
                folder.path().join("backstop.db").display()
            ));
            return Ok(Self {
                address,
                _folder: Some(folder),
            });
        };
        match (address.kind(), kill) {
            (Some(StoreKind::Memory), _) => Err(CliError::misuse(
                "a store in memory is gone with its process; two processes cannot share it",
            )
            .advise("backstop drill, without --store")),
            (Some(StoreKind::Postgres | StoreKind::Redis), KillTarget::Store) => {
                Err(CliError::misuse(format!(
                    "{address} is on a server, and a drill does not kill servers it did not start"
                ))
                .advise("backstop drill --kill worker, or --kill store without --store"))
            }
            _ => Ok(Self {
                address,
                _folder: None,
            }),
        }
    }
}

/// Removes what this drill, or one that was cut off, has left in its queue.
async fn clear(backstop: &Backstop) -> Result<(), CliError> {
    let queue = QueueName::new(QUEUE).map_err(CliError::new)?;
    let all = Selection::Matching(Filter {
        queue: Some(queue),
        ..Filter::default()
    });
    let changes = backstop.changes(&CliContext::current_user());
    changes.amend(&all, &AmendAction::Cancel).await?;
    changes.amend(&all, &AmendAction::Delete).await?;
    Ok(())
}
