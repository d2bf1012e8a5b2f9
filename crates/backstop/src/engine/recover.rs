//! Takes over what dead workers left.
//!
//! Paced: a short batch, and then a pause. Whoever pushes meanwhile waits for no more than one batch, so a batch takes no more jobs
//! than keep it short; and few pushes meet one, since a pause is twice as long as its batch took, and longer where the store is quick:
//!
//! | a batch takes | it is of | and the pause is |
//! |---|---|---|
//! | less than two thirds of what it may | more jobs the next time, at most [`BATCH_MAX`] | what keeps to [`PACE`] |
//! | more than it may | fewer jobs the next time, at least [`BATCH_MIN`] | twice that |
//!
//! It may take [`BATCH_TIME`], or twice as long as the shortest of late. The second is for a store that takes its time over whatever
//! it is asked, since its disk is slow or far away: there a small batch keeps nobody from waiting, and only makes recovery late.
//! On such a store batches are of up to [`SEIZE_MAX`].
//!
//! Several workers may do so at once: they take different jobs, and because a batch that waits for another's counts that wait as its
//! own, they make room for each other too.

use super::Engine;
use super::meters;
use super::settle::{given_back, settle_in_parts};
use backstop_core::blame::{accused, judge_vanished};
use backstop_core::failure::{Context, History};
use backstop_core::limits::{LOST_WITHIN, SEIZE_MAX};
use backstop_core::port::{Answer, Seize, Seized, Settled};
use backstop_core::verdict::Settlement;
use backstop_core::{Outcome, Span, Time, WorkerName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A batch that takes longer is too large.
const BATCH_TIME: Duration = Duration::from_millis(2);
/// The fewest jobs of one batch: below it a slow disk would be asked too often for too little.
const BATCH_MIN: usize = 20;
/// The most: what one statement may keep others waiting for.
const BATCH_MAX: usize = 100;
/// Batches by which is told how long a store takes over whatever it is asked.
const LATELY: usize = 8;
/// Jobs a second that one worker takes over: 100,000 are ready again in 50 s, and a quick store is left to others for most of it.
const PACE: u32 = 2_000;
/// Batches in a row before the keeper's other duties get their turn.
const ROUNDS_MAX: usize = 5;
/// The longest pause between two batches: a store that hangs must not stop recovery for long after it has come back.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Workers remembered to have vanished while a suspect ran.
const ACCUSED_MAX: usize = 1_000;

/// How many jobs a batch takes: as many as keep it short.
pub(super) struct Stride {
    jobs: usize,
    /// How long the last few batches took.
    lately: VecDeque<Duration>,
}

impl Default for Stride {
    fn default() -> Self {
        Self { jobs: BATCH_MIN, lately: VecDeque::with_capacity(LATELY) }
    }
}

impl Stride {
    /// Follows how long the last batch took.
    fn follow(&mut self, took: Duration) {
        if self.lately.len() == LATELY {
            self.lately.pop_front();
        }
        self.lately.push_back(took);
        let shortest = self.lately.iter().min().copied().unwrap_or(took);
        let most = if shortest > BATCH_TIME { SEIZE_MAX } else { BATCH_MAX };
        let may_take = BATCH_TIME.max(shortest * 2);
        if took > may_take {
            self.jobs = (self.jobs / 2).max(BATCH_MIN);
        } else if took <= may_take * 2 / 3 {
            self.jobs *= 2;
        }
        self.jobs = self.jobs.min(most);
    }
}

/// How long others have the store to themselves after a batch.
fn pause(jobs: usize, took: Duration) -> Duration {
    let due = Duration::from_secs(1) * jobs as u32 / PACE;
    due.saturating_sub(took).max(took * 2).min(PAUSE_MAX)
}

/// What recovery came to.
pub(super) struct Recovered {
    /// Jobs taken over.
    pub(super) jobs: usize,
    /// Whether there may be more.
    pub(super) more: bool,
}

/// Takes over expired leases, a few batches of them.
pub(super) async fn recover_some(engine: &Engine, stride: &mut Stride) -> Answer<Recovered> {
    let mut jobs = 0;
    for _ in 0..ROUNDS_MAX {
        let (began, wanted) = (Instant::now(), stride.jobs);
        let recovered = recover(engine, wanted).await?;
        jobs += recovered;
        if recovered < wanted {
            return Ok(Recovered { jobs, more: false });
        }
        let took = began.elapsed();
        stride.follow(took);
        tokio::time::sleep(pause(recovered, took)).await;
    }
    Ok(Recovered { jobs, more: true })
}

/// Takes over at most `max` expired leases and puts their jobs back, or to rest; answers how many there were.
pub(crate) async fn recover(engine: &Engine, max: usize) -> Answer<usize> {
    let now = engine.now();
    let seize = Seize {
        number: engine.backstop.random().lease_number(),
        worker: engine.name.clone(),
        until: now.after(engine.longest_lease()),
        max,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How many jobs a batch has after batches that took so long.
    fn check(millis: &[u64], expected: &[usize]) {
        let mut stride = Stride::default();
        let follow = |millis: &u64| {
            stride.follow(Duration::from_millis(*millis));
            stride.jobs
        };
        assert_eq!(millis.iter().map(follow).collect::<Vec<_>>(), expected, "{millis:?}");
    }

    #[test]
    fn batches_grow_while_they_are_short_and_shrink_when_they_are_not() {
        check(&[1, 1, 1, 1, 3, 500, 500], &[40, 80, 100, 100, 50, 25, 20]);
    }

    #[test]
    fn on_a_store_that_is_slow_for_everything_batches_grow_while_that_costs_nothing() {
        check(&[60, 60, 62, 70, 75, 75], &[40, 80, 160, 320, 500, 500]);
        check(&[60, 90, 130, 60], &[40, 40, 20, 40]);
    }

    #[test]
    fn a_store_that_became_slow_is_known_by_its_last_batches() {
        let quick_then_slow = [&[1; 3][..], &[60; 9][..]].concat();
        let grown: Vec<usize> = vec![40, 80, 100, 50, 25, 20, 20, 20, 20, 20, 40, 80];
        check(&quick_then_slow, &grown);
    }

    #[test]
    fn a_pause_keeps_the_pace_and_is_twice_as_long_as_its_batch_took() {
        let check = |jobs, millis, expected| {
            let pause = pause(jobs, Duration::from_millis(millis));
            assert_eq!(pause, Duration::from_millis(expected), "{jobs} jobs in {millis} ms");
        };
        check(100, 2, 48);
        check(100, 16, 34);
        check(100, 17, 34);
        check(100, 20, 40);
        check(20, 1, 9);
        check(50, 600, 1_000);
    }
}
