//! `backstop dead redrive`: a few first, then the rest, or not.

use super::{DeadSelectionArgs, letters};
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::progress;
use crate::output::table::{CellTone, TextTable};
use crate::output::words::{count, counted, relative};
use backstop::dead::redrive::{
    CANARY_DEFAULT, MAX_FAILURES_DEFAULT, RedriveError, RedrivePhase, RedrivePlan, RedriveRate,
    RedriveReport, THEN_RATE_DEFAULT,
};
use backstop::dead::{DeadFilter, DeadLetters, DeadSelection};
use backstop::{QueueName, Time};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const BAR: &str = "{bar:32.cyan/dim} {pos}/{len}  {msg}";
const SPINNER: &str = "{spinner} {msg}";
/// Between two looks at what a redrive waits for.
const WAITING_GAP: Duration = Duration::from_secs(3);

/// Which letters, how carefully; or which redrive.
#[derive(Args, Debug)]
pub(crate) struct DeadRedriveArgs {
    #[command(flatten)]
    selection: DeadSelectionArgs,
    /// So many go first and are watched
    #[arg(long, value_name = "N", default_value_t = CANARY_DEFAULT)]
    canary: u32,
    /// More failures than these among them stop it
    #[arg(long, value_name = "N", default_value_t = MAX_FAILURES_DEFAULT)]
    max_failures: u32,
    /// How fast the others follow: so many in a second, minute or hour
    #[arg(long, value_name = "N/s|m|h", default_value_t = THEN_RATE_DEFAULT)]
    then_rate: RedriveRate,
    /// List redrives, the newest first
    #[arg(long, conflicts_with_all = ["stop", "resume", "reason"])]
    list: bool,
    /// Stop this one
    #[arg(long, value_name = "ID", conflicts_with = "resume")]
    stop: Option<String>,
    /// Go on with this one
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
}

/// Does what was asked for.
pub(super) async fn run(
    args: &DeadRedriveArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let dead = letters(&backstop, context).because(args.selection.reason.reason());
    let names_one = args.list || args.stop.is_some() || args.resume.is_some();
    if names_one && !args.selection.is_empty(backstop.now()) {
        return Err(CliError::misuse(
            "--list, --stop and --resume take no letters; those are chosen once, at the start",
        ));
    }
    if args.list {
        return list(&dead, backstop.now(), context).await;
    }
    if let Some(id) = &args.stop {
        let report = dead.stop_redrive(id).await.map_err(redrive_error)?;
        return print_report(&report, ExitStatus::Success, context);
    }
    let id = match &args.resume {
        Some(id) => id.clone(),
        None => start(args, &dead, backstop.now()).await?,
    };
    drive(&dead, &id, context).await
}

async fn start(args: &DeadRedriveArgs, dead: &DeadLetters, now: Time) -> Result<String, CliError> {
    let selection = args.selection.selection("redrive", now)?;
    let DeadRedriveArgs {
        canary,
        max_failures,
        then_rate,
        ..
    } = *args;
    dead.redrive(RedrivePlan {
        canary,
        max_failures,
        then_rate,
        selection,
    })
    .await
    .map_err(redrive_error)
}

