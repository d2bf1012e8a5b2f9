//! A store that refuses a worker's claims for good: it has no right to them, or the schema is another one. That is no outage, and waiting
//! does not end it.

use backstop_core::limits::CLAIM_REFUSALS_MAX;
use backstop_core::port::StoreError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// What a worker was refused.
#[derive(Default)]
pub(crate) struct Refusals {
    standing: Mutex<Standing>,
    is_final: CancellationToken,
}

#[derive(Default)]
struct Standing {
    in_a_row: u32,
    last: Option<StoreError>,
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, Standing> {
        // Two values that are written together.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in how a claim ended. One refusal may meet a change of rights half way; several in a row are meant.
    pub(crate) fn note<T>(&self, answer: &Result<T, StoreError>) {
        let mut standing = self.lock();
        let Err(error @ StoreError::Misuse { .. }) = answer else {
            *standing = Standing::default();
            return;
        };
        standing.in_a_row = standing.in_a_row.saturating_add(1);
        standing.last = Some(error.clone());
        if standing.in_a_row == CLAIM_REFUSALS_MAX {
            tracing::error!(%error, "the store refuses this worker's claims for good; the worker stops");
            self.is_final.cancel();
        }
    }

    /// Waits until it is certain that claims are refused.
    pub(crate) async fn finally(&self) {
        self.is_final.cancelled().await;
    }

    /// What was said, if it is certain.
    pub(crate) fn last_word(&self) -> Option<StoreError> {
        if self.is_final.is_cancelled() { self.lock().last.clone() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_in_a_row_are_final_and_outages_never_are() {
        let (misuse, outage) =
            (StoreError::misuse("claiming", "no"), StoreError::unavailable("claiming", "off"));
        let refusals = Refusals::default();
        for _ in 0..100 {
            refusals.note::<()>(&Err(misuse.clone()));
            refusals.note::<()>(&Err(misuse.clone()));
            refusals.note::<()>(&Err(outage.clone()));
            refusals.note(&Ok(()));
        }
        assert_eq!(refusals.last_word(), None);
        for _ in 0..CLAIM_REFUSALS_MAX {
            assert_eq!(refusals.last_word(), None);
            refusals.note::<()>(&Err(misuse.clone()));
        }
        assert_eq!(refusals.last_word(), Some(misuse));
    }
}
