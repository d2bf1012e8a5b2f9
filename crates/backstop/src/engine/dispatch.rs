//! Claims jobs and keeps handlers busy.

use super::Engine;
use super::asked::{Answered, Asked, Asking};
use super::execute::pass;
use super::lane::{ServedQueue, Standing, Waiting};
use super::settle::WAITING_MAX;
use super::suspects::{Alone, QUIET_WAIT};
use crate::worker::QueueSettings;
use backstop_core::blame::{is_at_last_strike, is_suspect};
use backstop_core::breaker::{Admission, Sign};
use backstop_core::limits::CLAIM_JOBS_MAX;
use backstop_core::plan::{Lane, Want, is_cut_short, wants};
use backstop_core::port::Claim;
use backstop_core::verdict::{Outcome, Settlement};
use backstop_core::{Lease, Leased, QueueName, Span};
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

/// The loop that claims.
pub(crate) struct Dispatcher {
    engine: Arc<Engine>,
    lanes: Vec<ServedQueue>,
    ended: mpsc::Sender<Settlement>,
    runs: TaskTracker,
    /// Rung whenever a run ends: its handler is free.
    freed: Arc<Notify>,
    turn: usize,
    /// Since when a suspect at its last strike waits for what runs to end.
    quiet_since: Option<Instant>,
    /// Claims that were not answered, asked for again. A queue that does not answer, as one in a
    /// part of a cluster may be, holds up no other.
    again: FuturesUnordered<Asking>,
    /// Nothing that was not asked for yet is asked for any more.
    closing: CancellationToken,
}

