//! Runs everything that is ready, in the caller's task, with nothing in the background.

use super::Engine;
use super::execute::execute;
use super::progress::WorkerProgress;
use super::recover::recover_batch;
use super::settle::settle;
use backstop_core::limits::{PROMOTE_MAX, SEIZE_MAX};
use backstop_core::plan::QueueQuota;
use backstop_core::port::{Claim, StoreResult};
use tokio::time::Instant;

/// Runs until nothing is ready or due.
pub(crate) async fn drain(engine: Engine) -> StoreResult<WorkerProgress> {
    engine.backstop.schedules().look(&engine.schedules).await?;
    loop {
        let batch = recover_batch(&engine, SEIZE_MAX, Vec::new()).await?;
        while engine
            .store()
            .promote(PROMOTE_MAX, engine.now())
            .await?
            .moved
            == PROMOTE_MAX
        {}
        if !run_ready(&engine).await? && !batch.more {
            return Ok(engine.tally.progress());
        }
    }
}

/// Runs one job of each queue: nothing waits under a lease that nobody beats for. Whether there was
/// anything to run.
async fn run_ready(engine: &Engine) -> StoreResult<bool> {
    let mut any = false;
    for (queue, settings) in &engine.queues {
        let number = engine.backstop.random().lease_number();
        let until = engine.now().after(settings.lease);
        let wants = vec![QueueQuota {
            queue: queue.clone(),
            max: 1,
        }];
        let claim = Claim {
            number,
            worker: engine.name.clone(),
            until,
            wants,
        };
        let sent_at = Instant::now();
        let granted = engine.store().claim(claim, engine.now()).await?.runs;
        engine
            .active_leases
            .insert(number, settings.lease, sent_at, &granted);
        any |= !granted.is_empty();
        let (granted, over) = engine.within_rate(granted, settings.lease).await;
        settle(engine, over).await;
        for leased in granted {
            if let Some((_, settlement)) = execute(engine, settings, leased).await {
                settle(engine, vec![settlement]).await;
            }
        }
    }
    Ok(any)
}
