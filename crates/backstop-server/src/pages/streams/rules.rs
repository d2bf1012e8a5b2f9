//! When a wait ends, by the rules of a stream.

use backstop::streams::{KeyState, StoredKey, StreamRules};
use backstop_core::{Span, Time};

/// When a key that waits gives up, if nothing comes: at the end of its last wait, or when its
/// oldest record has been held for as long as any may be. `None` if it does not wait.
pub(super) fn gives_up(
    rules: &StreamRules,
    stored: &StoredKey,
    key_state: &KeyState,
) -> Option<Time> {
    let wait = key_state.wait?;
    let behind = rules.steps.iter().skip(wait.attempt as usize);
    let left = behind.fold(Span::ZERO, |sum, step| sum.plus(*step));
    let by_waits = Time::from_micros(wait.due).after(left);
    let oldest = stored.records.iter().map(|record| record.at).min();
    Some(oldest.map_or(by_waits, |oldest| {
        by_waits.min(oldest.after(rules.hold_for))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop::Payload;
    use backstop::core::stream::{GapWait, StoredRecord};

    fn key(at: Time) -> StoredKey {
        let record = StoredRecord {
            position: 180,
            step: 60,
            tenant: None,
            at,
            arrival: 1,
            payload: Payload::from_stored(b"1".to_vec()),
        };
        StoredKey {
            key: "k".try_into().unwrap(),
            watermark: Some(60),
            state: Vec::new(),
            arrived: 1,
            records: vec![record],
            count: 1,
            highest: Some(180),
        }
    }

    #[test]
    fn a_key_gives_up_after_the_waits_that_are_left_and_never_after_hold_for() {
        let (rules, start) = (StreamRules::default(), Time::from_millis(0));
        let waiting = |attempt, due: Time| KeyState {
            wait: Some(GapWait {
                attempt,
                due: due.as_micros(),
            }),
            ..KeyState::default()
        };
        let first = start.after(Span::secs(10));
        assert_eq!(
            gives_up(&rules, &key(start), &waiting(1, first)),
            Some(start.after(Span::secs(180)))
        );
        assert_eq!(
            gives_up(&rules, &key(start), &waiting(5, first)),
            Some(first)
        );
        let short = StreamRules {
            hold_for: Span::secs(30),
            ..rules.clone()
        };
        assert_eq!(
            gives_up(&short, &key(start), &waiting(1, first)),
            Some(start.after(Span::secs(30)))
        );
        assert_eq!(gives_up(&rules, &key(start), &KeyState::default()), None);
    }
}
