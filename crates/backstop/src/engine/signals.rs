//! Which signals that ask for an end count.

use std::time::{Duration, Instant};

const SAME_WITHIN: Duration = Duration::from_secs(1);

/// When the last signal came that counted. One within a second of it is the same one: coreutils'
/// `timeout` signals its child and then the child's group, and the second would otherwise leave
/// running jobs no time.
#[derive(Clone, Copy, Default, Debug)]
pub struct LastSignal(Option<Instant>);

impl LastSignal {
    /// Whether a signal that comes at `now` counts.
    pub fn counts(&mut self, now: Instant) -> bool {
        let is_same = self
            .0
            .is_some_and(|last| now.saturating_duration_since(last) < SAME_WITHIN);
        if !is_same {
            self.0 = Some(now);
        }
        !is_same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_within_a_second_of_another_is_the_same_one() {
        let (start, mut last) = (Instant::now(), LastSignal::default());
        let mut counts = |millis| last.counts(start + Duration::from_millis(millis));
        let counted = [0, 1, 999, 1_000, 1_500, 1_999, 2_000].map(&mut counts);
        assert_eq!(counted, [true, false, false, true, false, false, true]);
    }
}
