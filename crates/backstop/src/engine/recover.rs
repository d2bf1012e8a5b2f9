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
//! [`RecoveryLeader`], and the rest is taken over by that one alone: two that are at it together
//! meet twice as many pushes, and are hardly done sooner.

mod leader;

use super::Engine;
use super::metrics;
use super::settle::{released_for_room, settle_by_halves};
use backstop_core::blame::{judge_vanished, workers_lost_with_suspect_running};
use backstop_core::failure::{DeathContext, FailureHistory};
use backstop_core::limits::{LOST_WITHIN, SEIZE_MAX};
use backstop_core::port::{SeizeRequest, SeizeResult, SeizedRun, SettleOutcome, StoreResult};
use backstop_core::verdict::Settlement;
use backstop_core::{Outcome, QueueName, Span, Time, WorkerName};
pub(super) use leader::RecoveryLeader;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

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
const VANISHED_MAX: usize = 1_000;

/// How many jobs a batch takes: as many as keep it short.
pub(super) struct BatchSizer {
    jobs: usize,
    /// How long the smallest batches took of late.
    probes: VecDeque<Duration>,
    /// Batches since the last of them.
    since: usize,
}

impl Default for BatchSizer {
    fn default() -> Self {
        Self {
            jobs: BATCH_MIN,
            probes: VecDeque::with_capacity(LOOKS),
            since: 0,
        }
    }
}

impl BatchSizer {
    /// Jobs of the next batch.
    fn jobs(&self) -> usize {
        if self.is_to_probe() {
            BATCH_MIN
        } else {
            self.jobs
        }
    }

    fn is_to_probe(&self) -> bool {
        self.probes.len() < LOOKS || self.since >= LOOK_EVERY
    }

    /// Follows how long the last batch took.
    fn note_batch(&mut self, took: Duration) {
        if self.is_to_probe() {
            self.note_probe(took);
        } else {
            self.since += 1;
            self.resize(took);
        }
    }

    fn note_probe(&mut self, took: Duration) {
        if self.probes.len() == LOOKS {
            self.probes.pop_front();
        }
        self.probes.push_back(took);
        self.since = 0;
    }

