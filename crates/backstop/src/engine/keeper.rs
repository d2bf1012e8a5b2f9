//! Makes due jobs ready, takes over what dead workers left, prunes what has ended, and keeps the clock right.

use super::Engine;
use super::settle::{given_back, settle_in_parts};
use super::tidy::Tidy;
use backstop_core::limits::{PROMOTE_MAX, SEIZE_MAX};
use backstop_core::port::{Answer, Seize, Seized, Settled};
use backstop_core::verdict::{Settlement, judge_lost};
use backstop_core::{Outcome, Span, Time};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Promotions follow hints no closer than this: a busy store gives thousands a second.
const PROMOTE_GAP: Span = Span::millis(20);
/// Calls in a row before the other duties get their turn.
const ROUNDS_MAX: usize = 20;
/// The same for pruning, which must keep up with whatever rate jobs are done at.
const PRUNE_ROUNDS_MAX: usize = 500;
/// How often the store's clock is read.
const CLOCK_PERIOD: Span = Span::secs(10);

/// Keeps house until told to stop.
pub(crate) async fn keeper_loop(engine: &Engine, stop: &CancellationToken) {
    let mut hints = engine.store().watch();
    let mut duties = Duties::default();
    loop {
        if duties.clock.is_due(engine.now(), CLOCK_PERIOD) {
            follow_clock(engine).await;
        }
        if duties.pace.jumped(engine.now()) {
            duties.grace_until = Some(engine.now().after(engine.longest_lease()));
            engine.beat_now.notify_one();
        }
        let next_due = promote_all(engine).await;
        let now = engine.now();
        if duties.sweep.is_due(now, engine.timing.sweep)
            && duties.grace_until.is_none_or(|until| until <= now)
        {
            recover_all(engine).await;
        }
        if duties.prune.is_due(now, engine.timing.prune) {
            prune_all(engine).await;
            duties.tidy.go_on(engine).await;
        }
        let now = engine.now();
        let wait = next_due.map_or(engine.timing.sweep, |due| due.since(now).min(engine.timing.sweep));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait.max(PROMOTE_GAP).into()) => {}
            () = async {
                hints.next().await;
                tokio::time::sleep(PROMOTE_GAP.into()).await;
            } => {}
        }
    }
}

#[derive(Default)]
struct Duties {
    sweep: Duty,
    prune: Duty,
    tidy: Tidy,
    clock: Duty,
    pace: Pace,
    /// Nothing is taken over before this. After the clock moved forward every lease looks expired, though its holder
    /// lives: all who follow the clock get one lease to beat on the new time line.
    grace_until: Option<Time>,
}

/// Compares the clock with this process's own: whoever moved it forward, every worker that goes by it must know.
#[derive(Default)]
struct Pace(Option<(Time, Instant)>);

impl Pace {
    /// What two readings may be apart without anybody having moved the clock.
    const NOISE: Span = Span::secs(1);

    /// Whether the clock moved forward, by more than time has passed.
    fn jumped(&mut self, now: Time) -> bool {
        let last = self.0.replace((now, Instant::now()));
        last.is_some_and(|(time, instant)| now.since(time) > Span::from(instant.elapsed()).plus(Self::NOISE))
    }
}

/// When something was last done.
#[derive(Default)]
struct Duty(Option<Time>);

impl Duty {
    fn is_due(&mut self, now: Time, every: Span) -> bool {
        // A clock set back makes `since` zero: the duty is then done one period later, not hours.
        let due = self.0.is_none_or(|last| now < last || now.since(last) >= every);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// Makes ready what is due; answers when the next job is.
async fn promote_all(engine: &Engine) -> Option<Time> {
    for _ in 0..ROUNDS_MAX {
        match engine.store().promote(PROMOTE_MAX, engine.now()).await {
            Ok(promoted) if promoted.moved < PROMOTE_MAX => return promoted.next_due,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "due jobs were not made ready");
                return None;
            }
        }
    }
    Some(engine.now())
}

async fn recover_all(engine: &Engine) {
    for _ in 0..ROUNDS_MAX {
        match recover(engine).await {
            Ok(recovered) if recovered < SEIZE_MAX => return,
            Ok(_) => {}
            Err(error) => return tracing::warn!(%error, "jobs of dead workers were not taken over"),
        }
    }
}

/// Takes over expired leases and puts their jobs back, or to rest; answers how many there were.
pub(crate) async fn recover(engine: &Engine) -> Answer<usize> {
    let now = engine.now();
    let seize = Seize {
        number: engine.backstop.random().lease_number(),
        worker: engine.name.clone(),
        until: now.after(engine.longest_lease()),
        max: SEIZE_MAX,
    };
    // Seize before judging: from here on the old worker's word is stale.
    let seized = engine.store().seize(seize, now).await?;
    if seized.is_empty() {
        return Ok(0);
    }
    let settlements: Vec<Settlement> = seized.iter().map(|seized| judge_seized(seized, now)).collect();
    let answers = settle_in_parts(engine, &settlements).await?;
    let mut refused = Vec::new();
    for ((seized, settlement), answer) in seized.iter().zip(&settlements).zip(answers) {
        let (job, queue, worker) = (seized.run.lease.job, &seized.run.lease.queue, &seized.vanished.worker);
        match answer {
            Ok(Settled::Applied) => {
                engine.tally.recovered(&settlement.outcome);
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
    Ok(seized.len())
}

fn judge_seized(seized: &Seized, now: Time) -> Settlement {
    let outcome = judge_lost(&seized.run, &seized.vanished, seized.begun, now);
    Settlement { lease: seized.run.lease.clone(), outcome }
}

async fn prune_all(engine: &Engine) {
    for _ in 0..PRUNE_ROUNDS_MAX {
        match engine.store().prune(engine.retention(), engine.now()).await {
            Ok(pruned) => {
                if pruned.dead > 0 {
                    tracing::warn!(count = pruned.dead, "dead jobs were removed: their retention is over");
                }
                if !pruned.more {
                    return;
                }
            }
            Err(error) => return tracing::warn!(%error, "ended jobs were not pruned"),
        }
    }
}

async fn follow_clock(engine: &Engine) {
    match engine.store().time().await {
        Ok(time) => {
            if let Some(off) = engine.backstop.clock().follow(time) {
                tracing::warn!(off_us = off, "the store's clock has moved; this worker follows it");
            }
        }
        Err(error) => tracing::warn!(%error, "the store's clock could not be read"),
    }
}
