//! What is wrong, the worst first: a sentence, a number, and where to do something about it.
//! Decides from what was gathered and asks nothing.
//!
//! Every alert of `alerts/rules.yml` has its problem here; `tests.rs` holds both together.

mod runs;
mod streams;

use super::LATE;
use super::gather::OverviewFacts;
use crate::history::TimeSeries;
use crate::pages::link::{PageLink, part};
use crate::pages::text;
use backstop::breakers::BreakerInfo;
use backstop::examine::blocks_jobs;
use backstop::tables::FailingPasses;
use backstop_core::gate::ShutReason;
use backstop_core::port::{FindingSeverity, QueueState, QueueStatus, StoreFinding};
use backstop_core::{JobState, QueueName, Span};
use std::collections::BTreeMap;

/// A queue that nobody serves is stuck once its oldest ready job has waited this long.
const STUCK_AFTER: Span = Span::minutes(1);
/// A death within this is one of now.
const DYING_WITHIN: Span = Span::minutes(10);
/// A job that was one too many for a rate limit within this is one of now.
const LIMITED_WITHIN: Span = Span::minutes(1);
/// Fewer ready jobs than these do not make a queue that grows.
const GROWING_LEAST: f64 = 100.0;
/// A queue grows if so much more is ready than minutes ago.
const GROWING_BY: f64 = 1.5;
/// What the doctor said this long ago says little of now; even a large store is looked at every 45
/// minutes.
const DOCTOR_OLD: Span = Span::hours(1);
/// From this share of its room on, in per cent, a store of dead letters is nearly full.
const NEARLY_FULL_PERCENT: u64 = 80;

/// Something that somebody should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OverviewProblem {
    pub(super) weight: ProblemSeverity,
    pub(super) kind: &'static str,
    pub(super) sentence: String,
    pub(super) number: String,
    pub(super) link: String,
    pub(super) deed: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ProblemSeverity {
    /// Work stands still, or is about to.
    Bad,
    Warn,
}

impl ProblemSeverity {
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Bad => "problem-bad",
            Self::Warn => "problem-warn",
        }
    }
}

/// All problems, the worst first.
pub(super) fn problems(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let mut found = Vec::new();
    for queue in &facts.queues {
        found.extend(stuck_queue(queue, facts, base));
        found.extend(growing(queue, facts, base));
        found.extend(limited(queue, facts, base));
        found.extend(crowded(queue, base));
    }
    let in_the_way = facts
        .guards
        .iter()
        .filter(|guard| blocks_jobs(guard, &facts.queues));
    found.extend(in_the_way.map(|guard| shut(guard, facts, base)));
    found.extend(dying(facts, base));
    found.extend(deaf(facts, base));
    found.extend(overdue(facts, base));
    found.extend(streams::find_problems(facts, base));
    found.extend(runs::find_problems(facts, base));
    found.extend(tables(facts, base));
    found.extend(doctor(facts, base));
    found.sort_by_key(|problem| problem.weight);
    found
}

fn queue_at(base: &str, queue: &QueueName) -> String {
    format!("{base}/queues/{}", part(queue.as_str()))
}

/// Ready jobs that do not move: nobody serves their queue, it is paused, or those who serve it do
/// not keep up.
fn stuck_queue(queue: &QueueStatus, facts: &OverviewFacts, base: &str) -> Option<OverviewProblem> {
    let waits = facts.now.since(queue.next_ready?);
    let ready = text::many(queue.counts.of(JobState::Ready), "job is", "jobs are");
    let (name, number, link) = (&queue.name, text::span(waits), queue_at(base, &queue.name));
    if queue.state == QueueState::Paused {
        let sentence = format!("Queue {name} is paused, and {ready} ready.");
        return (waits > LATE).then_some(OverviewProblem {
            weight: ProblemSeverity::Warn,
            kind: "paused",
            sentence,
            number,
            link,
            deed: "Resume it",
        });
    }
    if !facts.is_served(name) {
        let sentence = format!("Nobody serves queue {name}, and {ready} ready.");
        return (waits > STUCK_AFTER).then_some(OverviewProblem {
            weight: ProblemSeverity::Bad,
            kind: "stuck",
            sentence,
            number,
            link,
            deed: "Serve it",
        });
    }
    let sentence = format!(
        "Queue {name} is behind: {ready} ready, and this is how long the oldest has waited."
    );
    (waits > LATE).then_some(OverviewProblem {
        weight: ProblemSeverity::Warn,
        kind: "behind",
        sentence,
        number,
        link,
        deed: "Look at it",
    })
}

