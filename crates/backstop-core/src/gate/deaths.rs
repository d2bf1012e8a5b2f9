//! Deaths over a sliding window, in a bounded number of buckets.

use crate::limits::DEATHS_PARTS;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Counts deaths by time, to the precision of one bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct DeathCounter {
    /// Buckets ordered by start: those of one window, and up to as many again where the clocks of
    /// nodes differ. Every addition removes old ones.
    parts: Vec<DeathBucket>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DeathBucket {
    since: Time,
    deaths: u64,
}

impl DeathCounter {
    /// Adds deaths, and removes buckets that no longer count.
    pub(super) fn add(&mut self, deaths: u32, within: Span, now: Time) {
        self.parts.retain(|part| part.counts(within, now));
        let deaths = u64::from(deaths).saturating_add(self.take_future(now));
        let since = beginning(within, now);
        match self.parts.last_mut() {
            Some(last) if last.since >= since => last.deaths = last.deaths.saturating_add(deaths),
            _ => self.parts.push(DeathBucket { since, deaths }),
        }
    }

    /// The deaths within this window: all of them, and at most one bucket's more.
    pub(super) fn within(&self, within: Span, now: Time) -> u64 {
        let counted = self.parts.iter().filter(|part| part.counts(within, now));
        counted.map(|part| part.deaths).fold(0, u64::saturating_add)
    }

    /// Removes deaths that are in the future because the clock was set back. They happened a moment
    /// ago, and count from now on.
    fn take_future(&mut self, now: Time) -> u64 {
        let future = self
            .parts
            .iter()
            .filter(|part| part.since > now)
            .map(|part| part.deaths);
        let deaths = future.fold(0, u64::saturating_add);
        self.parts.retain(|part| part.since <= now);
        deaths
    }
}

impl DeathBucket {
    /// Whether any of its deaths may be as young as `within`.
    fn counts(&self, within: Span, now: Time) -> bool {
        self.since.after(length(within)) > now.before(within)
    }
}

fn length(within: Span) -> Span {
    Span::micros(within.as_micros() / DEATHS_PARTS).max(Span::micros(1))
}

fn beginning(within: Span, now: Time) -> Time {
    let length = length(within).as_micros();
    Time::from_micros(now.as_micros().div_euclid(length).saturating_mul(length))
}
