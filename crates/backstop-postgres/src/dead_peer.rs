//! Connections that fell silent. Nobody says so when the other end of one is gone; what one of them
//! shows is held against those that were used no later.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A connection that was used within this time is trusted.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// What is thought of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerTrust {
    Sound,
    /// It has to give a sign of life first.
    Doubtful,
    /// One that was used later has fallen silent.
    Gone,
}

/// When a connection fell silent last.
#[derive(Default)]
pub(crate) struct DeadPeers(Mutex<Option<Instant>>);

impl DeadPeers {
    /// A connection that was taken at this time did not answer.
    pub(crate) fn note(&self, taken_at: Instant) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *since = (*since).max(Some(taken_at));
    }

    /// What is thought of a connection that was used last at `used_at`.
    pub(crate) fn judge(&self, used_at: Instant, now: Instant) -> PeerTrust {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_some_and(|since| used_at <= since) {
            PeerTrust::Gone
        } else if now.saturating_duration_since(used_at) >= TRUSTED_FOR {
            PeerTrust::Doubtful
        } else {
            PeerTrust::Sound
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_a_while_has_to_give_a_sign() {
        let (silence, now) = (DeadPeers::default(), Instant::now());
        assert_eq!(silence.judge(now, now + TRUSTED_FOR / 2), PeerTrust::Sound);
        assert_eq!(silence.judge(now, now + TRUSTED_FOR), PeerTrust::Doubtful);
    }

    #[test]
    fn one_that_falls_silent_speaks_for_all_that_were_used_no_later() {
        let (silence, now) = (DeadPeers::default(), Instant::now());
        let at = |millis| now + Duration::from_millis(millis);
        silence.note(at(100));
        silence.note(at(50));
        let trust = [0, 100, 101].map(|used_at| silence.judge(at(used_at), at(200)));
        assert_eq!(trust, [PeerTrust::Gone, PeerTrust::Gone, PeerTrust::Sound]);
    }
}
