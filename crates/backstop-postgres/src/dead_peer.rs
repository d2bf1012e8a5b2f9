//! Detects connections whose peer is gone. TCP does not report that the other end is gone. So when
//! one connection does not answer, all connections that were last used no later are taken as dead,
//! too.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A connection that was used within this time is trusted.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Whether a connection can be used without a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerTrust {
    Sound,
    /// The connection must answer a test query first.
    Doubtful,
    /// A connection that was used later has not answered.
    Gone,
}

/// The latest time at which a connection was taken that then did not answer.
#[derive(Default)]
pub(crate) struct DeadPeers(Mutex<Option<Instant>>);

impl DeadPeers {
    /// Records that a connection which was taken at this time did not answer.
    pub(crate) fn note(&self, taken_at: Instant) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *since = (*since).max(Some(taken_at));
    }

    /// Judges a connection that was last used at `used_at`.
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