/// Runs it to its end, or until somebody has enough.
async fn drive(dead: &DeadLetters, id: &str, context: &CliContext) -> Result<ExitStatus, CliError> {
    context
        .output
        .note(format!("redrive {id}; Ctrl-C leaves it to be resumed"));
    let stop_requested = catch_signals()?;
    let bar = bar(dead, id, context).await?;
    let shown = bar.clone();
    let latest = Mutex::new(None);
    let progress = |report: &RedriveReport| {
        shown.set_position(report.requeued);
        shown.set_message(progress_text(report));
        // One value, always whole.
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
        if stop_requested.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let report = tokio::select! {
        report = dead.run_redrive(id, progress) => report,
        never = note_waiting(dead, &latest, context) => match never {},
    };
    bar.finish_and_clear();
    let report = report.map_err(redrive_error)?;
    if !report.phase.is_ended() {
        context.output.note(format!(
            "left in the middle; try: backstop dead redrive --resume {id}"
        ));
    }
    print_report(&report, exit_status(&report), context)
}

/// Tells what a redrive waits for whenever that changes: every few seconds at most, and beside a
/// bar only that nobody runs its jobs.
async fn note_waiting(
    dead: &DeadLetters,
    latest: &Mutex<Option<RedriveReport>>,
    context: &CliContext,
) -> Infallible {
    let mut last_note = String::new();
    loop {
        tokio::time::sleep(WAITING_GAP).await;
        let report = latest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(report) = report.filter(|report| report.open > 0) else {
            continue;
        };
        // What the store does not tell now is asked again.
        let Ok(unserved) = dead.unserved(&report).await else {
            continue;
        };
        if unserved.is_empty() && context.output.shows_progress() {
            continue;
        }
        let waiting = waiting(&report, &unserved);
        if waiting != last_note {
            context.output.note(&waiting);
            last_note = waiting;
        }
    }
}

fn waiting(report: &RedriveReport, unserved: &[QueueName]) -> String {
    let requeued = format!(
        "{} requeued; waiting for {} of them to run",
        count(report.requeued),
        count(report.open)
    );
    if unserved.is_empty() {
        return requeued;
    }
    let names: Vec<&str> = unserved.iter().map(QueueName::as_str).collect();
    format!("{requeued}; nobody serves {}", names.join(", "))
}

/// One that is done is fine, unless there were letters and none of them went.
const fn exit_status(report: &RedriveReport) -> ExitStatus {
    let none_went = report.requeued == 0 && report.refused + report.damaged > 0;
    match report.phase {
        RedrivePhase::Done if !none_went => ExitStatus::Success,
        _ => ExitStatus::Failure,
    }
}

/// Set when a signal asks for the end. From the first one on, so that none is missed.
fn catch_signals() -> Result<Arc<AtomicBool>, CliError> {
    let stop_requested = Arc::new(AtomicBool::new(false));
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let (mut signals, stop_requested) = (signal(kind)?, Arc::clone(&stop_requested));
        tokio::spawn(async move {
            signals.recv().await;
            stop_requested.store(true, Ordering::Relaxed);
        });
    }
    Ok(stop_requested)
}

async fn bar(dead: &DeadLetters, id: &str, context: &CliContext) -> Result<ProgressBar, CliError> {
    let is_shown = context.output.shows_progress();
    let reports = dead.redrives().await?;
    let Some(report) = reports.into_iter().find(|report| report.id == id) else {
        return Ok(ProgressBar::hidden());
    };
    Ok(match expected_total(dead, &report).await? {
        Some(all) => progress::bar(is_shown, all, BAR),
        None => progress::spinner(is_shown, SPINNER),
    })
}

/// How many letters it is about in all, where that can be told.
async fn expected_total(
    dead: &DeadLetters,
    report: &RedriveReport,
) -> Result<Option<u64>, CliError> {
    // One that an older version wrote down does not know.
    if let Some(all) = report.expected.or(report.picked) {
        return Ok(Some(all));
    }
    let filter = match &report.plan.selection {
        DeadSelection::Matching(filter) => filter.clone(),
        _ => DeadFilter::default(),
    };
    Ok(dead
        .estimate(&filter)
        .await?
        .map(|left| report.requeued + left))
}

fn progress_text(report: &RedriveReport) -> String {
    let phase = if report.phase == RedrivePhase::Done {
        "finished".to_owned()
    } else {
        report.phase.to_string()
    };
    let (canaries, ended) = (
        u64::from(report.plan.canary),
        report.done + report.died_again,
    );
    let watched = if ended == canaries && canaries < report.requeued {
        format!("of the {} canaries", count(canaries))
    } else {
        "of these".to_owned()
    };
    let died = match report.died_again {
        0 => String::new(),
        died => format!(", {} died again", count(died)),
    };
    format!(
        "{phase}: {} requeued; {watched} {} succeeded{died}; {} not run yet",
        count(report.requeued),
        count(report.done),
        count(report.open)
    )
}

