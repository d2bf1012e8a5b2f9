//! Takes over what dead workers left.
//!
//! Paced: a batch, and then a pause twice as long as the batch took, so that recovery has at most a third of a store's time however
//! much there is to do, and producers keep their place. Several workers may do so at once: they take different jobs, and because
//! a batch that waits for another's counts that wait as its own, they make room for each other too.

use super::Engine;
use super::meters;
use super::settle::{given_back, settle_in_parts};
use backstop_core::blame::{accused, judge_vanished};
use backstop_core::failure::{Context, History};
use backstop_core::limits::{LOST_WITHIN, SEIZE_MAX};
use backstop_core::port::{Answer, Seize, Seized, Settled};
use backstop_core::verdict::Settlement;
use backstop_core::{Outcome, Span, Time, WorkerName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Jobs of one batch: whoever pushes meanwhile waits for no more than one of them.
const BATCH: usize = 250;
const _: () = assert!(BATCH <= SEIZE_MAX);
/// The pause after a batch, in lengths of that batch.
const PAUSE_LENGTHS: u32 = 2;
/// Batches in a row before the keeper's other duties get their turn.
const ROUNDS_MAX: usize = 5;
/// The shortest pause between two batches: whoever waits for the store gets in.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest: a store that hangs must not stop recovery for long after it has come back.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Workers remembered to have vanished while a suspect ran.
const ACCUSED_MAX: usize = 1_000;

/// What recovery came to.
pub(super) struct Recovered {
    /// Jobs taken over.
    pub(super) jobs: usize,
    /// Whether there may be more.
    pub(super) more: bool,
}

/// Takes over expired leases, a few batches of them.
pub(super) async fn recover_some(engine: &Engine) -> Answer<Recovered> {
    let mut jobs = 0;
    for _ in 0..ROUNDS_MAX {
        let began = Instant::now();
        let recovered = recover(engine).await?;
        jobs += recovered;
        if recovered < BATCH {
            return Ok(Recovered { jobs, more: false });
        }
        tokio::time::sleep((began.elapsed() * PAUSE_LENGTHS).clamp(PAUSE_MIN, PAUSE_MAX)).await;
    }
    Ok(Recovered { jobs, more: true })
}

/// Takes over expired leases and puts their jobs back, or to rest; answers how many there were.
pub(crate) async fn recover(engine: &Engine) -> Answer<usize> {
    let now = engine.now();
    let seize = Seize {
        number: engine.backstop.random().lease_number(),
        worker: engine.name.clone(),
        until: now.after(engine.longest_lease()),
        max: BATCH,
    };
    // Seize before judging: from here on the old worker's word is stale.
    let seized = engine.store().seize(seize, now).await?;
    if seized.is_empty() {
        return Ok(0);
    }
    let known = engine.accused.with(&seized, now, engine.longest_lease());
    let mut settlements = judge_vanished(&seized, &known, now);
    for settlement in &mut settlements {
        if let Outcome::Dead { history, .. } = &mut settlement.outcome {
            *history = in_context(engine, history, now).await;
        }
    }
    settle(engine, &seized, &settlements, now).await?;
    Ok(seized.len())
}

/// What is known of a death by crashes: above all whom it took along.
async fn in_context(engine: &Engine, history: &History, now: Time) -> History {
    let lost_workers = history.lost_workers(now, LOST_WITHIN);
    history.in_context(Context { lost_workers, ..engine.context().await })
}

async fn settle(engine: &Engine, seized: &[Seized], settlements: &[Settlement], now: Time) -> Answer<()> {
    let answers = settle_in_parts(engine, settlements).await?;
    let mut refused = Vec::new();
    for ((seized, settlement), answer) in seized.iter().zip(settlements).zip(answers) {
        let (job, queue, worker) = (seized.run.lease.job, &seized.run.lease.queue, &seized.vanished.worker);
        match answer {
            Ok(Settled::Applied) => {
                engine.tally.recovered(&settlement.outcome);
                meters::recovered(queue, &settlement.outcome);
                if matches!(settlement.outcome, Outcome::Dead { .. }) {
                    engine.guards.died_of((queue.clone(), seized.run.kind.clone()), None, true);
                }
                tracing::warn!(%job, %queue, %worker, "a worker vanished; its job was taken over");
            }
            Ok(Settled::Full) => {
                engine.guards.died_of((queue.clone(), seized.run.kind.clone()), None, false);
                refused.push(given_back(settlement, now));
            }
            Ok(Settled::Stale) => {}
            Err(error) => tracing::error!(%error, %job, %queue, "the store refused to take this job back"),
        }
    }
    if !refused.is_empty() {
        settle_in_parts(engine, &refused).await?;
    }
    Ok(())
}

/// Workers that vanished while a suspect ran, and when that was seen: their other jobs may expire later.
#[derive(Default)]
pub(crate) struct Accused(Mutex<BTreeMap<WorkerName, Time>>);

impl Accused {
    /// All that are known, those of this batch included. What a worker held has expired two leases later.
    fn with(&self, batch: &[Seized], now: Time, lease: Span) -> BTreeSet<WorkerName> {
        // One map, always whole.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, seen| now.since(*seen) <= lease.times(2));
        for worker in accused(batch, now) {
            if known.len() < ACCUSED_MAX {
                known.insert(worker.clone(), now);
            }
        }
        known.keys().cloned().collect()
    }
}
