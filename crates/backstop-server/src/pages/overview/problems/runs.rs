//! What is wrong with what should run by itself: schedules, sweeps, redrives, bulk actions; and
//! with runs that overlapped.

use super::{OverviewProblem, ProblemSeverity};
use crate::bulk::BulkStatus;
use crate::pages::link::part;
use crate::pages::overview::gather::OverviewFacts;
use crate::pages::text;
use backstop::dead::redrive::RedriveReport;
use backstop::sweeps::PastRun;
use backstop_core::{ScheduleName, Span};

/// How long something that has ended badly is told.
const SHOWN_FOR: Span = Span::hours(1);

pub(super) fn find_problems(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let mut found = schedules(facts, base);
    for (name, run) in &facts.schedules_and_sweeps.sweeps {
        found.extend(sweep(name, run, base));
    }
    found.extend(redrives(facts, base));
    found.extend(bulk(facts, base));
    found.extend(overlaps(facts, base));
    found
}

/// Schedules that missed instants: those somebody may still deal with, and those that were given
/// up.
fn schedules(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let to_problem = |kind, sentence: String, name: &ScheduleName, count: u64| OverviewProblem {
        weight: ProblemSeverity::Warn,
        kind,
        sentence,
        number: text::many(count, "run", "runs"),
        link: format!("{base}/schedules/{}", part(name.as_str())),
        deed: "See its ledger",
    };
    let unfired = facts
        .schedules_and_sweeps
        .unfired
        .iter()
        .map(|(name, count)| {
            to_problem(
                "missed schedule",
                format!("Schedule {name} has instants without a run."),
                name,
                *count,
            )
        });
    let given_up = facts
        .schedules_and_sweeps
        .given_up
        .iter()
        .map(|(name, count)| {
            let sentence = format!("Runs of schedule {name} were given up within the last hour.");
            to_problem("runs given up", sentence, name, *count)
        });
    unfired.chain(given_up).collect()
}

/// What the last run of a sweep says: that it failed, or what it found.
fn sweep(name: &str, run: &PastRun, base: &str) -> Vec<OverviewProblem> {
    let to_problem = |weight, kind, sentence: String, number: String, deed| OverviewProblem {
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
        found.push(to_problem(
            ProblemSeverity::Bad,
            "sweep fails",
            sentence,
            String::new(),
            "See why",
        ));
    }
    if run.enqueued > 0 {
        let sentence =
            format!("Sweep {name} found rows whose job was never enqueued, and gave them one.");
        found.push(to_problem(
            ProblemSeverity::Warn,
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
        found.push(to_problem(
            ProblemSeverity::Warn,
            "sweep unseen",
            sentence,
            String::new(),
            "See which",
        ));
    }
    let unmatched = run.rows_without_jobs.unwrap_or(0) + run.jobs_without_rows.unwrap_or(0);
    if unmatched > 0 {
        let sentence = format!("Rows and jobs of sweep {name} do not match past its threshold.");
        found.push(to_problem(
            ProblemSeverity::Warn,
            "unmatched",
            sentence,
            text::count(unmatched as u64),
            "Compare them",
        ));
    }
    found
}

fn redrives(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let to_problem = |redrive: &RedriveReport| OverviewProblem {
        weight: ProblemSeverity::Warn,
        kind: "redrive stalled",
        sentence: format!(
            "Nobody runs the redrive that {} started: its runner is gone, or left it in the middle.",
            redrive.by
        ),
        number: text::many(redrive.requeued, "letter requeued", "letters requeued"),
        link: format!("{base}/dead/redrives/{}", part(&redrive.id)),
        deed: "Go on with it",
    };
    facts.stalled.iter().map(to_problem).collect()
}

/// Bulk actions that nobody runs any more, and those that could not go on.
fn bulk(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let to_problem = |run: &crate::bulk::BulkReport| {
        let (kind, sentence) = match run.status(facts.now) {
            BulkStatus::Silent => (
                "bulk action silent",
                format!(
                    "Nobody runs the action {} that {} started: its server is gone.",
                    run.target.what, run.who
                ),
            ),
            BulkStatus::Failed
                if run
                    .ended_at
                    .is_some_and(|at| facts.now.since(at) <= SHOWN_FOR) =>
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
        Some(OverviewProblem {
            weight: ProblemSeverity::Warn,
            kind,
            sentence,
            number: text::many(run.count, "job done", "jobs done"),
            link: format!("{base}/jobs/runs/{}", part(&run.id)),
            deed: "Look at it",
        })
    };
    facts.bulk.iter().filter_map(to_problem).collect()
}

/// Runs that were alive while another worker could have had their job: what they did outside may
/// have been done twice.
fn overlaps(facts: &OverviewFacts, base: &str) -> Option<OverviewProblem> {
    let late = facts
        .overlaps
        .iter()
        .filter(|overlap| facts.now.since(overlap.ended_at) <= SHOWN_FOR);
    let (count, newest) = (late.clone().count() as u64, late.clone().next()?);
    Some(OverviewProblem {
        weight: ProblemSeverity::Warn,
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
