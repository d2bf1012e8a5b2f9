//! `backstop dead redrive`: a few first, then the rest, or not.

use super::{SelectionArgs, letters};
use crate::context::Context;
use crate::output::progress;
use crate::output::table::{Table, Tone};
use crate::output::words::{count, counted, relative};
use crate::trouble::{Trouble, Verdict};
use backstop::dead::redrive::{
    CANARY_USUAL, MAX_FAILURES_USUAL, Phase, Rate, Redrive, RedriveError, RedriveReport,
    THEN_RATE_USUAL,
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
pub(crate) struct RedriveArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// So many go first and are watched
    #[arg(long, value_name = "N", default_value_t = CANARY_USUAL)]
    canary: u32,
    /// More failures than these among them stop it
    #[arg(long, value_name = "N", default_value_t = MAX_FAILURES_USUAL)]
    max_failures: u32,
    /// How fast the others follow: so many in a second, minute or hour
    #[arg(long, value_name = "N/s|m|h", default_value_t = THEN_RATE_USUAL)]
    then_rate: Rate,
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
pub(super) async fn run(args: &RedriveArgs, context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.look().await?;
    let dead = letters(&backstop, context).because(args.selection.because.reason());
    let names_one = args.list || args.stop.is_some() || args.resume.is_some();
    if names_one && !args.selection.is_empty(backstop.now()) {
        return Err(Trouble::misuse(
            "--list, --stop and --resume take no letters; those are chosen once, at the start",
        ));
    }
    if args.list {
        return list(&dead, backstop.now(), context).await;
    }
    if let Some(id) = &args.stop {
        let report = dead.stop_redrive(id).await.map_err(told)?;
        return tell(&report, Verdict::Fine, context);
    }
    let id = match &args.resume {
        Some(id) => id.clone(),
        None => start(args, &dead, backstop.now()).await?,
    };
    drive(&dead, &id, context).await
}

async fn start(args: &RedriveArgs, dead: &DeadLetters, now: Time) -> Result<String, Trouble> {
    let selection = args.selection.selection("redrive", now)?;
    let RedriveArgs {
        canary,
        max_failures,
        then_rate,
        ..
    } = *args;
    dead.redrive(Redrive {
        canary,
        max_failures,
        then_rate,
        selection,
    })
    .await
    .map_err(told)
}

/// Runs it to its end, or until somebody has enough.
async fn drive(dead: &DeadLetters, id: &str, context: &Context) -> Result<Verdict, Trouble> {
    context
        .output
        .note(format!("redrive {id}; Ctrl-C leaves it to be resumed"));
    let enough = listen()?;
    let bar = bar(dead, id, context).await?;
    let shown = bar.clone();
    let latest = Mutex::new(None);
    let progress = |report: &RedriveReport| {
        shown.set_position(report.requeued);
        shown.set_message(words(report));
        // One value, always whole.
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
        if enough.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let report = tokio::select! {
        report = dead.run_redrive(id, progress) => report,
        never = tell_waiting(dead, &latest, context) => match never {},
    };
    bar.finish_and_clear();
    let report = report.map_err(told)?;
    if !report.phase.is_ended() {
        context.output.note(format!(
            "left in the middle; try: backstop dead redrive --resume {id}"
        ));
    }
    tell(&report, verdict(&report), context)
}

/// Tells what a redrive waits for whenever that changes: every few seconds at most, and beside a
/// bar only that nobody runs its jobs.
async fn tell_waiting(
    dead: &DeadLetters,
    latest: &Mutex<Option<RedriveReport>>,
    context: &Context,
) -> Infallible {
    let mut told = String::new();
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
        if waiting != told {
            context.output.note(&waiting);
            told = waiting;
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
const fn verdict(report: &RedriveReport) -> Verdict {
    let none_went = report.requeued == 0 && report.refused + report.damaged > 0;
    match report.phase {
        Phase::Done if !none_went => Verdict::Fine,
        _ => Verdict::FallsShort,
    }
}

/// Set when a signal asks for the end. From the first one on, so that none is missed.
fn listen() -> Result<Arc<AtomicBool>, Trouble> {
    let enough = Arc::new(AtomicBool::new(false));
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let (mut signals, enough) = (signal(kind)?, Arc::clone(&enough));
        tokio::spawn(async move {
            signals.recv().await;
            enough.store(true, Ordering::Relaxed);
        });
    }
    Ok(enough)
}

async fn bar(dead: &DeadLetters, id: &str, context: &Context) -> Result<ProgressBar, Trouble> {
    let is_shown = context.output.shows_progress();
    let reports = dead.redrives().await?;
    let Some(report) = reports.into_iter().find(|report| report.id == id) else {
        return Ok(ProgressBar::hidden());
    };
    Ok(match about(dead, &report).await? {
        Some(all) => progress::bar(is_shown, all, BAR),
        None => progress::spinner(is_shown, SPINNER),
    })
}

/// How many letters it is about in all, where that can be told.
async fn about(dead: &DeadLetters, report: &RedriveReport) -> Result<Option<u64>, Trouble> {
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

fn words(report: &RedriveReport) -> String {
    let phase = if report.phase == Phase::Done {
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

async fn list(dead: &DeadLetters, now: Time, context: &Context) -> Result<Verdict, Trouble> {
    let reports = dead.redrives().await?;
    if context.output.is_json() {
        context.output.json(&json!({ "redrives": reports }))?;
        return Ok(Verdict::Fine);
    }
    if reports.is_empty() {
        context.output.note("no redrives");
        return Ok(Verdict::Fine);
    }
    let mut table = Table::new(&[
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
        let plain = |text: String| (text, Tone::Plain);
        table.toned([
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
    Ok(Verdict::Fine)
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

const fn tone(report: &RedriveReport) -> Tone {
    match report.phase {
        Phase::Done => Tone::Good,
        Phase::Stopped => Tone::Warning,
        Phase::Failed => Tone::Bad,
        Phase::Canary | Phase::Watching | Phase::Rate if report.stalled => Tone::Warning,
        Phase::Canary | Phase::Watching | Phase::Rate => Tone::Plain,
    }
}

fn tell(report: &RedriveReport, verdict: Verdict, context: &Context) -> Result<Verdict, Trouble> {
    if context.output.is_json() {
        context.output.json(report)?;
        return Ok(verdict);
    }
    context.output.line(words(report))?;
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
    Ok(verdict)
}

fn told(error: RedriveError) -> Trouble {
    match error {
        RedriveError::Store(error) => error.into(),
        RedriveError::BadPlan(problem) => {
            Trouble::misuse(problem).advise("backstop dead redrive --help")
        }
        RedriveError::NotFound(_) | RedriveError::Ended { .. } => {
            Trouble::new(error).advise("backstop dead redrive --list")
        }
        other => Trouble::new(other),
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
            words(&serde_json::from_value(text).unwrap())
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
