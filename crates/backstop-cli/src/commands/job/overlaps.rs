//! `backstop job overlaps`: runs that were alive while another worker could have had their job.

use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::TextTable;
use crate::output::words::{about, kind, relative};
use backstop::Time;
use backstop::overlaps::RunOverlap;
use backstop_core::limits::OVERLAPS_MAX;
use clap::Args;
use serde_json::json;

/// How many.
#[derive(Args, Debug)]
pub(crate) struct JobOverlapsArgs {
    /// At most so many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// Lists overlaps, the newest first.
pub(super) async fn run(
    args: &JobOverlapsArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let overlaps = backstop.overlaps(args.limit.clamp(1, OVERLAPS_MAX)).await?;
    if context.output.is_json() {
        context.output.json(&json!({ "overlaps": overlaps }))?;
    } else if overlaps.is_empty() {
        context
            .output
            .note("no run that told of its end has outlived its lease");
    } else {
        context.output.table(&table(&overlaps, backstop.now()))?;
    }
    Ok(ExitStatus::Success)
}

fn table(overlaps: &[RunOverlap], now: Time) -> TextTable {
    let mut table = TextTable::new(&[
        "JOB",
        "QUEUE",
        "KIND",
        "WORKER",
        "LEASE",
        "BEGAN",
        "LOSS NOTICED",
        "WENT ON FOR",
    ]);
    for overlap in overlaps {
        table.row([
            overlap.job.to_string(),
            overlap.queue.to_string(),
            kind(&overlap.kind),
            overlap.worker.clone(),
            overlap.lease.clone(),
            relative(overlap.began_at, now),
            relative(overlap.noticed_at, now),
            about(overlap.ended_at.since(overlap.noticed_at)),
        ]);
    }
    table
}
