//! One claim, from what is asked for to what may run of it.
//!
//! | what came of it | what follows |
//! |---|---|
//! | it was answered | what was granted is held, and may run as far as rate limits let it |
//! | some queues did not answer, as those in a part of a cluster that is gone | the same for the others; those are asked again under the same number |
//! | nobody did | all are asked again under the same number: some may have been granted |
//! | it was answered so late that a lease counted from the question is as good as over | what was granted goes back: it may have been granted then |

use super::Engine;
use super::held::margin;
use super::refusals::Vital;
use backstop_core::breaker::Admission;
use backstop_core::plan::Want;
use backstop_core::port::{Answer, Claim, Claimed};
use backstop_core::verdict::Settlement;
use backstop_core::{Leased, Outcome, QueueName, Span};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const WAIT_FIRST: Span = Span::millis(100);

/// A claim under way, or to be repeated because its answer was lost.
pub(super) struct Asked {
    pub(super) claim: Claim,
    /// What breakers let through: with a permit if the queue is on probation, and what for.
    pub(super) passes: Vec<Pass>,
    /// Leave that was asked for ahead, of queues over their rate limits.
    leave: BTreeMap<QueueName, u32>,
    pub(super) term: Span,
    /// When it was asked for first: what the store grants may be counted from then.
    at: Option<Instant>,
    /// How long to wait before it is asked for again.
    pub(super) wait: Span,
    /// The store refused it: nothing was granted.
    pub(super) is_refused: bool,
}

/// What came of a claim.
pub(super) struct Answered {
    /// What was asked for and answered, and what may run of it.
    pub(super) answer: Answer<(Asked, Vec<Leased>)>,
    /// What is to be asked for again.
    pub(super) unanswered: Option<Asked>,
}

pub(super) type Asking = BoxFuture<'static, Answered>;

impl Asked {
    pub(super) fn new(engine: &Engine, claim: Claim, term: Span) -> Self {
        Self {
            passes: claim
                .wants
                .iter()
                .map(|want| Pass::of(engine, want))
                .collect(),
            claim,
            leave: BTreeMap::new(),
            term,
            at: None,
            wait: WAIT_FIRST,
            is_refused: false,
        }
    }

    /// The queues it is of.
    pub(super) fn queues(&self) -> Vec<QueueName> {
        self.passes.iter().map(|pass| pass.queue.clone()).collect()
    }

    pub(super) fn is_of(&self, queue: &QueueName) -> bool {
        self.passes.iter().any(|pass| pass.queue == *queue)
    }

    /// How long ago it was asked for first.
    pub(super) fn age(&self) -> Span {
        self.at.map_or(Span::ZERO, |at| at.elapsed().into())
    }

    /// Asks for it after `wait`, unless nothing is to be asked for any more by then and this was
    /// not yet.
    pub(super) async fn ask(
        mut self,
        engine: Arc<Engine>,
        ended: mpsc::Sender<Settlement>,
        wait: Span,
        closing: CancellationToken,
    ) -> Answered {
        if !wait.is_zero() {
            let _ = closing
                .run_until_cancelled(tokio::time::sleep(wait.into()))
                .await;
        }
        if self.at.is_none() && closing.is_cancelled() {
            return Answered {
                answer: Ok((self, Vec::new())),
                unanswered: None,
            };
        }
        match self.claim(&engine).await {
            Ok(Claimed { runs, unanswered }) => {
                let (asked, unanswered) = self.split(&unanswered);
                let granted = asked.take(&engine, &ended, runs).await;
                Answered {
                    answer: Ok((asked, granted)),
                    unanswered,
                }
            }
            Err(error) => {
                self.is_refused = !error.is_transient();
                Answered {
                    answer: Err(error),
                    unanswered: Some(self),
                }
            }
        }
    }

    async fn claim(&mut self, engine: &Engine) -> Answer<Claimed> {
        let answer = self.allowed(engine).await.transpose();
        if let Some(answer) = &answer {
            engine.refusals.note(Vital::Claim, answer, Instant::now());
        }
        answer.unwrap_or_else(|| Ok(Claimed::default()))
    }

    /// `None` if there was nothing to be asked for.
    async fn allowed(&mut self, engine: &Engine) -> Answer<Option<Claimed>> {
        let now = engine.now();
        self.at.get_or_insert_with(Instant::now);
        self.claim.until = now.after(self.term);
        get_permits(engine, self).await?;
        get_leave(engine, self).await?;
        if self.claim.wants.is_empty() {
            return Ok(None);
        }
        engine
            .store()
            .claim(self.claim.clone(), now)
            .await
            .map(Some)
    }

