//! One claim, from what is asked for to what may run of it.
//!
//! | what came of it | what follows |
//! |---|---|
//! | it was answered | what was granted is held, and may run as far as rate limits let it |
//! | some queues did not answer, as those in a part of a cluster that is gone | the same for the others; those are asked again under the same number |
//! | nobody did | all are asked again under the same number: some may have been granted |
//! | it was answered so late that a lease counted from the question is as good as over | what was granted goes back: it may have been granted then |

use super::Engine;
use super::active_leases::margin;
use super::permission_errors::VitalCall;
use backstop_core::breaker::BreakerAdmission;
use backstop_core::plan::QueueQuota;
use backstop_core::port::{Claim, ClaimResult, StoreResult};
use backstop_core::verdict::Settlement;
use backstop_core::{LeasedRun, Outcome, QueueName, Span};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const WAIT_FIRST: Span = Span::millis(100);

/// A claim under way, or to be repeated because its answer was lost.
pub(super) struct ClaimRequest {
    pub(super) claim: Claim,
    /// What breakers let through: with a permit if the queue is on probation, and what for.
    pub(super) permits: Vec<Permit>,
    /// Leave that was asked for ahead, of queues over their rate limits.
    tokens: BTreeMap<QueueName, u32>,
    pub(super) term: Span,
    /// When it was asked for first: what the store grants may be counted from then.
    first_sent_at: Option<Instant>,
    /// How long to wait before it is asked for again.
    pub(super) wait: Span,
    /// The store refused it: nothing was granted.
    pub(super) is_refused: bool,
}

/// What came of a claim.
pub(super) struct ClaimResponse {
    /// What was asked for and answered, and what may run of it.
    pub(super) answer: StoreResult<(ClaimRequest, Vec<LeasedRun>)>,
    /// What is to be asked for again.
    pub(super) unanswered: Option<ClaimRequest>,
}

pub(super) type ClaimFuture = BoxFuture<'static, ClaimResponse>;

impl ClaimRequest {
    pub(super) fn new(engine: &Engine, claim: Claim, term: Span) -> Self {
        Self {
            permits: claim
                .wants
                .iter()
                .map(|want| Permit::of(engine, want))
                .collect(),
            claim,
            tokens: BTreeMap::new(),
            term,
            first_sent_at: None,
            wait: WAIT_FIRST,
            is_refused: false,
        }
    }

    /// The queues it is of.
    pub(super) fn queues(&self) -> Vec<QueueName> {
        self.permits
            .iter()
            .map(|permit| permit.queue.clone())
            .collect()
    }

    pub(super) fn includes(&self, queue: &QueueName) -> bool {
        self.permits.iter().any(|permit| permit.queue == *queue)
    }

    /// How long ago it was asked for first.
    pub(super) fn age(&self) -> Span {
        self.first_sent_at
            .map_or(Span::ZERO, |at| at.elapsed().into())
    }

    /// Asks for it after `wait`, unless nothing is to be asked for any more by then and this was
    /// not yet.
    pub(super) async fn send(
        mut self,
        engine: Arc<Engine>,
        ended: mpsc::Sender<Settlement>,
        wait: Span,
        closing: CancellationToken,
    ) -> ClaimResponse {
        if !wait.is_zero() {
            let _ = closing
                .run_until_cancelled(tokio::time::sleep(wait.into()))
                .await;
        }
        if self.first_sent_at.is_none() && closing.is_cancelled() {
            return ClaimResponse {
                answer: Ok((self, Vec::new())),
                unanswered: None,
            };
        }
        match self.claim(&engine).await {
            Ok(ClaimResult { runs, unanswered }) => {
                let (request, unanswered) = self.split(&unanswered);
                let granted = request.accept(&engine, &ended, runs).await;
                ClaimResponse {
                    answer: Ok((request, granted)),
                    unanswered,
                }
            }
            Err(error) => {
                self.is_refused = !error.is_transient();
                ClaimResponse {
                    answer: Err(error),
                    unanswered: Some(self),
                }
            }
        }
    }

    async fn claim(&mut self, engine: &Engine) -> StoreResult<ClaimResult> {
        let answer = self.claim_allowed(engine).await.transpose();
        if let Some(answer) = &answer {
            engine
                .permission_errors
                .note(VitalCall::Claim, answer, Instant::now());
        }
        answer.unwrap_or_else(|| Ok(ClaimResult::default()))
    }