/// Jobs are put back because more of them want to start than the rate limit lets through.
fn limited(queue: &QueueStatus, facts: &OverviewFacts, base: &str) -> Option<OverviewProblem> {
    let (_, rate) = facts.rates.iter().find(|(name, _)| *name == queue.name)?;
    let limit = &rate.limit;
    // What was refused is not asked about again until it is due: it goes back for `over`, or until
    // there is room.
    let is_limited = rate.refused_at.is_some_and(|at| {
        let goes_back_for = limit.over.unwrap_or(LIMITED_WITHIN).max(LIMITED_WITHIN);
        facts.now <= at.after(goes_back_for) || facts.now < rate.room_at
    });
    let waiting = queue.counts.of(JobState::Scheduled) + queue.counts.of(JobState::Ready);
    (is_limited && waiting > 0).then(|| OverviewProblem {
        weight: ProblemSeverity::Warn,
        kind: "rate limit",
        sentence: format!(
            "Queue {} is over its rate limit of {} per {}: jobs wait for room.",
            queue.name, limit.count, limit.per
        ),
        number: text::many(waiting, "waits", "wait"),
        link: queue_at(base, &queue.name),
        deed: "Look at it",
    })
}

/// More is ready than a few minutes ago, by much.
fn growing(queue: &QueueStatus, facts: &OverviewFacts, base: &str) -> Option<OverviewProblem> {
    let series = facts.recent.get(&queue.name)?;
    let (first, last) = (first(&series.ready)?, series.ready.last()?);
    let is_growing = last >= GROWING_LEAST && last >= first * GROWING_BY;
    let ready = queue.counts.of(JobState::Ready);
    is_growing.then(|| OverviewProblem {
        weight: ProblemSeverity::Warn,
        kind: "growing",
        sentence: format!("Queue {} grows: more comes in than is done.", queue.name),
        number: text::many(ready, "ready", "ready"),
        link: queue_at(base, &queue.name),
        deed: "Add workers",
    })
}

fn first(series: &TimeSeries) -> Option<f64> {
    series.points.iter().find_map(|point| point.value)
}

/// Queues that are full, or nearly so.
fn crowded(queue: &QueueStatus, base: &str) -> Vec<OverviewProblem> {
    let (name, live, dead) = (
        &queue.name,
        queue.counts.live(),
        queue.counts.of(JobState::Dead),
    );
    let mut found = Vec::new();
    if let Some(max) = queue
        .bounds
        .max_size
        .filter(|_| queue.bounds.is_under_pressure(live))
    {
        found.push(OverviewProblem {
            // What a full queue does is what it was configured to do.
            weight: ProblemSeverity::Warn,
            kind: if live >= max { "full" } else { "nearly full" },
            sentence: format!(
                "Queue {name} holds {} of at most {} live jobs.",
                text::count(live),
                text::count(max)
            ),
            number: format!("{} %", live.saturating_mul(100) / max.max(1)),
            link: queue_at(base, name),
            deed: "Make room",
        });
    }
    let dead_max = queue.bounds.dead_max.max(1);
    let percent = dead.saturating_mul(100) / dead_max;
    if percent >= NEARLY_FULL_PERCENT {
        let is_full = dead >= dead_max;
        found.push(OverviewProblem {
            weight: if is_full {
                ProblemSeverity::Bad
            } else {
                ProblemSeverity::Warn
            },
            kind: if is_full {
                "dead letters full"
            } else {
                "dead letters nearly full"
            },
            sentence: format!(
                "Queue {name} has {} of at most {} dead letters; then kinds that die stop.",
                text::count(dead),
                text::count(dead_max)
            ),
            number: format!("{percent} %"),
            link: PageLink::to(format!("{base}/dead"))
                .with("queue", name)
                .to_string(),
            deed: "Requeue or delete some",
        });
    }
    found
}

/// A breaker or a gate that keeps jobs back.
fn shut(guard: &BreakerInfo, facts: &OverviewFacts, base: &str) -> OverviewProblem {
    let queue = facts
        .queues
        .iter()
        .find(|queue| queue.name == *guard.name.queue());
    let waiting = queue.map_or(0, |queue| queue.counts.live());
    let waiting = text::many(waiting, "live job", "live jobs");
    let (kind, sentence) = match (guard.name.kind(), guard.shut) {
        (None, _) => (
            "breaker open",
            format!(
                "The service behind queue {} is left alone: it failed too often, or somebody opened its breaker.",
                guard.name
            ),
        ),
        (Some(kind), Some(ShutReason::Full)) => (
            "gate shut",
            format!(
                "Jobs of kind {kind} are not started: the dead letters of queue {} are full.",
                guard.name.queue()
            ),
        ),
        (Some(kind), Some(ShutReason::Forced)) => (
            "gate shut",
            format!(
                "Jobs of kind {kind} in queue {} are not started: somebody shut their gate.",
                guard.name.queue()
            ),
        ),
        (Some(kind), _) => (
            "gate shut",
            format!(
                "Jobs of kind {kind} in queue {} are not started: too many died.",
                guard.name.queue()
            ),
        ),
    };
    OverviewProblem {
        weight: ProblemSeverity::Bad,
        kind,
        sentence,
        number: waiting,
        link: format!("{base}/breakers"),
        deed: "See why",
    }
}