    /// What is of these queues, apart.
    fn split(mut self, unanswered: &[QueueName]) -> (Self, Option<Self>) {
        if unanswered.is_empty() {
            return (self, None);
        }
        let is_gone = |queue: &QueueName| unanswered.contains(queue);
        let (gone, there) = self
            .claim
            .wants
            .into_iter()
            .partition(|want| is_gone(&want.queue));
        let (gone_passes, passes) = self
            .passes
            .into_iter()
            .partition(|pass| is_gone(&pass.queue));
        let (gone_leave, leave) = self
            .leave
            .into_iter()
            .partition(|(queue, _)| is_gone(queue));
        (self.claim.wants, self.passes, self.leave) = (there, passes, leave);
        let claim = Claim {
            wants: gone,
            ..self.claim.clone()
        };
        let rest = Self {
            claim,
            passes: gone_passes,
            leave: gone_leave,
            ..self
        };
        (self, Some(rest))
    }

    /// Takes in what was granted; answers what may run of it.
    async fn take(
        &self,
        engine: &Engine,
        ended: &mpsc::Sender<Settlement>,
        mut runs: Vec<Leased>,
    ) -> Vec<Leased> {
        // A store that has all queues in one answers a repeated claim with all that is left of it,
        // also of those that answered before.
        runs.retain(|run| {
            self.claim
                .wants
                .iter()
                .any(|want| want.queue == run.lease.queue)
        });
        let at = self.at.unwrap_or_else(Instant::now);
        engine.held.insert(self.claim.number, self.term, at, &runs);
        let is_late = self.age().plus(margin(self.term)) >= self.term;
        let (may_run, late) = if is_late {
            (Vec::new(), runs)
        } else {
            (runs, Vec::new())
        };
        engine.held.settling(late.iter().map(|run| &run.lease));
        let (may_run, over) = heed_rates(engine, self, may_run).await;
        let now = engine.now();
        let late = late.into_iter().map(|run| Settlement {
            lease: run.lease,
            outcome: Outcome::Released { at: now },
        });
        for settlement in late.chain(over) {
            let _ = ended.send(settlement).await;
        }
        may_run
    }
}

/// What a breaker lets through of one queue, for one claim.
pub(super) struct Pass {
    pub(super) queue: QueueName,
    pub(super) epoch: u64,
    /// So many permits were got; `None` if none are needed.
    pub(super) permits: Option<u32>,
    /// Permits are needed, and not got yet.
    pub(super) is_probation: bool,
}

impl Pass {
    fn of(engine: &Engine, want: &Want) -> Self {
        let (epoch, is_probation) = match engine.admission(&want.queue) {
            Admission::Freely { epoch } => (epoch, false),
            Admission::Probes { epoch, .. } => (epoch, true),
            // It shut a moment ago: what the permits say decides.
            Admission::Not { .. } => (0, true),
        };
        Self {
            queue: want.queue.clone(),
            epoch,
            permits: None,
            is_probation,
        }
    }
}

/// Asks leave for queues over their rate limits, and asks for no more jobs than they got.
async fn get_leave(engine: &Engine, asked: &mut Asked) -> Answer<()> {
    for want in &mut asked.claim.wants {
        if engine.rates.is_over(&want.queue) && !asked.leave.contains_key(&want.queue) {
            let wanted = u32::try_from(want.max).unwrap_or(u32::MAX);
            let leave = engine.ask_leave(&want.queue, wanted).await?.taken;
            asked.leave.insert(want.queue.clone(), leave);
            want.max = leave as usize;
        }
    }
    asked.claim.wants.retain(|want| want.max > 0);
    Ok(())
}

/// What may run of what was granted, and what goes back because its queue is over its limit.
async fn heed_rates(
    engine: &Engine,
    asked: &Asked,
    granted: Vec<Leased>,
) -> (Vec<Leased>, Vec<Settlement>) {
    if !engine.has_rate_limits() {
        return (granted, Vec::new());
    }
    let (mut with_leave, without): (Vec<_>, Vec<_>) = granted
        .into_iter()
        .partition(|leased| asked.leave.contains_key(&leased.lease.queue));
    for (queue, leave) in &asked.leave {
        let used = with_leave
            .iter()
            .filter(|leased| leased.lease.queue == *queue)
            .count();
        engine
            .return_leave(
                queue,
                leave.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX)),
            )
            .await;
    }
    let (may, over) = engine.within_rate(without, asked.term).await;
    with_leave.extend(may);
    (with_leave, over)
}

/// Asks for permits where they are needed, and asks for no more jobs than there are. A claim that
/// is asked for again has its permits already.
async fn get_permits(engine: &Engine, asked: &mut Asked) -> Answer<()> {
    for pass in asked
        .passes
        .iter_mut()
        .filter(|pass| pass.is_probation && pass.permits.is_none())
    {
        let Some(want) = asked
            .claim
            .wants
            .iter_mut()
            .find(|want| want.queue == pass.queue)
        else {
            continue;
        };
        let wanted = u32::try_from(want.max).unwrap_or(u32::MAX);
        let admitted = engine.admit(&pass.queue, wanted).await?;
        (pass.epoch, pass.permits) = (admitted.epoch, Some(admitted.calls));
        want.max = admitted.calls as usize;
    }
    asked.claim.wants.retain(|want| want.max > 0);
    Ok(())
}
