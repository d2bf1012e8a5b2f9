//! Makes due jobs ready, takes over what dead workers left, prunes what has ended, and keeps the
//! clock right.

use super::Engine;
use super::expired::Expired;
use super::grace::Grace;
use super::recover::{Left, Recovered, Stride, Turn, recover_some};
use super::tidy::Tidy;
use backstop_core::limits::PROMOTE_MAX;
use backstop_core::port::{Answer, Promoted};
use backstop_core::{Span, Time};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Promotions follow hints no closer than this: a busy store gives thousands a second.
const PROMOTE_GAP: Span = Span::millis(20);
/// Calls in a row before the other duties get their turn.
const ROUNDS_MAX: usize = 20;
/// The same for pruning, which must keep up with whatever rate jobs are done at.
const PRUNE_ROUNDS_MAX: usize = 500;
/// How often the store's clock is read.
const CLOCK_PERIOD: Span = Span::secs(10);
/// How often it is told how long runs took.
const SPREADS_PERIOD: Span = Span::minutes(1);
/// How long the last news of a worker that stops may take.
const LAST_NEWS: Duration = Duration::from_secs(2);

/// Keeps house until told to stop.
pub(crate) async fn keeper_loop(engine: &Engine, stop: &CancellationToken) {
    let mut hints = engine.store().watch();
    let mut duties = Duties::at_start(engine).await;
    loop {
        if duties.clock.is_due(engine.now(), CLOCK_PERIOD) {
            follow_clock(engine).await;
        }
        duties.grace.look(engine);
        let promoted = promote_all(engine).await;
        duties.grace.heard(
            engine,
            promoted
                .as_ref()
                .ok()
                .map(|promoted| &promoted.unanswered[..]),
        );
        duties.recover(engine).await;
        if duties.prune.is_due(engine.now(), engine.timing.prune) {
            prune_all(engine).await;
            duties.tidy.go_on(engine).await;
        }
        engine.overlaps.tell(engine).await;
        if duties.spreads.is_due(engine.now(), SPREADS_PERIOD) {
            write_spreads(engine).await;
        }
        let wait = if duties.more_expired {
            Span::ZERO
        } else {
            until_due(engine, promoted.ok().and_then(|promoted| promoted.next_due))
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = tokio::time::sleep(wait.max(PROMOTE_GAP).into()) => {}
            () = async {
                hints.next().await;
                tokio::time::sleep(PROMOTE_GAP.into()).await;
            } => {}
        }
    }
    // What the store does not take by then is in the log.
    let _ = tokio::time::timeout(LAST_NEWS, engine.overlaps.tell(engine)).await;
    let _ = tokio::time::timeout(LAST_NEWS, write_spreads(engine)).await;
}

fn until_due(engine: &Engine, next_due: Option<Time>) -> Span {
    let now = engine.now();
    next_due.map_or(engine.timing.sweep, |due| {
        due.since(now).min(engine.timing.sweep)
    })
}

struct Duties {
    sweep: Duty,
    prune: Duty,
    tidy: Tidy,
    clock: Duty,
    spreads: Duty,
    grace: Grace,
    stride: Stride,
    turn: Turn,
    expired: Expired,
    /// The last sweep stopped before it came to an end.
    more_expired: bool,
}

impl Duties {
    async fn at_start(engine: &Engine) -> Self {
        Self {
            sweep: Duty::default(),
            prune: Duty::default(),
            tidy: Tidy::default(),
            clock: Duty::default(),
            spreads: Duty(Some(engine.now())),
            grace: Grace::at_start(engine).await,
            stride: Stride::default(),
            turn: Turn::default(),
            expired: Expired::default(),
            more_expired: false,
        }
    }

    /// Takes over what dead workers left, if it is time to.
    async fn recover(&mut self, engine: &Engine) {
        let now = engine.now();
        let is_due = self.sweep.is_due(now, engine.timing.sweep) || self.more_expired;
        if !is_due {
            return;
        }
        if !self.grace.is_over(engine) {
            return self.expired.look(engine).await;
        }
        self.more_expired = false;
        let spared = self.grace.spared(engine);
        match recover_some(engine, &mut self.stride, &mut self.turn, &spared).await {
            Ok(Recovered { jobs, left }) => {
                if jobs > 0 {
                    tracing::info!(jobs, ?left, "expired leases were taken over");
                }
                self.more_expired = left == Left::More;
                if left == Left::None && spared.is_empty() {
                    return self.expired.none_left();
                }
            }
            Err(error) => tracing::warn!(%error, "jobs of dead workers were not taken over"),
        }
        self.expired.look(engine).await;
    }
}

/// When something was last done.
#[derive(Default)]
struct Duty(Option<Time>);

impl Duty {
    fn is_due(&mut self, now: Time, every: Span) -> bool {
        // A clock set back makes `since` zero: the duty is then done one period later, not hours.
        let due = self
            .0
            .is_none_or(|last| now < last || now.since(last) >= every);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// Makes ready what is due; answers when the next job is, and which queues did not say.
async fn promote_all(engine: &Engine) -> Answer<Promoted> {
    let mut last = Promoted::default();
    for _ in 0..ROUNDS_MAX {
        match engine.store().promote(PROMOTE_MAX, engine.now()).await {
            Ok(promoted) if promoted.moved < PROMOTE_MAX => return Ok(promoted),
            Ok(promoted) => last = promoted,
            Err(error) => {
                tracing::warn!(%error, "due jobs were not made ready");
                return Err(error);
            }
        }
    }
    Ok(Promoted {
        next_due: Some(engine.now()),
        ..last
    })
}

async fn prune_all(engine: &Engine) {
    for _ in 0..PRUNE_ROUNDS_MAX {
        match engine.store().prune(engine.retention(), engine.now()).await {
            Ok(pruned) => {
                if pruned.dead > 0 {
                    tracing::warn!(
                        count = pruned.dead,
                        "dead jobs were removed: their retention is over"
                    );
                }
                if !pruned.more {
                    return;
                }
            }
            Err(error) => return tracing::warn!(%error, "ended jobs were not pruned"),
        }
    }
}

async fn write_spreads(engine: &Engine) {
    if let Err(error) = engine.backstop.spreads().write().await {
        tracing::warn!(%error, "how long runs took is missing in the charts: the store did not take it");
    }
}

async fn follow_clock(engine: &Engine) {
    if let Err(error) = engine.backstop.follow_clock().await {
        tracing::warn!(%error, "the store's clock could not be read");
    }
}
