//! What is wrong with streams.

use super::{Problem, Weight};
use crate::pages::link::part;
use crate::pages::overview::gather::Facts;
use crate::pages::text;
use backstop_core::Span;
use backstop_core::stream::Alarm;

/// A key that is due is looked at within seconds where somebody serves its stream.
const FORSAKEN_AFTER: Span = Span::minutes(1);

/// All of them.
pub(super) fn of(facts: &Facts, base: &str) -> Vec<Problem> {
    let at = move |name: &str| format!("{base}/streams/{}", part(name));
    let halted = facts.halted.iter().map(|halted| Problem {
        weight: Weight::Bad,
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
        let rate = series.misses.most().filter(|rate| *rate > 0.0)?;
        Some(Problem {
            weight: Weight::Warn,
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
        .chain(forsaken(facts, at))
        .chain(misses)
        .chain(ringing(facts, at))
        .collect()
}

/// Streams whose keys nobody looks at: what they wait for is neither handled nor declared missing.
fn forsaken(facts: &Facts, at: impl Fn(&str) -> String) -> impl Iterator<Item = Problem> {
    let late = facts
        .forsaken
        .iter()
        .filter(|forsaken| forsaken.longest > FORSAKEN_AFTER);
    late.map(move |forsaken| Problem {
        weight: Weight::Bad,
        kind: "stream stuck",
        sentence: format!(
            "Nobody looks at {}{} of stream {} that {} due: does a worker serve it?",
            if forsaken.is_partial { "at least " } else { "" },
            text::many(forsaken.count, "key", "keys"),
            forsaken.stream,
            if forsaken.count == 1 { "is" } else { "are" },
        ),
        number: text::span(forsaken.longest),
        link: at(forsaken.stream.as_str()),
        deed: "Serve it",
    })
}

/// What rings of streams, by their last minutes.
fn ringing(facts: &Facts, at: impl Fn(&str) -> String) -> impl Iterator<Item = Problem> {
    let all = facts.streams.iter().flat_map(|status| {
        facts
            .alarms
            .of(&status.name)
            .iter()
            .map(move |alarm| (status, *alarm))
    });
    all.map(move |(status, alarm)| Problem {
        weight: Weight::Warn,
        kind: word(alarm),
        sentence: format!("Stream {}: {alarm}.", status.name),
        number: match alarm {
            Alarm::HeldGrowing => text::many(status.records, "record held", "records held"),
            Alarm::TimeoutRate | Alarm::OverflowRate => "in ten minutes".to_owned(),
        },
        link: at(status.name.as_str()),
        deed: "Look at it",
    })
}

const fn word(alarm: Alarm) -> &'static str {
    match alarm {
        Alarm::TimeoutRate => "stream timeouts",
        Alarm::OverflowRate => "stream overflows",
        Alarm::HeldGrowing => "stream holds more",
    }
}
