//! Claims jobs and keeps handlers busy.

use super::Engine;
use super::claim::{ClaimFuture, ClaimRequest, ClaimResponse};
use super::execute::run_through_gate;
use super::queue_buffer::{BufferedJob, QueueBuffer, SuspicionLevel};
use super::settle::WAITING_MAX;
use super::suspects::{LocalSuspectGuard, QUIET_WAIT};
use crate::worker::QueueSettings;
use backstop_core::blame::{is_at_last_strike, is_suspect};
use backstop_core::breaker::{BreakerAdmission, CallOutcome};
use backstop_core::limits::CLAIM_JOBS_MAX;
use backstop_core::plan::{QueueLoad, QueueQuota, is_cut_short, plan_claim};
use backstop_core::port::Claim;
use backstop_core::verdict::{Outcome, Settlement};
use backstop_core::{Lease, LeasedRun, QueueName, Span};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const CLAIM_RETRY_LAST: Span = Span::secs(2);

pub(crate) struct Dispatcher {
    engine: Arc<Engine>,
    buffers: Vec<QueueBuffer>,
    ended: mpsc::Sender<Settlement>,
    runs: TaskTracker,
    /// Rung whenever a run ends: its handler is free.
    freed: Arc<Notify>,
    turn: usize,
    /// Since when a suspect at its last strike waits for what runs to end.
    quiet_since: Option<Instant>,
    /// Claims that were not answered, asked for again. A queue that does not answer, as one in a
    /// part of a cluster may be, holds up no other.
    repeated_claims: FuturesUnordered<ClaimFuture>,
    /// Nothing that was not asked for yet is asked for any more.
    closing: CancellationToken,
}

