//! Whose turn it is to take over what is left when many leases have expired.
//!
//! A hint, and no more: it keeps workers from doing the same work side by side. Two that both
//! believe it is theirs take different jobs, and where the store does not tell whose it is,
//! everybody goes on.

use crate::engine::Engine;
use crate::idempotence::LockCell;
use crate::shared_cells::update;
use backstop_core::lock::LockLease;
use backstop_core::{Span, Time};

/// How long a turn lasts without being renewed: a worker that dies meanwhile is followed by another
/// after that.
const LEADER_TERM: Span = Span::secs(4);
/// It is renewed after this.
const RENEW: Span = Span::secs(2);
/// The cell that says whose turn it is.
const CELL: &str = "recovery/turn";

/// What a worker knows of its turn.
#[derive(Default)]
pub(in crate::engine) struct RecoveryLeader {
    renew_at: Option<Time>,
}

impl RecoveryLeader {
    /// Whether it is this worker's turn, which it takes if it is nobody's.
    pub(super) async fn is_mine(&mut self, engine: &Engine) -> bool {
        let now = engine.now();
        // A clock that was set back makes a turn no longer than it is.
        if self
            .renew_at
            .is_some_and(|at| now < at && at < now.after(LEADER_TERM))
        {
            return true;
        }
        let take = |slot: &mut LockCell| {
            let acquired = LockLease::acquire(
                slot.0.as_ref(),
                engine.name.as_str(),
                LEADER_TERM,
                Span::ZERO,
                now,
            );
            let is_mine = acquired.is_ok();
            slot.0 = Some(acquired.unwrap_or_else(|current| current));
            is_mine
        };
        let is_mine = match update(&engine.backstop, CELL, LockCell::default(), take).await {
            Ok((_, is_mine)) => is_mine,
            Err(error) => {
                tracing::debug!(%error, "whose turn it is to take over jobs is not known");
                true
            }
        };
        self.renew_at = is_mine.then(|| now.after(RENEW));
        is_mine
    }
}