async fn list(dead: &DeadLetters, now: Time, context: &CliContext) -> Result<ExitStatus, CliError> {
    let reports = dead.redrives().await?;
    if context.output.is_json() {
        context.output.json(&json!({ "redrives": reports }))?;
        return Ok(ExitStatus::Success);
    }
    if reports.is_empty() {
        context.output.note("no redrives");
        return Ok(ExitStatus::Success);
    }
    let mut table = TextTable::new(&[
        "ID",
        "PHASE",
        "STARTED",
        "BY",
        "REQUEUED",
        "DONE",
        "DIED AGAIN",
        "OPEN",
        "WHY",
    ]);
    for report in reports {
        let plain = |text: String| (text, CellTone::Plain);
        table.styled_row([
            plain(report.id.clone()),
            (phase(&report), tone(&report)),
            plain(relative(report.started_at, now)),
            plain(report.by.clone()),
            plain(count(report.requeued)),
            plain(count(report.done)),
            plain(count(report.died_again)),
            plain(count(report.open)),
            plain(why(&report)),
        ]);
    }
    context.output.table(&table)?;
    Ok(ExitStatus::Success)
}

fn phase(report: &RedriveReport) -> String {
    if report.stalled {
        format!("{}, stalled", report.phase)
    } else {
        report.phase.to_string()
    }
}

/// Why it ended, or does not go on.
fn why(report: &RedriveReport) -> String {
    match &report.why {
        None if report.stalled => format!("nobody runs it; try --resume {}", report.id),
        why => why.clone().unwrap_or_default(),
    }
}

const fn tone(report: &RedriveReport) -> CellTone {
    match report.phase {
        RedrivePhase::Done => CellTone::Good,
        RedrivePhase::Stopped => CellTone::Warning,
        RedrivePhase::Failed => CellTone::Bad,
        RedrivePhase::Canary | RedrivePhase::Watching | RedrivePhase::Rate if report.stalled => {
            CellTone::Warning
        }
        RedrivePhase::Canary | RedrivePhase::Watching | RedrivePhase::Rate => CellTone::Plain,
    }
}

fn print_report(
    report: &RedriveReport,
    status: ExitStatus,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    if context.output.is_json() {
        context.output.json(report)?;
        return Ok(status);
    }
    context.output.line(progress_text(report))?;
    if report.refused > 0 {
        let refused = counted(report.refused, "letter");
        context.output.warn(format!(
            "{refused} could not be requeued: their queue is full, another job holds their unique key, they are not dead, or \
             several queues have a job of that id; try: backstop dead requeue, which says why for each"
        ));
    }
    if report.damaged > 0 {
        context.output.warn(format!(
            "{} could not be read",
            counted(report.damaged, "letter")
        ));
    }
    if let Some(why) = &report.why {
        context.output.line(why)?;
    }
    Ok(status)
}

fn redrive_error(error: RedriveError) -> CliError {
    match error {
        RedriveError::Store(error) => error.into(),
        RedriveError::BadPlan(problem) => {
            CliError::misuse(problem).advise("backstop dead redrive --help")
        }
        RedriveError::NotFound(_) | RedriveError::Ended { .. } => {
            CliError::new(error).advise("backstop dead redrive --list")
        }
        other => CliError::new(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrive_that_stopped_at_its_canaries_counts_them_apart() {
        let report = |done: u64, died_again: u64, open: u64| {
            let text = json!({
                "id": "1", "phase": "done", "by": "ada", "started_at": "2026-11-18T22:00:00Z",
                "ended_at": null, "canary": 2, "max_failures": 0, "then_rate": "100/s",
                "selection": { "all": true }, "requeued": 7, "done": done,
                "died_again": died_again, "open": open, "refused": 0, "damaged": 0, "why": null,
            });
            progress_text(&serde_json::from_value(text).unwrap())
        };
        assert_eq!(
            report(2, 0, 5),
            "finished: 7 requeued; of the 2 canaries 2 succeeded; 5 not run yet"
        );
        assert_eq!(
            report(1, 1, 5),
            "finished: 7 requeued; of the 2 canaries 1 succeeded, 1 died again; 5 not run yet"
        );
        assert_eq!(
            report(7, 0, 0),
            "finished: 7 requeued; of these 7 succeeded; 0 not run yet"
        );
    }
}
