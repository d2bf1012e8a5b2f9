//! Takes over what dead workers left.
//!
//! Paced: a short batch, and then a pause. Whoever pushes meanwhile waits for no more than one
//! batch, so a batch takes no more jobs than keep it short; and few pushes meet one, since a pause
//! is half as long as its batch took, and longer where the store is quick:
//!
//! | a batch takes | it is of | and the pause is |
//! |---|---|---|
//! | two thirds of [`BATCH_TIME`] at most, or little longer than the smallest does | twice the jobs the next time | what keeps to [`PACE`] |
//! | longer than [`BATCH_TIME`], and half as long again as the smallest does | half the jobs the next time | half as long |
//!
//! What the smallest takes, one of [`BATCH_MIN`] jobs, is tried at first and then every
//! [`LOOK_EVERY`] batches. It is for a store that takes its time over whatever it is asked, since
//! its disk is slow or far away: there a small batch keeps nobody from waiting, and only makes
//! recovery late.
//!
//! Every worker looks, and takes over a batch at once. Whoever finds that there is more takes its
//! [`Turn`], and the rest is taken over by that one alone: two that are at it together meet twice
//! as many pushes, and are hardly done sooner.

mod turn;

use super::Engine;
use super::meters;
use super::settle::{given_back, settle_by_halves};
use backstop_core::blame::{accused, judge_vanished};
use backstop_core::failure::{Context, History};
use backstop_core::limits::{LOST_WITHIN, SEIZE_MAX};
use backstop_core::port::{Answer, Seize, Seized, Seizure, Settled};
use backstop_core::verdict::Settlement;
use backstop_core::{Outcome, QueueName, Span, Time, WorkerName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
pub(super) use turn::Turn;

/// A batch that takes longer is too large.
const BATCH_TIME: Duration = Duration::from_micros(1_500);
/// The fewest jobs of one batch: below it a slow disk would be asked too often for too little.
const BATCH_MIN: usize = 20;
/// So many of the smallest batches tell how long a store takes over whatever it is asked: a single
/// one may have met something else.
const LOOKS: usize = 4;
/// Batches after which the smallest is tried again.
const LOOK_EVERY: usize = 16;
/// Jobs a second that are taken over: 100,000 are ready again in less than a minute, and a quick
/// store is left to others for most of it.
const PACE: u32 = 2_050;
/// Batches in a row before the keeper's other duties get their turn.
const ROUNDS_MAX: usize = 50;
/// The longest pause between two batches: a store that hangs must not stop recovery for long after
/// it has come back.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Workers remembered to have vanished while a suspect ran.
const ACCUSED_MAX: usize = 1_000;

/// How many jobs a batch takes: as many as keep it short.
pub(super) struct Stride {
    jobs: usize,
    /// How long the smallest batches took of late.
    looks: VecDeque<Duration>,
    /// Batches since the last of them.
    since: usize,
}

impl Default for Stride {
    fn default() -> Self {
        Self {
            jobs: BATCH_MIN,
            looks: VecDeque::with_capacity(LOOKS),
            since: 0,
        }
    }
}

impl Stride {
    /// Jobs of the next batch.
    fn jobs(&self) -> usize {
        if self.is_to_look() {
            BATCH_MIN
        } else {
            self.jobs
        }
    }

    fn is_to_look(&self) -> bool {
        self.looks.len() < LOOKS || self.since >= LOOK_EVERY
    }

    /// Follows how long the last batch took.
    fn follow(&mut self, took: Duration) {
        if self.is_to_look() {
            self.looked(took);
        } else {
            self.since += 1;
            self.stepped(took);
        }
    }

    fn looked(&mut self, took: Duration) {
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(took);
        self.since = 0;
    }

    fn stepped(&mut self, took: Duration) {
        let smallest = self.looks.iter().min().copied().unwrap_or(took);
        if took > BATCH_TIME.max(smallest * 3 / 2) {
            self.jobs = (self.jobs / 2).max(BATCH_MIN);
        } else if took <= (BATCH_TIME * 2 / 3).max(smallest * 5 / 4) {
            self.jobs = (self.jobs * 2).min(SEIZE_MAX);
        }
    }
}

/// How long others have the store to themselves after a batch.
fn pause(jobs: usize, took: Duration) -> Duration {
    let due = Duration::from_secs(1) * jobs as u32 / PACE;
    due.saturating_sub(took).max(took / 2).min(PAUSE_MAX)
}

/// What recovery came to.
pub(super) struct Recovered {
    /// Jobs taken over.
    pub(super) jobs: usize,
    pub(super) left: Left,
}

/// What recovery left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// Nothing.
    None,
    /// There may be more, and it is this worker's turn.
    More,
    /// There may be more, and it is somebody else's turn.
    ToAnother,
}

