//! What is wrong with streams.

use super::{OverviewProblem, ProblemSeverity};
use crate::pages::link::part;
use crate::pages::overview::gather::OverviewFacts;
use crate::pages::text;
use backstop_core::Span;
use backstop_core::stream::StreamAlarm;

/// A key that is due is looked at within seconds where somebody serves its stream.
const UNSERVED_AFTER: Span = Span::minutes(1);

pub(super) fn find_problems(facts: &OverviewFacts, base: &str) -> Vec<OverviewProblem> {
    let at = move |name: &str| format!("{base}/streams/{}", part(name));
    let halted = facts.halted.iter().map(|halted| OverviewProblem {
        weight: ProblemSeverity::Bad,
        kind: "halted keys",
        sentence: format!(
            "In stream {} a record failed for good, and its key waits for somebody.",
            halted.stream
        ),
        number: format!(
            "{}{}",
            if halted.is_partial { "at least " } else { "" },
            text::many(halted.count, "key", "keys")
        ),
        link: at(halted.stream.as_str()),
        deed: "Set it going",
    });
    let misses = facts.recent_streams.iter().filter_map(|(name, series)| {
        let rate = series.misses.maximum().filter(|rate| *rate > 0.0)?;
        Some(OverviewProblem {
            weight: ProblemSeverity::Warn,
            kind: "misses",
            sentence: format!(
                "Stream {name} gave up waiting for records in the last five minutes."
            ),
            number: format!("{rate:.1}/s at most"),
            link: at(name.as_str()),
            deed: "See which",
        })
    });
    halted
        .chain(unserved_streams(facts, at))
        .chain(misses)
        .chain(ringing(facts, at))
        .collect()
}

/// Streams whose keys nobody looks at: what they wait for is neither handled nor declared missing.
fn unserved_streams(
    facts: &OverviewFacts,
    at: impl Fn(&str) -> String,
) -> impl Iterator<Item = OverviewProblem> {
    let late = facts
        .unserved
        .iter()
        .filter(|unserved| unserved.longest > UNSERVED_AFTER);
    late.map(move |unserved| OverviewProblem {
        weight: ProblemSeverity::Bad,
        kind: "stream stuck",
        sentence: format!(
            "Nobody looks at {}{} of stream {} that {} due: does a worker serve it?",
            if unserved.is_partial { "at least " } else { "" },
            text::many(unserved.count, "key", "keys"),
            unserved.stream,
            if unserved.count == 1 { "is" } else { "are" },
        ),
        number: text::span(unserved.longest),
        link: at(unserved.stream.as_str()),
        deed: "Serve it",
    })
}

/// What rings of streams, by their last minutes.
fn ringing(
    facts: &OverviewFacts,
    at: impl Fn(&str) -> String,
) -> impl Iterator<Item = OverviewProblem> {
    let all = facts.streams.iter().flat_map(|status| {
        facts
            .alarms
            .of(&status.name)
            .iter()
            .map(move |alarm| (status, *alarm))
    });
    all.map(move |(status, alarm)| OverviewProblem {
        weight: ProblemSeverity::Warn,
        kind: word(alarm),
        sentence: format!("Stream {}: {alarm}.", status.name),
        number: match alarm {
            StreamAlarm::HeldGrowing => text::many(status.records, "record held", "records held"),
            StreamAlarm::TimeoutRate | StreamAlarm::OverflowRate => "in ten minutes".to_owned(),
        },
        link: at(status.name.as_str()),
        deed: "Look at it",
    })
}

const fn word(alarm: StreamAlarm) -> &'static str {
    match alarm {
        StreamAlarm::TimeoutRate => "stream timeouts",
        StreamAlarm::OverflowRate => "stream overflows",
        StreamAlarm::HeldGrowing => "stream holds more",
    }
}