impl Dispatcher {
    pub(crate) fn new(
        engine: Arc<Engine>,
        ended: mpsc::Sender<Settlement>,
        runs: TaskTracker,
    ) -> Self {
        let lanes = engine
            .queues
            .iter()
            .map(|(queue, settings)| ServedQueue::new(queue, settings))
            .collect();
        Self {
            engine,
            lanes,
            ended,
            runs,
            freed: Arc::default(),
            turn: 0,
            quiet_since: None,
            again: FuturesUnordered::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Claims and runs until told to stop; then gives back what was claimed and not begun.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let engine = Arc::clone(&self.engine);
        let mut hints = engine.store().watch();
        let mut poll = tokio::time::interval(self.engine.timing.poll.into());
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut asking: Option<Asking> = None;
        loop {
            if self.engine.orders.takes_jobs() {
                self.start_buffered();
            } else {
                self.give_back_all().await;
            }
            if asking.is_none() {
                asking = self
                    .next_claim(|_| true)
                    .map(|asked| self.ask(asked, self.engine.courtesy()));
            }
            tokio::select! {
                biased;
                answered = answer_of(&mut asking) => {
                    asking = None;
                    self.answered(answered);
                }
                Some(answered) = self.again.next(), if !self.again.is_empty() => self.answered(answered),
                () = stop.cancelled() => break,
                () = engine.refusals.finally() => break,
                // Its own timer, not one that every event sets back: hints may be lost, polling is
                // the truth.
                _ = poll.tick() => {
                    self.look_again();
                    self.share_idle().await;
                }
                () = hints.next() => {
                    self.hint();
                    self.look_again();
                }
                () = self.freed.notified() => {}
                () = engine.suspects.freed() => {}
                () = room_again(&engine) => self.look_again(),
                () = engine.orders.changed.notified() => self.look_again(),
                () = engine.guards.changed.notified() => {
                    self.look_again();
                    self.leave_alone().await;
                }
            }
        }
        // The claims may have been granted: wait for their answers, or their jobs would be stuck
        // until the lease ends.
        self.closing.cancel();
        let mut last = std::mem::take(&mut self.again);
        last.extend(asking);
        while let Some(answered) = last.next().await {
            self.answered(answered);
        }
        // What was not answered now either is not asked for again.
        self.again.clear();
        self.give_back_all().await;
    }

    /// Answers that are under way may be older than the hint.
    fn hint(&mut self) {
        for lane in &mut self.lanes {
            lane.hinted = true;
        }
    }

    fn look_again(&mut self) {
        for lane in &mut self.lanes {
            lane.dry = false;
        }
    }

    fn start_buffered(&mut self) {
        if self.engine.suspects.is_quiet() || self.awaits_quiet() {
            return;
        }
        for at in 0..self.lanes.len() {
            let is_shut = self.is_shut(at);
            while let Some((waiting, alone)) =
                self.lanes[at].next_to_start(is_shut, &self.engine.suspects)
            {
                self.start(at, waiting, alone);
            }
        }
    }

    /// Whether a suspect at its last strike waits for what runs to end. Once nothing does, or it
    /// has waited for long enough, it starts.
    fn awaits_quiet(&mut self) -> bool {
        let wants_quiet = |at: &usize| self.lanes[*at].has_last_strike(self.is_shut(*at));
        let Some(at) = (0..self.lanes.len())
            .find(wants_quiet)
            .filter(|_| self.engine.suspects.is_free())
        else {
            self.quiet_since = None;
            return false;
        };
        let is_quiet = self
            .lanes
            .iter()
            .all(|lane| lane.running.load(Ordering::Acquire) == 0);
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        if !is_quiet && since.elapsed() < QUIET_WAIT {
            return true;
        }
        self.quiet_since = None;
        let is_shut = self.is_shut(at);
        let Some((waiting, alone)) =
            self.lanes[at].next_last_strike(is_shut, &self.engine.suspects)
        else {
            return false;
        };
        alone.keep_quiet();
        self.start(at, waiting, Some(alone));
        true
    }

    fn start(
        &mut self,
        at: usize,
        Waiting { leased, epoch, .. }: Waiting,
        alone: Option<Arc<Alone>>,
    ) {
        let lane = &self.lanes[at];
        let settings = Arc::clone(&lane.settings);
        let (engine, ended) = (Arc::clone(&self.engine), self.ended.clone());
        let slot = Slot::take(&engine, &lane.running, &self.freed, leased.lease.clone());
        if let Some(alone) = &alone {
            engine.held.keep_alone(&leased.lease, Arc::clone(alone));
        }
        self.runs.spawn(async move {
            // Also while a run that was called off goes on.
            let _alone = alone;
            let settlement = pass(&engine, &settings, leased, epoch).await;
            if let Some(settlement) = settlement {
                // Waits while the store is behind: no handler is free for more before its last work
                // is on its way.
                let _ = ended.send(settlement).await;
            }
            slot.leave();
        });
    }

    /// What to ask for now, of these queues. Those with the same lease go into one claim.
    fn next_claim(&mut self, of: impl Fn(&QueueName) -> bool) -> Option<Asked> {
        let waits = self.quiet_since.is_some()
            || self.engine.suspects.is_quiet()
            || self.engine.refusals.holds_claims(Instant::now())
            || self.engine.unanswered.load(Ordering::Relaxed) >= WAITING_MAX;
        if waits || !self.engine.orders.takes_jobs() {
            return None;
        }
        let open = |lane: &&ServedQueue| {
            !lane.dry
                && !lane.unanswered
                && of(&lane.queue)
                && !matches!(self.engine.admission(&lane.queue), Admission::Not { .. })
                && !self.engine.rates.is_shut(&lane.queue)
        };
        let lanes: Vec<Lane> = self
            .lanes
            .iter()
            .filter(open)
            .map(ServedQueue::lane)
            .collect();
        let wanted = wants(&lanes, CLAIM_JOBS_MAX, self.turn);
        self.turn = self.turn.wrapping_add(1);
        let term = self.term_of(wanted.first()?)?;
        let wants: Vec<Want> = wanted
            .into_iter()
            .filter(|want| self.term_of(want) == Some(term))
            .collect();
        let number = self.engine.backstop.random().lease_number();
        let until = self.engine.now().after(term);
        for lane in &mut self.lanes {
            lane.hinted &= !wants.iter().any(|want| want.queue == lane.queue);
        }
        let claim = Claim {
            number,
            worker: self.engine.name.clone(),
            until,
            wants,
        };
        Some(Asked::new(&self.engine, claim, term))
    }

    fn ask(&self, asked: Asked, wait: Span) -> Asking {
        let (engine, ended) = (Arc::clone(&self.engine), self.ended.clone());
        asked.ask(engine, ended, wait, self.closing.clone()).boxed()
    }

    fn term_of(&self, want: &Want) -> Option<Span> {
        self.engine
            .queues
            .get(&want.queue)
            .map(|settings: &QueueSettings| settings.lease)
    }

    /// Takes in the answer of a claim. What was not answered is asked for again under the same
    /// number: the store may have granted it.
    fn answered(&mut self, Answered { answer, unanswered }: Answered) {
        let answered = answer.as_ref().ok().map(|(asked, _)| asked);
        for asked in answered.into_iter().chain(&unanswered) {
            for lane in self
                .lanes
                .iter_mut()
                .filter(|lane| asked.is_of(&lane.queue))
            {
                lane.unanswered = false;
            }
        }
        match answer {
            Ok((asked, granted)) => {
                if asked.age() > asked.term.scaled(0.3) {
                    // The answer took a good part of the lease: the next beat must not wait for its
                    // time.
                    self.engine.beat_now.notify_one();
                }
                self.take_in(&asked, granted);
            }
            Err(error) => tracing::warn!(%error, "a claim was not answered; asking again"),
        }
        if let Some(unanswered) = unanswered {
            self.ask_again(unanswered);
        }
    }

    /// Asks again, a while later. After a lease nothing that was granted can still be there, unless
    /// something that is held here has kept all of that claim alive: then its number is the only
    /// way to it.
    fn ask_again(&mut self, asked: Asked) {
        let (of, wait) = (
            asked.queues(),
            asked
                .wait
                .scaled(0.5 + self.engine.backstop.random().unit()),
        );
        let next_wait = asked.wait.times(2).min(CLAIM_RETRY_LAST);
        let is_over =
            asked.age().plus(wait) >= asked.term && !self.engine.held.holds_any(asked.claim.number);
        let again = if asked.is_refused || is_over {
            self.next_claim(|queue| of.contains(queue))
        } else {
            Some(asked)
        };
        let Some(mut again) = again else { return };
        again.wait = next_wait;
        for lane in self
            .lanes
            .iter_mut()
            .filter(|lane| again.is_of(&lane.queue))
        {
            lane.unanswered = true;
        }
        self.again.push(self.ask(again, wait));
    }

    fn take_in(&mut self, asked: &Asked, granted: Vec<Leased>) {
        for pass in &asked.passes {
            let used = granted
                .iter()
                .filter(|leased| leased.lease.queue == pass.queue)
                .count();
            let used = u32::try_from(used).unwrap_or(u32::MAX);
            for _ in used..pass.permits.unwrap_or(0) {
                self.engine.report(&pass.queue, pass.epoch, Sign::Neutral);
            }
        }
        for lane in &mut self.lanes {
            // No permits were left: whoever has them says when it may be tried again.
            if asked
                .passes
                .iter()
                .any(|pass| pass.queue == lane.queue && pass.permits == Some(0))
            {
                lane.dry = true;
            }
            if let Some(want) = asked
                .claim
                .wants
                .iter()
                .find(|want| want.queue == lane.queue)
            {
                let got = granted
                    .iter()
                    .filter(|leased| leased.lease.queue == lane.queue)
                    .count();
                lane.dry = got < want.max
                    && !lane.hinted
                    && !is_cut_short(&lane.queue, &asked.claim.wants, &granted);
            }
        }
        let now = self.engine.now();
        for leased in granted {
            if let Some(lane) = self
                .lanes
                .iter_mut()
                .find(|lane| lane.queue == leased.lease.queue)
            {
                let pass = asked.passes.iter().find(|pass| pass.queue == lane.queue);
                let (epoch, is_probe) =
                    pass.map_or((0, false), |pass| (pass.epoch, pass.is_probation));
                let standing = match (is_suspect(&leased, now), is_at_last_strike(&leased, now)) {
                    (_, true) => Standing::LastStrike,
                    (true, false) => Standing::Suspect,
                    (false, false) => Standing::Ordinary,
                };
                lane.take_in(leased, epoch, is_probe, standing);
            }
        }
    }

    /// Gives back what has waited here for longer than a poll: another worker may have a handler
    /// free for it.
    async fn share_idle(&mut self) {
        for at in 0..self.lanes.len() {
            if self.lanes[at].hoards(self.engine.timing.poll) {
                let all = self.lanes[at].empty();
                self.give_back(all).await;
            }
            let suspects = self.lanes[at]
                .impatient_suspects(self.engine.timing.poll, self.quiet_since.is_some());
            if !suspects.is_empty() {
                // They go back to the head of the line: others, with their place free, may have
                // them first.
                self.engine.note_stranger();
                self.give_back(suspects).await;
            }
        }
    }

    fn is_shut(&self, at: usize) -> bool {
        matches!(
            self.engine.admission(&self.lanes[at].queue),
            Admission::Not { .. }
        )
    }

    /// Gives back what waits for a service that is to be left alone.
    async fn leave_alone(&mut self) {
        for at in 0..self.lanes.len() {
            if self.is_shut(at) {
                let ordinary = self.lanes[at].empty_of_ordinary();
                self.give_back(ordinary).await;
            }
        }
    }

    /// Gives back whatever was claimed and not begun.
    async fn give_back_all(&mut self) {
        for at in 0..self.lanes.len() {
            let all = self.lanes[at].empty();
            self.give_back(all).await;
        }
    }

    async fn give_back(&mut self, unused: Vec<Waiting>) {
        let now = self.engine.now();
        let mut leave: BTreeMap<QueueName, u32> = BTreeMap::new();
        for Waiting { leased, epoch, .. } in unused {
            self.engine
                .report(&leased.lease.queue, epoch, Sign::Neutral);
            *leave.entry(leased.lease.queue.clone()).or_default() += 1;
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
        for (queue, unused) in leave {
            self.engine.return_leave(&queue, unused).await;
        }
    }
}

/// Returns when a queue that was over its rate limit may be looked at again; never, if there is
/// none.
async fn room_again(engine: &Engine) {
    match engine.rates.next_look() {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The answer of the claim under way; never, if there is none.
async fn answer_of(asking: &mut Option<Asking>) -> Answered {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// A handler's place while it is taken. However the run ends, even by a panic that nobody caught,
/// the place is free again, and a lease that was not settled is not beaten for any more.
struct Slot {
    engine: Arc<Engine>,
    running: Arc<AtomicUsize>,
    freed: Arc<Notify>,
    unsettled: Option<Lease>,
}

impl Slot {
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
    fn leave(mut self) {
        self.unsettled = None;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(lease) = &self.unsettled {
            self.engine.held.remove(lease);
            self.engine.held.ended(lease);
        }
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
    }
}
