//! What is wrong with what should run by itself: schedules, sweeps, redrives, bulk actions; and
//! with runs that overlapped.

use super::{Problem, Weight};
use crate::bulk::Standing;
use crate::pages::link::part;
use crate::pages::overview::gather::Facts;
use crate::pages::text;
use backstop::dead::redrive::RedriveReport;
use backstop::sweeps::PastRun;
use backstop_core::{ScheduleName, Span};

/// How long something that has ended badly is told.
const TOLD_FOR: Span = Span::hours(1);

/// All of them.
pub(super) fn of(facts: &Facts, base: &str) -> Vec<Problem> {
    let mut found = schedules(facts, base);
    for (name, run) in &facts.seldom.sweeps {
        found.extend(sweep(name, run, base));
    }
    found.extend(redrives(facts, base));
    found.extend(bulk(facts, base));
    found.extend(overlaps(facts, base));
    found
}

/// Schedules that missed instants: those somebody may still deal with, and those that were given
/// up.
fn schedules(facts: &Facts, base: &str) -> Vec<Problem> {
    let told = |kind, sentence: String, name: &ScheduleName, count: u64| Problem {
        weight: Weight::Warn,
        kind,
        sentence,
        number: text::many(count, "run", "runs"),
        link: format!("{base}/schedules/{}", part(name.as_str())),
        deed: "See its ledger",
    };
    let unfired = facts.seldom.unfired.iter().map(|(name, count)| {
        told(
            "missed schedule",
            format!("Schedule {name} has instants without a run."),
            name,
            *count,
        )
    });
    let given_up = facts.seldom.given_up.iter().map(|(name, count)| {
        let sentence = format!("Runs of schedule {name} were given up within the last hour.");
        told("runs given up", sentence, name, *count)
    });
    unfired.chain(given_up).collect()
}

/// What the last run of a sweep says: that it failed, or what it found.
fn sweep(name: &str, run: &PastRun, base: &str) -> Vec<Problem> {
    let told = |weight, kind, sentence: String, number: String, deed| Problem {
        weight,
        kind,
        sentence,
        number,
        link: format!("{base}/sweeps/{}", part(name)),
        deed,
    };
    let rows = |count: usize| text::many(count as u64, "row", "rows");
    let mut found = Vec::new();
    if let Some(error) = &run.error {
        let error = error.trim_end_matches('.');
        let sentence = format!("Sweep {name} fails, and finds no lost work meanwhile: {error}.");
        found.push(told(
            Weight::Bad,
            "sweep fails",
            sentence,
            String::new(),
            "See why",
        ));
    }
    if run.enqueued > 0 {
        let sentence =
            format!("Sweep {name} found rows whose job was never enqueued, and gave them one.");
        found.push(told(
            Weight::Warn,
            "lost work found",
            sentence,
            rows(run.enqueued),
            "See what",
        ));
    }
    if run.unseen {
        let sentence = format!(
            "The query of sweep {name} gives more rows than a run can look at; what is behind those is not seen."
        );
        found.push(told(
            Weight::Warn,
            "sweep unseen",
            sentence,
            String::new(),
            "See which",
        ));
    }
    let unmatched = run.rows_without_jobs.unwrap_or(0) + run.jobs_without_rows.unwrap_or(0);
    if unmatched > 0 {
        let sentence = format!("Rows and jobs of sweep {name} do not match past its threshold.");
        found.push(told(
            Weight::Warn,
            "unmatched",
            sentence,
            text::count(unmatched as u64),
            "Compare them",
        ));
    }
    found
}

/// Redrives that stand still.
fn redrives(facts: &Facts, base: &str) -> Vec<Problem> {
    let told = |redrive: &RedriveReport| Problem {
        weight: Weight::Warn,
        kind: "redrive stalled",
        sentence: format!(
            "Nobody runs the redrive that {} started: its runner is gone, or left it in the middle.",
            redrive.by
        ),
        number: text::many(redrive.requeued, "letter requeued", "letters requeued"),
        link: format!("{base}/dead/redrives/{}", part(&redrive.id)),
        deed: "Go on with it",
    };
    facts.stalled.iter().map(told).collect()
}

/// Bulk actions that nobody runs any more, and those that could not go on.
fn bulk(facts: &Facts, base: &str) -> Vec<Problem> {
    let told = |run: &crate::bulk::Report| {
        let (kind, sentence) = match run.standing(facts.now) {
            Standing::Silent => (
                "bulk action silent",
                format!(
                    "Nobody runs the action {} that {} started: its server is gone.",
                    run.target.what, run.who
                ),
            ),
            Standing::Failed
                if run
                    .ended_at
                    .is_some_and(|at| facts.now.since(at) <= TOLD_FOR) =>
            {
                let error = run
                    .error
                    .as_deref()
                    .unwrap_or_default()
                    .trim_end_matches('.');
                let what = &run.target.what;
                (
                    "bulk action failed",
                    format!(
                        "The action {what} that {} started could not go on: {error}.",
                        run.who
                    ),
                )
            }
            _ => return None,
        };
        Some(Problem {
            weight: Weight::Warn,
            kind,
            sentence,
            number: text::many(run.count, "job done", "jobs done"),
            link: format!("{base}/jobs/runs/{}", part(&run.id)),
            deed: "Look at it",
        })
    };
    facts.bulk.iter().filter_map(told).collect()
}

/// Runs that were alive while another worker could have had their job: what they did outside may
/// have been done twice.
fn overlaps(facts: &Facts, base: &str) -> Option<Problem> {
    let late = facts
        .overlaps
        .iter()
        .filter(|overlap| facts.now.since(overlap.ended_at) <= TOLD_FOR);
    let (count, newest) = (late.clone().count() as u64, late.clone().next()?);
    Some(Problem {
        weight: Weight::Warn,
        kind: "overlap",
        sentence: format!(
            "A run of job {} in queue {} went on after its lease was lost; what it did outside may have been done twice.",
            newest.job, newest.queue
        ),
        number: text::many(count, "run", "runs"),
        link: format!("{base}/jobs/{}", part(&newest.job.to_string())),
        deed: "Look at it",
    })
}