    fn resize(&mut self, took: Duration) {
        let smallest = self.probes.iter().min().copied().unwrap_or(took);
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

pub(super) struct RecoveryResult {
    pub(super) jobs: usize,
    pub(super) left: RecoveryRemainder,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecoveryRemainder {
    None,
    /// There may be more, and it is this worker's turn.
    More,
    /// There may be more, and it is somebody else's turn.
    ToAnother,
}

/// Takes over expired leases, a few batches of them.
pub(super) async fn recover_batches(
    engine: &Engine,
    sizer: &mut BatchSizer,
    leader: &mut RecoveryLeader,
    spared: &[QueueName],
) -> StoreResult<RecoveryResult> {
    let mut jobs = 0;
    for _ in 0..ROUNDS_MAX {
        let (began, wanted) = (Instant::now(), sizer.jobs());
        let batch = recover_batch(engine, wanted, spared.to_vec()).await?;
        jobs += batch.jobs;
        if !batch.more {
            return Ok(RecoveryResult {
                jobs,
                left: RecoveryRemainder::None,
            });
        }
        let took = began.elapsed();
        // A short one tells nothing of how long a full one takes.
        if batch.jobs >= wanted {
            sizer.note_batch(took);
        }
        if !leader.is_mine(engine).await {
            return Ok(RecoveryResult {
                jobs,
                left: RecoveryRemainder::ToAnother,
            });
        }
        tokio::time::sleep(pause(batch.jobs, took)).await;
        // What is left may be in a part of the store that does not answer: the keeper finds out
        // which, and its other duties are not kept waiting.
        if batch.jobs == 0 {
            break;
        }
    }
    Ok(RecoveryResult {
        jobs,
        left: RecoveryRemainder::More,
    })
}

/// One batch of expired leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecoveredBatch {
    pub(crate) jobs: usize,
    /// Whether the store has more that have expired.
    pub(crate) more: bool,
}

/// Takes over at most `max` jobs of expired leases, of no queue that is spared, and puts them back,
/// or to rest.
pub(crate) async fn recover_batch(
    engine: &Engine,
    max: usize,
    spared: Vec<QueueName>,
) -> StoreResult<RecoveredBatch> {
    let now = engine.now();
    let seize = SeizeRequest {
        number: engine.backstop.random().lease_number(),
        worker: engine.name.clone(),
        until: now.after(engine.longest_lease()),
        max,
        spared,
    };
    // Seize before judging: from here on the old worker's word is stale.
    let SeizeResult { runs: seized, more } = engine.store().seize(seize, now).await?;
    let batch = RecoveredBatch {
        jobs: seized.len(),
        more,
    };
    if seized.is_empty() {
        return Ok(batch);
    }
    let known = engine
        .vanished_workers
        .including(&seized, now, engine.longest_lease());
    let mut settlements = judge_vanished(&seized, &known, now);
    for settlement in &mut settlements {
        if let Outcome::Dead { history, .. } = &mut settlement.outcome {
            *history = with_context(engine, history, now).await;
        }
    }
    put_back(engine, &seized, &settlements, now).await?;
    Ok(batch)
}

/// What is known of a death by crashes: above all whom it took along.
async fn with_context(engine: &Engine, history: &FailureHistory, now: Time) -> FailureHistory {
    let lost_workers = history.lost_workers(now, LOST_WITHIN);
    history.with_context(DeathContext {
        lost_workers,
        ..engine.context().await
    })
}

async fn put_back(
    engine: &Engine,
    seized: &[SeizedRun],
    settlements: &[Settlement],
    now: Time,
) -> StoreResult<()> {
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
            Ok(SettleOutcome::Applied) => {
                engine.tally.count_recovered(&settlement.outcome);
                metrics::count_recovered(queue, &settlement.outcome);
                if matches!(settlement.outcome, Outcome::Dead { .. }) {
                    engine.breakers.note_death_of(
                        (queue.clone(), seized.run.kind.clone()),
                        None,
                        true,
                    );
                }
                tracing::warn!(%job, %queue, %worker, "a worker vanished; its job was taken over");
            }
            Ok(SettleOutcome::Full) => {
                engine.breakers.note_death_of(
                    (queue.clone(), seized.run.kind.clone()),
                    None,
                    false,
                );
                refused.push(released_for_room(settlement, now));
            }
            Ok(SettleOutcome::Stale) => {}
            Ok(SettleOutcome::Unanswered) => {
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
pub(crate) struct VanishedWorkers(Mutex<BTreeMap<WorkerName, Time>>);

impl VanishedWorkers {
    /// All that are known, those of this batch included. What a worker held has expired two leases
    /// later.
    fn including(&self, batch: &[SeizedRun], now: Time, lease: Span) -> BTreeSet<WorkerName> {
        // One map, always whole.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, seen| now.since(*seen) <= lease.times(2));
        for worker in workers_lost_with_suspect_running(batch, now) {
            if known.len() < VANISHED_MAX {
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
        let mut sizer = BatchSizer::default();
        let next = |_: &usize| {
            let jobs = sizer.jobs();
            sizer.note_batch(Duration::from_micros(micros(jobs)));
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
        let mut sizer = BatchSizer::default();
        let mut batch = |fixed: u64| {
            let jobs = sizer.jobs();
            sizer.note_batch(Duration::from_micros(fixed + jobs as u64 * 30));
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
        let mut sizer = BatchSizer::default();
        for _ in 0..LOOKS {
            sizer.note_batch(Duration::from_millis(took.next().unwrap_or_default()));
        }
        sizer.note_batch(Duration::from_millis(3));
        assert_eq!(sizer.jobs(), BATCH_MIN);
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