/// Takes over expired leases, a few batches of them.
pub(super) async fn recover_some(
    engine: &Engine,
    stride: &mut Stride,
    turn: &mut Turn,
    spared: &[QueueName],
) -> Answer<Recovered> {
    let mut jobs = 0;
    for _ in 0..ROUNDS_MAX {
        let (began, wanted) = (Instant::now(), stride.jobs());
        let batch = recover(engine, wanted, spared.to_vec()).await?;
        jobs += batch.jobs;
        if !batch.more {
            return Ok(Recovered {
                jobs,
                left: Left::None,
            });
        }
        let took = began.elapsed();
        // A short one tells nothing of how long a full one takes.
        if batch.jobs >= wanted {
            stride.follow(took);
        }
        if !turn.is_mine(engine).await {
            return Ok(Recovered {
                jobs,
                left: Left::ToAnother,
            });
        }
        tokio::time::sleep(pause(batch.jobs, took)).await;
        // What is left may be in a part of the store that does not answer: the keeper finds out
        // which, and its other duties are not kept waiting.
        if batch.jobs == 0 {
            break;
        }
    }
    Ok(Recovered {
        jobs,
        left: Left::More,
    })
}

/// One batch of expired leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecoveredBatch {
    /// Jobs taken over.
    pub(crate) jobs: usize,
    /// Whether the store has more that have expired.
    pub(crate) more: bool,
}

/// Takes over at most `max` jobs of expired leases, of no queue that is spared, and puts them back,
/// or to rest.
pub(crate) async fn recover(
    engine: &Engine,
    max: usize,
    spared: Vec<QueueName>,
) -> Answer<RecoveredBatch> {
    let now = engine.now();
    let seize = Seize {
        number: engine.backstop.random().lease_number(),
        worker: engine.name.clone(),
        until: now.after(engine.longest_lease()),
        max,
        spared,
    };
    // Seize before judging: from here on the old worker's word is stale.
    let Seizure { runs: seized, more } = engine.store().seize(seize, now).await?;
    let batch = RecoveredBatch {
        jobs: seized.len(),
        more,
    };
    if seized.is_empty() {
        return Ok(batch);
    }
    let known = engine.accused.with(&seized, now, engine.longest_lease());
    let mut settlements = judge_vanished(&seized, &known, now);
    for settlement in &mut settlements {
        if let Outcome::Dead { history, .. } = &mut settlement.outcome {
            *history = in_context(engine, history, now).await;
        }
    }
    settle(engine, &seized, &settlements, now).await?;
    Ok(batch)
}

/// What is known of a death by crashes: above all whom it took along.
async fn in_context(engine: &Engine, history: &History, now: Time) -> History {
    let lost_workers = history.lost_workers(now, LOST_WITHIN);
    history.in_context(Context {
        lost_workers,
        ..engine.context().await
    })
}