/// Queues in which jobs die now.
fn dying(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let mut queues: BTreeMap<&QueueName, (u64, usize, Span)> = BTreeMap::new();
    for group in &facts.groups {
        let ago = facts.now.since(group.last_at);
        if ago <= DYING_WITHIN {
            let entry = queues.entry(&group.queue).or_insert((0, 0, ago));
            *entry = (entry.0 + group.count, entry.1 + 1, entry.2.min(ago));
        }
    }
    let to_problem =
        |(queue, (letters, causes, ago)): (&QueueName, (u64, usize, Span))| OverviewProblem {
            weight: ProblemSeverity::Bad,
            kind: "dying",
            sentence: format!(
                "Jobs of queue {queue} die, of {}; the last one {} ago.",
                text::many(causes as u64, "cause", "different causes"),
                text::span(ago)
            ),
            number: text::many(letters, "letter", "letters"),
            link: PageLink::to(format!("{base}/dead"))
                .with("queue", queue)
                .to_string(),
            deed: "See what of",
        };
    queues.into_iter().map(to_problem).collect()
}

/// Workers that hold jobs and are not heard.
fn deaf(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let is_deaf = |worker: &&backstop_core::port::WorkerStatus| {
        worker.running > 0 && !backstop::workers::is_heard(worker, facts.now)
    };
    let deaf = facts.workers.iter().filter(is_deaf);
    let to_problem = |worker: &backstop_core::port::WorkerStatus| OverviewProblem {
        weight: ProblemSeverity::Bad,
        kind: "deaf worker",
        sentence: format!(
            "Worker {} holds {} and has not been heard for {}.",
            worker.name,
            text::many(worker.running, "job", "jobs"),
            text::span(facts.now.since(worker.seen_at))
        ),
        number: text::many(worker.running, "job", "jobs"),
        link: format!("{base}/workers"),
        deed: "Look at workers",
    };
    deaf.map(to_problem).collect()
}

/// Jobs whose lease is over and that nobody took over.
fn overdue(facts: &OverviewFacts, base: &str) -> Option<OverviewProblem> {
    let first = facts.overdue.first?;
    let sentence = format!(
        "Jobs in hand have lost their worker, under {}; any live worker takes them over.",
        backstop::examine::describe_expired(&facts.overdue)
    );
    Some(OverviewProblem {
        weight: ProblemSeverity::Warn,
        kind: "lease over",
        sentence,
        number: text::span(facts.now.since(first)),
        link: PageLink::to(format!("{base}/jobs"))
            .with("state", JobState::Running)
            .to_string(),
        deed: "Look at them",
    })
}

/// Tables whose passes fail: none of their rows is tried meanwhile.
fn tables(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let to_problem = |(name, failing): &(String, FailingPasses)| OverviewProblem {
        weight: ProblemSeverity::Bad,
        kind: "table fails",
        sentence: format!(
            "Passes over table {name} fail: {}.",
            failing.error.trim_end_matches('.')
        ),
        number: text::span(facts.now.since(failing.since)),
        link: format!("{base}/tables"),
        deed: "See why",
    };
    facts.failing.iter().map(to_problem).collect()
}

/// What the doctor says of the store, where it is not as it should be.
fn doctor(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let problem = |weight, sentence| OverviewProblem {
        weight,
        kind: "doctor",
        sentence,
        number: String::new(),
        link: format!("{base}/#store"),
        deed: "Run backstop doctor",
    };
    let to_problem = |finding: &StoreFinding| {
        let advice = finding
            .advice
            .as_ref()
            .map_or_else(String::new, |advice| format!(" To do: {advice}."));
        let weight = if finding.severity == FindingSeverity::Bad {
            ProblemSeverity::Bad
        } else {
            ProblemSeverity::Warn
        };
        problem(weight, format!("{}.{advice}", finding.what))
    };
    let findings = facts
        .opinion
        .found
        .iter()
        .flat_map(|found| found.findings.iter());
    let failed = facts.opinion.failed.iter();
    let failed = failed.map(|why| {
        problem(
            ProblemSeverity::Warn,
            format!("The store could not be examined: {why}."),
        )
    });
    let age = facts
        .opinion
        .found
        .as_ref()
        .map(|found| facts.now.since(found.at));
    let old = age.filter(|age| *age > DOCTOR_OLD).map(|age| {
        let age = text::span(age);
        problem(ProblemSeverity::Warn, format!("The store itself was last examined {age} ago; what it falls short of since then is not known."))
    });
    findings
        .filter(|finding| finding.severity != FindingSeverity::Good)
        .map(to_problem)
        .chain(failed)
        .chain(old)
        .collect()
}

#[cfg(test)]
mod tests;