impl Dispatcher {
    pub(crate) fn new(
        engine: Arc<Engine>,
        ended: mpsc::Sender<Settlement>,
        runs: TaskTracker,
    ) -> Self {
        let buffers = engine
            .queues
            .iter()
            .map(|(queue, settings)| QueueBuffer::new(queue, settings))
            .collect();
        Self {
            engine,
            buffers,
            ended,
            runs,
            freed: Arc::default(),
            turn: 0,
            quiet_since: None,
            repeated_claims: FuturesUnordered::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Claims and runs until told to stop; then gives back what was claimed and not begun.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let engine = Arc::clone(&self.engine);
        let mut hints = engine.store().watch();
        let mut poll = tokio::time::interval(self.engine.timing.poll.into());
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut claim: Option<ClaimFuture> = None;
        loop {
            if self.engine.worker_commands.takes_jobs() {
                self.start_buffered();
            } else {
                self.release_all().await;
            }
            if claim.is_none() {
                claim = self
                    .next_claim(|_| true)
                    .map(|request| self.send_claim(request, self.engine.backoff()));
            }
            tokio::select! {
                biased;
                response = next_response(&mut claim) => {
                    claim = None;
                    self.handle_response(response);
                }
                Some(response) = self.repeated_claims.next(), if !self.repeated_claims.is_empty() => self.handle_response(response),
                () = stop.cancelled() => break,
                () = engine.permission_errors.wait_until_final() => break,
                // Its own timer, not one that every event sets back: hints may be lost, polling is
                // the truth.
                _ = poll.tick() => {
                    self.clear_dry();
                    self.return_idle().await;
                }
                () = hints.next() => {
                    self.mark_hinted();
                    self.clear_dry();
                }
                () = self.freed.notified() => {}
                () = engine.suspects.freed() => {}
                () = rate_limit_passed(&engine) => self.clear_dry(),
                () = engine.worker_commands.changed.notified() => self.clear_dry(),
                () = engine.breakers.changed.notified() => {
                    self.clear_dry();
                    self.return_shut_off().await;
                }
            }
        }
        // The claims may have been granted: wait for their answers, or their jobs would be stuck
        // until the lease ends.
        self.closing.cancel();
        let mut last = std::mem::take(&mut self.repeated_claims);
        last.extend(claim);
        while let Some(response) = last.next().await {
            self.handle_response(response);
        }
        // What was not answered now either is not asked for again.
        self.repeated_claims.clear();
        self.release_all().await;
    }

    /// Answers that are under way may be older than the hint.
    fn mark_hinted(&mut self) {
        for buffer in &mut self.buffers {
            buffer.hinted = true;
        }
    }

    fn clear_dry(&mut self) {
        for buffer in &mut self.buffers {
            buffer.dry = false;
        }
    }

    fn start_buffered(&mut self) {
        if self.engine.suspects.is_quiet() || self.waits_for_quiet() {
            return;
        }
        for at in 0..self.buffers.len() {
            let is_shut = self.is_breaker_open(at);
            while let Some((waiting, guard)) =
                self.buffers[at].next_to_start(is_shut, &self.engine.suspects)
            {
                self.start(at, waiting, guard);
            }
        }
    }

    /// Whether a suspect at its last strike waits for what runs to end. Once nothing does, or it
    /// has waited for long enough, it starts.
    fn waits_for_quiet(&mut self) -> bool {
        let wants_quiet = |at: &usize| self.buffers[*at].has_last_strike(self.is_breaker_open(*at));
        let Some(at) = (0..self.buffers.len())
            .find(wants_quiet)
            .filter(|_| self.engine.suspects.is_free())
        else {
            self.quiet_since = None;
            return false;
        };
        let is_quiet = self
            .buffers
            .iter()
            .all(|buffer| buffer.running.load(Ordering::Acquire) == 0);
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        if !is_quiet && since.elapsed() < QUIET_WAIT {
            return true;
        }
        self.quiet_since = None;
        let is_shut = self.is_breaker_open(at);
        let Some((waiting, guard)) =
            self.buffers[at].next_last_strike(is_shut, &self.engine.suspects)
        else {
            return false;
        };
        guard.keep_quiet();
        self.start(at, waiting, Some(guard));
        true
    }

    fn start(
        &mut self,
        at: usize,
        BufferedJob { leased, epoch, .. }: BufferedJob,
        guard: Option<Arc<LocalSuspectGuard>>,
    ) {
        let buffer = &self.buffers[at];
        let settings = Arc::clone(&buffer.settings);
        let (engine, ended) = (Arc::clone(&self.engine), self.ended.clone());
        let slot =
            HandlerSlotGuard::take(&engine, &buffer.running, &self.freed, leased.lease.clone());
        if let Some(guard) = &guard {
            engine
                .active_leases
                .hold_suspect_slot(&leased.lease, Arc::clone(guard));
        }
        self.runs.spawn(async move {
            // Also while a run that was called off goes on.
            let _alone = guard;
            let settlement = run_through_gate(&engine, &settings, leased, epoch).await;
            if let Some(settlement) = settlement {
                // Waits while the store is behind: no handler is free for more before its last work
                // is on its way.
                let _ = ended.send(settlement).await;
            }
            slot.disarm();
        });
    }

    /// What to ask for now, of these queues. Those with the same lease go into one claim.
    fn next_claim(&mut self, of: impl Fn(&QueueName) -> bool) -> Option<ClaimRequest> {
        let waits = self.quiet_since.is_some()
            || self.engine.suspects.is_quiet()
            || self
                .engine
                .permission_errors
                .should_hold_claims(Instant::now())
            || self.engine.unanswered.load(Ordering::Relaxed) >= WAITING_MAX;
        if waits || !self.engine.worker_commands.takes_jobs() {
            return None;
        }
        let open = |buffer: &&QueueBuffer| {
            !buffer.dry
                && !buffer.unanswered
                && of(&buffer.queue)
                && !matches!(
                    self.engine.admission(&buffer.queue),
                    BreakerAdmission::Blocked { .. }
                )
                && !self.engine.rate_limits.is_shut(&buffer.queue)
        };
        let buffers: Vec<QueueLoad> = self
            .buffers
            .iter()
            .filter(open)
            .map(QueueBuffer::queue_load)
            .collect();
        let wanted = plan_claim(&buffers, CLAIM_JOBS_MAX, self.turn);
        self.turn = self.turn.wrapping_add(1);
        let term = self.term_of(wanted.first()?)?;
        let wants: Vec<QueueQuota> = wanted
            .into_iter()
            .filter(|want| self.term_of(want) == Some(term))
            .collect();
        let number = self.engine.backstop.random().lease_number();
        let until = self.engine.now().after(term);
        for buffer in &mut self.buffers {
            buffer.hinted &= !wants.iter().any(|want| want.queue == buffer.queue);
        }
        let claim = Claim {
            number,
            worker: self.engine.name.clone(),
            until,
            wants,
        };
        Some(ClaimRequest::new(&self.engine, claim, term))
    }

    fn send_claim(&self, request: ClaimRequest, wait: Span) -> ClaimFuture {
        let (engine, ended) = (Arc::clone(&self.engine), self.ended.clone());
        request
            .send(engine, ended, wait, self.closing.clone())
            .boxed()
    }

    fn term_of(&self, want: &QueueQuota) -> Option<Span> {
        self.engine
            .queues
            .get(&want.queue)
            .map(|settings: &QueueSettings| settings.lease)
    }

    /// Takes in the answer of a claim. What was not answered is asked for again under the same
    /// number: the store may have granted it.
    fn handle_response(&mut self, ClaimResponse { answer, unanswered }: ClaimResponse) {
        let answered_request = answer.as_ref().ok().map(|(request, _)| request);
        for request in answered_request.into_iter().chain(&unanswered) {
            for buffer in self
                .buffers
                .iter_mut()
                .filter(|buffer| request.includes(&buffer.queue))
            {
                buffer.unanswered = false;
            }
        }
        match answer {
            Ok((request, granted)) => {
                if request.age() > request.term.scaled(0.3) {
                    // The answer took a good part of the lease: the next beat must not wait for its
                    // time.
                    self.engine.beat_requested.notify_one();
                }
                self.buffer_jobs(&request, granted);
            }
            Err(error) => tracing::warn!(%error, "a claim was not answered; asking again"),
        }
        if let Some(unanswered) = unanswered {
            self.repeat_claim(unanswered);
        }
    }

    /// Asks again, a while later. After a lease nothing that was granted can still be there, unless
    /// something that is held here has kept all of that claim alive: then its number is the only
    /// way to it.
    fn repeat_claim(&mut self, request: ClaimRequest) {
        let (of, wait) = (
            request.queues(),
            request
                .wait
                .scaled(0.5 + self.engine.backstop.random().unit()),
        );
        let next_wait = request.wait.times(2).min(CLAIM_RETRY_LAST);
        let is_over = request.age().plus(wait) >= request.term
            && !self.engine.active_leases.holds_any(request.claim.number);
        let repeat = if request.is_refused || is_over {
            self.next_claim(|queue| of.contains(queue))
        } else {
            Some(request)
        };
        let Some(mut repeat) = repeat else { return };
        repeat.wait = next_wait;
        for buffer in self
            .buffers
            .iter_mut()
            .filter(|buffer| repeat.includes(&buffer.queue))
        {
            buffer.unanswered = true;
        }
        self.repeated_claims.push(self.send_claim(repeat, wait));
    }

    fn buffer_jobs(&mut self, request: &ClaimRequest, granted: Vec<LeasedRun>) {
        for permit in &request.permits {
            let used = granted
                .iter()
                .filter(|leased| leased.lease.queue == permit.queue)
                .count();
            let used = u32::try_from(used).unwrap_or(u32::MAX);
            for _ in used..permit.granted.unwrap_or(0) {
                self.engine
                    .report(&permit.queue, permit.epoch, CallOutcome::Neutral);
            }
        }
        for buffer in &mut self.buffers {
            // No permits were left: whoever has them says when it may be tried again.
            if request
                .permits
                .iter()
                .any(|pass| pass.queue == buffer.queue && pass.granted == Some(0))
            {
                buffer.dry = true;
            }
            if let Some(want) = request
                .claim
                .wants
                .iter()
                .find(|want| want.queue == buffer.queue)
            {
                let got = granted
                    .iter()
                    .filter(|leased| leased.lease.queue == buffer.queue)
                    .count();
                buffer.dry = got < want.max
                    && !buffer.hinted
                    && !is_cut_short(&buffer.queue, &request.claim.wants, &granted);
            }
        }
        let now = self.engine.now();
        for leased in granted {
            if let Some(buffer) = self
                .buffers
                .iter_mut()
                .find(|buffer| buffer.queue == leased.lease.queue)
            {
                let permit = request
                    .permits
                    .iter()
                    .find(|permit| permit.queue == buffer.queue);
                let (epoch, is_probe) =
                    permit.map_or((0, false), |pass| (pass.epoch, pass.is_probation));
                let suspicion = match (is_suspect(&leased, now), is_at_last_strike(&leased, now)) {
                    (_, true) => SuspicionLevel::LastStrike,
                    (true, false) => SuspicionLevel::Suspect,
                    (false, false) => SuspicionLevel::Ordinary,
                };
                buffer.push(leased, epoch, is_probe, suspicion);
            }
        }
    }

    /// Gives back what has waited here for longer than a poll: another worker may have a handler
    /// free for it.
    async fn return_idle(&mut self) {
        for at in 0..self.buffers.len() {
            if self.buffers[at].is_hoarding(self.engine.timing.poll) {
                let all = self.buffers[at].drain_all();
                self.release(all).await;
            }
            let suspects = self.buffers[at]
                .drain_impatient_suspects(self.engine.timing.poll, self.quiet_since.is_some());
            if !suspects.is_empty() {
                // They go back to the head of the line: others, with their place free, may have
                // them first.
                self.engine.note_unrunnable();
                self.release(suspects).await;
            }
        }
    }

    fn is_breaker_open(&self, at: usize) -> bool {
        matches!(
            self.engine.admission(&self.buffers[at].queue),
            BreakerAdmission::Blocked { .. }
        )
    }

    /// Gives back what waits for a service that is to be left alone.
    async fn return_shut_off(&mut self) {
        for at in 0..self.buffers.len() {
            if self.is_breaker_open(at) {
                let ordinary = self.buffers[at].drain_without_permit();
                self.release(ordinary).await;
            }
        }
    }

    /// Gives back whatever was claimed and not begun.
    async fn release_all(&mut self) {
        for at in 0..self.buffers.len() {
            let all = self.buffers[at].drain_all();
            self.release(all).await;
        }
    }

    async fn release(&mut self, unused: Vec<BufferedJob>) {
        let now = self.engine.now();
        let mut tokens: BTreeMap<QueueName, u32> = BTreeMap::new();
        for BufferedJob { leased, epoch, .. } in unused {
            self.engine
                .report(&leased.lease.queue, epoch, CallOutcome::Neutral);
            *tokens.entry(leased.lease.queue.clone()).or_default() += 1;
            let outcome = Outcome::Released { at: now };
            let _ = self
                .ended
                .send(Settlement {
                    lease: leased.lease,
                    outcome,
                })
                .await;
        }
        // Leave that was got for them is for others.
        for (queue, unused) in tokens {
            self.engine.return_tokens(&queue, unused).await;
        }
    }
}

/// Returns when a queue that was over its rate limit may be looked at again; never, if there is
/// none.
async fn rate_limit_passed(engine: &Engine) {
    match engine.rate_limits.next_look() {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The answer of the claim under way; never, if there is none.
async fn next_response(claim: &mut Option<ClaimFuture>) -> ClaimResponse {
    match claim {
        Some(claim) => claim.await,
        None => std::future::pending().await,
    }
}

/// A handler's place while it is taken. However the run ends, even by a panic that nobody caught,
/// the place is free again, and a lease that was not settled is not beaten for any more.
struct HandlerSlotGuard {
    engine: Arc<Engine>,
    running: Arc<AtomicUsize>,
    freed: Arc<Notify>,
    unsettled: Option<Lease>,
}

impl HandlerSlotGuard {
    fn take(
        engine: &Arc<Engine>,
        running: &Arc<AtomicUsize>,
        freed: &Arc<Notify>,
        lease: Lease,
    ) -> Self {
        running.fetch_add(1, Ordering::AcqRel);
        Self {
            engine: Arc::clone(engine),
            running: Arc::clone(running),
            freed: Arc::clone(freed),
            unsettled: Some(lease),
        }
    }

    /// The end of the run is on its way to the store.
    fn disarm(mut self) {
        self.unsettled = None;
    }
}

impl Drop for HandlerSlotGuard {
    fn drop(&mut self) {
        if let Some(lease) = &self.unsettled {
            self.engine.active_leases.remove(lease);
            self.engine.active_leases.note_run_end(lease);
        }
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
    }
}