async fn settle(
    engine: &Engine,
    seized: &[Seized],
    settlements: &[Settlement],
    now: Time,
) -> Answer<()> {
    // All of them, also where the store refused the last end it was told: what is left out here
    // nobody tells it again.
    let answers = settle_by_halves(engine, settlements).await?;
    let mut refused = Vec::new();
    for ((seized, settlement), answer) in seized.iter().zip(settlements).zip(answers) {
        let (job, queue, worker) = (
            seized.run.lease.job,
            &seized.run.lease.queue,
            &seized.vanished.worker,
        );
        match answer {
            Ok(Settled::Applied) => {
                engine.tally.recovered(&settlement.outcome);
                meters::recovered(queue, &settlement.outcome);
                if matches!(settlement.outcome, Outcome::Dead { .. }) {
                    engine
                        .guards
                        .died_of((queue.clone(), seized.run.kind.clone()), None, true);
                }
                tracing::warn!(%job, %queue, %worker, "a worker vanished; its job was taken over");
            }
            Ok(Settled::Full) => {
                engine
                    .guards
                    .died_of((queue.clone(), seized.run.kind.clone()), None, false);
                refused.push(given_back(settlement, now));
            }
            Ok(Settled::Stale) => {}
            Ok(Settled::Unanswered) => {
                tracing::warn!(%job, %queue, %worker, "its job was taken over, and not put back yet: its queue does not answer");
            }
            Err(error) => {
                tracing::error!(%error, %job, %queue, "the store refused to take this job back");
            }
        }
    }
    if !refused.is_empty() {
        settle_by_halves(engine, &refused).await?;
    }
    Ok(())
}

/// Workers that vanished while a suspect ran, and when that was seen: their other jobs may expire
/// later.
#[derive(Default)]
pub(crate) struct Accused(Mutex<BTreeMap<WorkerName, Time>>);

impl Accused {
    /// All that are known, those of this batch included. What a worker held has expired two leases
    /// later.
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

    /// Of how many jobs batches are that take so long.
    fn check(micros: impl Fn(usize) -> u64, expected: &[usize]) {
        let mut stride = Stride::default();
        let next = |_: &usize| {
            let jobs = stride.jobs();
            stride.follow(Duration::from_micros(micros(jobs)));
            jobs
        };
        assert_eq!(expected.iter().map(next).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn batches_grow_while_they_are_short_and_shrink_when_they_are_not() {
        check(
            |jobs| jobs as u64 * 8,
            &[20, 20, 20, 20, 20, 40, 80, 160, 160],
        );
        check(
            |jobs| jobs as u64 * 20,
            &[20, 20, 20, 20, 20, 40, 80, 40, 80],
        );
        check(|jobs| jobs as u64 * 80, &[20, 20, 20, 20, 20, 40, 20, 40]);
    }

    #[test]
    fn on_a_store_that_is_slow_for_everything_batches_grow_while_that_costs_little() {
        check(
            |jobs| 60_000 + jobs as u64 * 100,
            &[20, 20, 20, 20, 20, 40, 80, 160, 320, 320],
        );
        check(
            |jobs| 60_000 + jobs as u64,
            &[20, 20, 20, 20, 20, 40, 80, 160, 320, 500, 500],
        );
    }

    #[test]
    fn how_slow_a_store_is_for_everything_is_tried_again() {
        let mut stride = Stride::default();
        let mut batch = |fixed: u64| {
            let jobs = stride.jobs();
            stride.follow(Duration::from_micros(fixed + jobs as u64 * 30));
            jobs
        };
        let slow: Vec<usize> = (0..8).map(|_| batch(60_000)).collect();
        assert_eq!(slow, [20, 20, 20, 20, 20, 40, 80, 160]);
        // It is quick again: known once a small one was tried.
        let quick: Vec<usize> = (0..18).map(|_| batch(0)).collect();
        assert_eq!(quick[..3], [320, 500, 500]);
        assert_eq!(quick[12..], [20, 500, 250, 125, 62, 31]);
    }

    #[test]
    fn a_look_that_met_something_else_does_not_count() {
        let mut took = [60, 1, 60, 60].into_iter();
        let mut stride = Stride::default();
        for _ in 0..LOOKS {
            stride.follow(Duration::from_millis(took.next().unwrap_or_default()));
        }
        stride.follow(Duration::from_millis(3));
        assert_eq!(stride.jobs(), BATCH_MIN);
    }

    #[test]
    fn a_pause_keeps_the_pace_and_is_half_as_long_as_its_batch_took() {
        let check = |jobs, millis, expected| {
            let pause = pause(jobs, Duration::from_millis(millis));
            assert_eq!(
                pause,
                Duration::from_millis(expected),
                "{jobs} jobs in {millis} ms"
            );
        };
        check(205, 2, 98);
        check(205, 60, 40);
        check(205, 80, 40);
        check(41, 1, 19);
        check(50, 1_600, 800);
        check(50, 2_600, 1_000);
    }
}