    /// `None` if there was nothing to be asked for.
    async fn claim_allowed(&mut self, engine: &Engine) -> StoreResult<Option<ClaimResult>> {
        let now = engine.now();
        self.first_sent_at.get_or_insert_with(Instant::now);
        self.claim.until = now.after(self.term);
        get_permits(engine, self).await?;
        take_tokens(engine, self).await?;
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
        let (gone_permits, permits) = self
            .permits
            .into_iter()
            .partition(|permit| is_gone(&permit.queue));
        let (gone_tokens, tokens) = self
            .tokens
            .into_iter()
            .partition(|(queue, _)| is_gone(queue));
        (self.claim.wants, self.permits, self.tokens) = (there, permits, tokens);
        let claim = Claim {
            wants: gone,
            ..self.claim.clone()
        };
        let rest = Self {
            claim,
            permits: gone_permits,
            tokens: gone_tokens,
            ..self
        };
        (self, Some(rest))
    }

    /// Takes in what was granted; answers what may run of it.
    async fn accept(
        &self,
        engine: &Engine,
        ended: &mpsc::Sender<Settlement>,
        mut runs: Vec<LeasedRun>,
    ) -> Vec<LeasedRun> {
        // A store that has all queues in one answers a repeated claim with all that is left of it,
        // also of those that answered before.
        runs.retain(|run| {
            self.claim
                .wants
                .iter()
                .any(|want| want.queue == run.lease.queue)
        });
        let at = self.first_sent_at.unwrap_or_else(Instant::now);
        engine
            .active_leases
            .insert(self.claim.number, self.term, at, &runs);
        let is_late = self.age().plus(margin(self.term)) >= self.term;
        let (may_run, late) = if is_late {
            (Vec::new(), runs)
        } else {
            (runs, Vec::new())
        };
        engine
            .active_leases
            .note_settling(late.iter().map(|run| &run.lease));
        let (may_run, over) = apply_rate_limits(engine, self, may_run).await;
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
pub(super) struct Permit {
    pub(super) queue: QueueName,
    pub(super) epoch: u64,
    /// So many permits were got; `None` if none are needed.
    pub(super) granted: Option<u32>,
    /// Permits are needed, and not got yet.
    pub(super) is_probation: bool,
}

impl Permit {
    fn of(engine: &Engine, want: &QueueQuota) -> Self {
        let (epoch, is_probation) = match engine.admission(&want.queue) {
            BreakerAdmission::Unlimited { epoch } => (epoch, false),
            BreakerAdmission::Probes { epoch, .. } => (epoch, true),
            // It shut a moment ago: what the permits say decides.
            BreakerAdmission::Blocked { .. } => (0, true),
        };
        Self {
            queue: want.queue.clone(),
            epoch,
            granted: None,
            is_probation,
        }
    }
}

/// Asks leave for queues over their rate limits, and asks for no more jobs than they got.
async fn take_tokens(engine: &Engine, request: &mut ClaimRequest) -> StoreResult<()> {
    for want in &mut request.claim.wants {
        if engine.rate_limits.is_over(&want.queue) && !request.tokens.contains_key(&want.queue) {
            let wanted = u32::try_from(want.max).unwrap_or(u32::MAX);
            let grant = engine.take_tokens(&want.queue, wanted).await?.taken;
            request.tokens.insert(want.queue.clone(), grant);
            want.max = grant as usize;
        }
    }
    request.claim.wants.retain(|want| want.max > 0);
    Ok(())
}

/// What may run of what was granted, and what goes back because its queue is over its limit.
async fn apply_rate_limits(
    engine: &Engine,
    request: &ClaimRequest,
    granted: Vec<LeasedRun>,
) -> (Vec<LeasedRun>, Vec<Settlement>) {
    if !engine.has_rate_limits() {
        return (granted, Vec::new());
    }
    let (mut with_tokens, without): (Vec<_>, Vec<_>) = granted
        .into_iter()
        .partition(|leased| request.tokens.contains_key(&leased.lease.queue));
    for (queue, taken) in &request.tokens {
        let used = with_tokens
            .iter()
            .filter(|leased| leased.lease.queue == *queue)
            .count();
        engine
            .return_tokens(
                queue,
                taken.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX)),
            )
            .await;
    }
    let (may, over) = engine.within_rate(without, request.term).await;
    with_tokens.extend(may);
    (with_tokens, over)
}

/// Asks for permits where they are needed, and asks for no more jobs than there are. A claim that
/// is asked for again has its permits already.
async fn get_permits(engine: &Engine, request: &mut ClaimRequest) -> StoreResult<()> {
    for permit in request
        .permits
        .iter_mut()
        .filter(|permit| permit.is_probation && permit.granted.is_none())
    {
        let Some(want) = request
            .claim
            .wants
            .iter_mut()
            .find(|want| want.queue == permit.queue)
        else {
            continue;
        };
        let wanted = u32::try_from(want.max).unwrap_or(u32::MAX);
        let admitted = engine.admit(&permit.queue, wanted).await?;
        (permit.epoch, permit.granted) = (admitted.epoch, Some(admitted.calls));
        want.max = admitted.calls as usize;
    }
    request.claim.wants.retain(|want| want.max > 0);
    Ok(())
}
