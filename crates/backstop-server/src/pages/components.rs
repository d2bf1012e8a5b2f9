//! Small pieces that every page writes the same way: instants, and states of jobs.
//!
//! They are the only values that reach a template as markup; every text in them is escaped, or made
//! of digits here.

use super::text;
use askama::filters::HtmlSafe;
use backstop_core::{JobState, Time};
use std::fmt;

/// An instant as it is from `now`: how long ago, and exactly when for who points at it or asks the
/// script for exact times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelativeTime {
    at: Time,
    now: Time,
}

impl RelativeTime {
    pub const fn new(at: Time, now: Time) -> Self {
        Self { at, now }
    }

    /// The same, where there is an instant.
    pub fn maybe(at: Option<Time>, now: Time) -> Option<Self> {
        at.map(|at| Self { at, now })
    }

    pub fn exact(self) -> String {
        text::second(self.at)
    }
}

impl fmt::Display for RelativeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (exact, words) = (text::second(self.at), text::when(self.at, self.now));
        // A span below a millisecond is written with a `<`.
        let words = words.replace('<', "&lt;");
        write!(
            f,
            r#"<time datetime="{exact}" title="{exact}" data-ago="{words}">{words}</time>"#
        )
    }
}

impl HtmlSafe for RelativeTime {}

/// The state of a job, with its colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateBadge(pub JobState);

impl fmt::Display for StateBadge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"<span class="state state-{0}">{0}</span>"#, self.0)
    }
}

impl HtmlSafe for StateBadge {}

/// How the jobs of a queue are spread over its states: a bar of 100 by 6, drawn without any style.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateBar {
    parts: Vec<(JobState, u64)>,
}

impl StateBar {
    /// The states that are told of.
    const SHOWN_STATES: [JobState; 5] = [
        JobState::Running,
        JobState::Ready,
        JobState::Retrying,
        JobState::Scheduled,
        JobState::Dead,
    ];

    pub fn of(counts: &backstop_core::port::StateCounts) -> Self {
        Self {
            parts: Self::SHOWN_STATES
                .into_iter()
                .map(|state| (state, counts.of(state)))
                .collect(),
        }
    }
}

impl fmt::Display for StateBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Drawn is what has not ended: one dead letter would fill the bar of a queue that has
        // nothing else to do.
        let drawn = || {
            self.parts
                .iter()
                .filter(|(state, count)| *state != JobState::Dead && *count > 0)
        };
        let total: u64 = drawn().map(|(_, count)| count).sum();
        let words: Vec<String> = self
            .parts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(state, count)| format!("{} {state}", text::count(*count)))
            .collect();
        let words = if words.is_empty() {
            "empty".to_owned()
        } else {
            words.join(", ")
        };
        write!(
            f,
            r#"<svg class="stack" viewBox="0 0 1000 6" preserveAspectRatio="none" role="img" aria-label="{words}"><title>{words}</title>"#
        )?;
        let mut from = 0;
        for (state, count) in drawn() {
            // A few among millions are still to be seen.
            let width = (u128::from(*count) * 1_000 / u128::from(total.max(1))).max(8);
            write!(
                f,
                r#"<rect class="fill-{state}" x="{from}" y="0" width="{width}" height="6"/>"#
            )?;
            from += width;
        }
        f.write_str("</svg>")
    }
}

impl HtmlSafe for StateBar {}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::Span;

    #[test]
    fn a_dead_letter_does_not_fill_the_bar_of_a_queue() {
        let mut counts = backstop_core::port::StateCounts::default();
        *counts.of_mut(JobState::Dead) = 1;
        let drawn = StateBar::of(&counts).to_string();
        assert!(
            !drawn.contains("<rect") && drawn.contains("1 dead"),
            "{drawn}"
        );
    }

    #[test]
    fn an_instant_is_written_from_now_and_exactly() {
        let now = Time::from_millis(1_767_225_600_000);
        let html = RelativeTime::new(now.before(Span::minutes(3)), now).to_string();
        assert_eq!(
            html,
            r#"<time datetime="2025-12-31T23:57:00Z" title="2025-12-31T23:57:00Z" data-ago="3 min ago">3 min ago</time>"#
        );
        let soon = RelativeTime::new(now.before(Span::micros(5)), now).to_string();
        assert!(soon.contains("&lt; 1 ms ago"), "{soon}");
    }
}
