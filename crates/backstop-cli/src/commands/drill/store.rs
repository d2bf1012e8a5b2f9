//! The process that has a SQLite store open dies in the middle of a write: is everything there that
//! was acknowledged?

use super::PATIENCE;
use super::child::DrillProcess;
use super::part::DrillPart;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::counted;
use backstop::{Backstop, JobId, Span, StoreAddress};
use backstop_core::port::FindingSeverity;
use serde::Serialize;
use std::time::Duration;

/// Processes that are killed, one after another.
const KILLS: u64 = 3;
/// Jobs acknowledged before one is killed: it is well at work then.
const ACKNOWLEDGED_MIN: usize = 200;
/// The longest it then goes on, so that not every kill meets the same moment.
const GOES_ON_MAX: Duration = Duration::from_millis(40);
/// Missing jobs named in a report.
const NAMED_MAX: usize = 20;

#[derive(Serialize)]
struct StoreDrillShape {
    kill: &'static str,
    store: String,
    kills: u64,
    acknowledged: usize,
    missing: Vec<JobId>,
    faults: Vec<String>,
    whole: bool,
}

pub(super) async fn run_drill(
    backstop: &Backstop,
    address: &StoreAddress,
    lease: Span,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let mut acknowledged = Vec::new();
    for kill in 1..=KILLS {
        context.output.note(format!(
            "a process writes; it is killed ({kill} of {KILLS})"
        ));
        acknowledged.extend(write_and_die(address, lease, context).await?);
    }
    let mut missing = Vec::new();
    for id in &acknowledged {
        if backstop.job(*id).await?.is_none() {
            missing.push(*id);
        }
    }
    let examination = backstop.store().examine().await?;
    let bad = examination
        .findings
        .into_iter()
        .filter(|finding| finding.severity == FindingSeverity::Bad);
    let faults: Vec<String> = bad.map(|finding| finding.what).collect();
    let whole = missing.is_empty() && faults.is_empty();
    missing.truncate(NAMED_MAX);
    let (store, acknowledged) = (address.to_string(), acknowledged.len());
    print_report(
        &StoreDrillShape {
            kill: "store",
            store,
            kills: KILLS,
            acknowledged,
            missing,
            faults,
            whole,
        },
        context,
    )
}

/// One process writes until it is killed; answers what was acknowledged to it.
async fn write_and_die(
    address: &StoreAddress,
    lease: Span,
    context: &CliContext,
) -> Result<Vec<JobId>, CliError> {
    let mut writer = DrillProcess::start(DrillPart::Writer, address, lease, context)?;
    let mut acknowledged = Vec::new();
    while acknowledged.len() < ACKNOWLEDGED_MIN {
        acknowledged.push(writer.wait_for_word("acknowledged", PATIENCE).await?);
    }
    tokio::time::sleep(GOES_ON_MAX.mul_f64(rand::random())).await;
    writer.kill().await?;
    let last = writer.remaining_lines().await?;
    acknowledged.extend(
        last.iter()
            .filter_map(|line| line.strip_prefix("acknowledged "))
            .map(str::to_owned),
    );
    // The very last line may have been cut by the kill; what is no whole id was not heard.
    Ok(acknowledged
        .iter()
        .filter(|id| id.len() == ID_CHARS)
        .map(|id| JobId::from_text(id))
        .collect())
}

const ID_CHARS: usize = 36;

fn print_report(report: &StoreDrillShape, context: &CliContext) -> Result<ExitStatus, CliError> {
    let status = if report.whole {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    };
    if context.output.is_json() {
        context.output.json(report)?;
        return Ok(status);
    }
    let paint = context.output.paint();
    let jobs = counted(report.acknowledged as u64, "job");
    let kills = counted(report.kills, "kill");
    if report.whole {
        context.output.line(paint.good(format!(
            "{jobs} acknowledged, all there after {kills}; the file is whole"
        )))?;
    } else {
        context.output.line(paint.bad(format!(
            "{jobs} acknowledged, and not all is well after {kills}"
        )))?;
    }
    for id in &report.missing {
        context.output.line(format!("missing: {id}"))?;
    }
    for fault in &report.faults {
        context.output.line(fault)?;
    }
    Ok(status)
}
