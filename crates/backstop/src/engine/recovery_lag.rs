//! How long expired leases have waited to be taken over, as the gauge of
//! [`metrics`](super::metrics) has it.
//!
//! | what came of a sweep | what is told |
//! |---|---|
//! | it left none | 0 |
//! | it left some, or grace keeps them | how long ago the first of them ended |
//! | the store did not answer | the same, older by the time since; what ends meanwhile is told when it answers again |

use super::Engine;
use super::metrics;
use backstop_core::{Span, Time};

/// When the first of the leases ended that nobody has taken over.
#[derive(Default)]
pub(super) struct RecoveryLag(Option<Time>);

impl RecoveryLag {
    pub(super) fn clear(&mut self) {
        self.0 = None;
        metrics::set_recovery_lag(Span::ZERO);
    }

    /// Some may be left: looks for the first.
    pub(super) async fn measure(&mut self, engine: &Engine) {
        let now = engine.now();
        // Without an answer the first is the one that was known.
        if let Ok(expired) = engine.store().expired_leases(now).await {
            self.0 = expired.first;
        }
        metrics::set_recovery_lag(self.0.map_or(Span::ZERO, |ended| now.since(ended)));
    }
}
