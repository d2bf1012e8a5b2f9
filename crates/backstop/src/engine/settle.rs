//! Ends runs, many at a time: whatever ended while the store was busy with the last batch is the next one.

use super::Engine;
use backstop_core::port::Settled;
use backstop_core::verdict::Settlement;
use std::time::Duration;
use tokio::sync::mpsc;

/// Settlements of one call.
const BATCH_MAX: usize = 1_000;
/// Ended runs that may wait to be settled; handlers then wait too, and nothing more is claimed.
pub(crate) const WAITING_MAX: usize = 8_192;
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// Settles until every sender is gone.
pub(crate) async fn settle_loop(engine: &Engine, mut ended: mpsc::Receiver<Settlement>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while ended.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if batch.len() < BATCH_MAX && !engine.timing.settle_linger.is_zero() {
            tokio::time::sleep(engine.timing.settle_linger.into()).await;
            while batch.len() < BATCH_MAX {
                let Ok(settlement) = ended.try_recv() else { break };
                batch.push(settlement);
            }
        }
        settle(engine, std::mem::take(&mut batch)).await;
    }
}

/// Settles one batch, however long the store takes to answer: repeating is harmless, and giving up would cost a run
/// that has already been done.
pub(crate) async fn settle(engine: &Engine, mut batch: Vec<Settlement>) {
    let mut wait = RETRY_FIRST;
    loop {
        match engine.store().settle(batch.clone(), engine.now()).await {
            Ok(answers) => return account(engine, &batch, &answers),
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, count = batch.len(), "settling not answered; trying again in {wait:?}");
            }
            Err(error) => {
                // Their leases run out and the jobs run again: late, but not lost.
                tracing::error!(%error, count = batch.len(), "the store refused to settle; these jobs will run again");
                return engine.held.remove(batch.iter().map(|settlement| &settlement.lease));
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_LAST);
        batch.retain(|settlement| engine.held.holds(&settlement.lease));
        if batch.is_empty() {
            return;
        }
    }
}

fn account(engine: &Engine, batch: &[Settlement], answers: &[Settled]) {
    engine.held.remove(batch.iter().map(|settlement| &settlement.lease));
    for (settlement, answer) in batch.iter().zip(answers) {
        engine.tally.settled(&settlement.outcome, *answer);
        if *answer == Settled::Stale {
            tracing::warn!(lease = ?settlement.lease, "a run ended after its lease was lost; its outcome does not count");
        }
    }
}
