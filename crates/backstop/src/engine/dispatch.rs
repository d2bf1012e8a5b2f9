//! Claims jobs and keeps handlers busy.

use super::Engine;
use super::execute::pass;
use super::lane::{ServedQueue, Standing, Waiting};
use super::refusals::Vital;
use super::suspects::{Alone, QUIET_WAIT};
use crate::worker::QueueSettings;
use backstop_core::blame::{is_at_last_strike, is_suspect};
use backstop_core::breaker::{Admission, Sign};
use backstop_core::limits::CLAIM_JOBS_MAX;
use backstop_core::plan::{Lane, Want, wants};
use backstop_core::port::{Answer, Claim};
use backstop_core::verdict::{Outcome, Settlement};
use backstop_core::{Lease, Leased, QueueName, Span, Time};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const CLAIM_RETRY_FIRST: Span = Span::millis(100);
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
    retry_in: Span,
    /// Since when a suspect at its last strike waits for what runs to end.
    quiet_since: Option<Instant>,
    /// A hint came while a claim was under way: its answer may be older than the hint.
    hinted: bool,
    /// Claims that were not answered, asked for again. A queue that does not answer, as one in a part of a cluster may be, holds up
    /// no other.
    again: FuturesUnordered<Asking>,
}

/// A claim under way, or to be repeated because its answer was lost.
struct Asked {
    claim: Claim,
    /// What breakers let through: with a permit if the queue is on probation, and what for.
    passes: Vec<Pass>,
    /// Leave that was asked for ahead, of queues over their rate limits.
    leave: BTreeMap<QueueName, u32>,
    term: Span,
    /// When it was asked for first: what the store grants may be counted from then.
    at: Option<Instant>,
}

type Asking = BoxFuture<'static, (Asked, Answer<Vec<Leased>>)>;

impl Dispatcher {
    pub(crate) fn new(engine: Arc<Engine>, ended: mpsc::Sender<Settlement>, runs: TaskTracker) -> Self {
        let lanes = engine.queues.iter().map(|(queue, settings)| ServedQueue::new(queue, settings)).collect();
        Self {
            engine,
            lanes,
            ended,
            runs,
            freed: Arc::default(),
            turn: 0,
            retry_in: CLAIM_RETRY_FIRST,
            quiet_since: None,
            hinted: false,
            again: FuturesUnordered::new(),
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
                self.hinted = false;
                asking = self.next_claim(|_| true).map(|asked| self.ask(asked, self.engine.courtesy()));
            }
            tokio::select! {
                biased;
                (asked, answer) = answer_of(&mut asking) => {
                    asking = None;
                    self.answered(asked, answer);
                }
                Some((asked, answer)) = self.again.next(), if !self.again.is_empty() => {
                    self.answered(asked, answer);
                }
                () = stop.cancelled() => break,
                () = engine.refusals.finally() => break,
                // Its own timer, not one that every event sets back: hints may be lost, polling is the truth.
                _ = poll.tick() => {
                    self.look_again();
                    self.share_idle().await;
                }
                () = hints.next() => {
                    self.hinted = asking.is_some();
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
        // The claims may have been granted: wait for their answers, or their jobs would be stuck until the lease ends.
        let mut last = std::mem::take(&mut self.again);
        last.extend(asking);
        while let Some((asked, answer)) = last.next().await {
            self.answered(asked, answer);
        }
        // What was not answered now either is not asked for again.
        self.again.clear();
        self.give_back_all().await;
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
            while let Some((waiting, alone)) = self.lanes[at].next_to_start(is_shut, &self.engine.suspects) {
                self.start(at, waiting, alone);
            }
        }
    }

    /// Whether a suspect at its last strike waits for what runs to end. Once nothing does, or it has waited for long enough, it starts.
    fn awaits_quiet(&mut self) -> bool {
        let wants_quiet = |at: &usize| self.lanes[*at].has_last_strike(self.is_shut(*at));
        let Some(at) = (0..self.lanes.len()).find(wants_quiet).filter(|_| self.engine.suspects.is_free())
        else {
            self.quiet_since = None;
            return false;
        };
        let is_quiet = self.lanes.iter().all(|lane| lane.running.load(Ordering::Acquire) == 0);
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        if !is_quiet && since.elapsed() < QUIET_WAIT {
            return true;
        }
        self.quiet_since = None;
        let is_shut = self.is_shut(at);
        let Some((waiting, alone)) = self.lanes[at].next_last_strike(is_shut, &self.engine.suspects) else {
            return false;
        };
        alone.keep_quiet();
        self.start(at, waiting, Some(alone));
        true
    }

    fn start(&mut self, at: usize, Waiting { leased, epoch, .. }: Waiting, alone: Option<Arc<Alone>>) {
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
                // Waits while the store is behind: no handler is free for more before its last work is on its way.
                let _ = ended.send(settlement).await;
            }
            slot.leave();
        });
    }

    /// What to ask for now, of these queues. Those with the same lease go into one claim.
    fn next_claim(&mut self, of: impl Fn(&QueueName) -> bool) -> Option<Asked> {
        let waits = self.quiet_since.is_some()
            || self.engine.suspects.is_quiet()
            || self.engine.refusals.holds_claims(Instant::now());
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
        let lanes: Vec<Lane> = self.lanes.iter().filter(open).map(ServedQueue::lane).collect();
        let wanted = wants(&lanes, CLAIM_JOBS_MAX, self.turn);
        self.turn = self.turn.wrapping_add(1);
        let term = self.term_of(wanted.first()?)?;
        let wants: Vec<Want> = wanted.into_iter().filter(|want| self.term_of(want) == Some(term)).collect();
        let number = self.engine.backstop.random().lease_number();
        let until = self.engine.now().after(term);
        Some(Asked {
            passes: wants.iter().map(|want| Pass::of(&self.engine, want)).collect(),
            claim: Claim { number, worker: self.engine.name.clone(), until, wants },
            leave: BTreeMap::new(),
            term,
            at: None,
        })
    }

    fn term_of(&self, want: &Want) -> Option<Span> {
        self.engine.queues.get(&want.queue).map(|settings: &QueueSettings| settings.lease)
    }

    fn ask(&self, mut asked: Asked, wait: Span) -> Asking {
        let (engine, ended) = (Arc::clone(&self.engine), self.ended.clone());
        async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait.into()).await;
            }
            let now = engine.now();
            let at = *asked.at.get_or_insert_with(Instant::now);
            asked.claim.until = now.after(asked.term);
            let answer = claim(&engine, &mut asked, now).await;
            let answer = match answer {
                Err(error) => Err(error),
                Ok(granted) => {
                    engine.held.insert(asked.claim.number, asked.term, at, &granted);
                    let (granted, over) = heed_rates(&engine, &asked, granted).await;
                    for settlement in over {
                        let _ = ended.send(settlement).await;
                    }
                    Ok(granted)
                }
            };
            (asked, answer)
        }
        .boxed()
    }

    /// Takes in the answer of a claim. A lost answer is asked for again under the same number: the store may have
    /// granted it.
    fn answered(&mut self, asked: Asked, answer: Answer<Vec<Leased>>) {
        let at = asked.at.unwrap_or_else(Instant::now);
        self.set_unanswered(&asked, false);
        match answer {
            Ok(granted) => {
                self.retry_in = CLAIM_RETRY_FIRST;
                if at.elapsed() > asked.term.scaled(0.3).into() {
                    // The answer took a good part of the lease: the next beat must not wait for its time.
                    self.engine.beat_now.notify_one();
                }
                self.take_in(&asked, granted);
            }
            Err(error) => {
                let wait = self.retry_in.scaled(0.5 + self.engine.backstop.random().unit());
                tracing::warn!(%error, "a claim was not answered; asking again in {wait}");
                self.retry_in = self.retry_in.times(2).min(CLAIM_RETRY_LAST);
                let is_over = Span::from(at.elapsed()).plus(wait) >= asked.term;
                let again = if is_over || !error.is_transient() {
                    self.next_claim(|queue| asked.passes.iter().any(|pass| pass.queue == *queue))
                } else {
                    Some(asked)
                };
                if let Some(again) = again {
                    self.set_unanswered(&again, true);
                    self.again.push(self.ask(again, wait));
                }
            }
        }
    }

    fn set_unanswered(&mut self, asked: &Asked, unanswered: bool) {
        let is_asked = |lane: &&mut ServedQueue| asked.passes.iter().any(|pass| pass.queue == lane.queue);
        for lane in self.lanes.iter_mut().filter(is_asked) {
            lane.unanswered = unanswered;
        }
    }

    fn take_in(&mut self, asked: &Asked, granted: Vec<Leased>) {
        for pass in &asked.passes {
            let used = granted.iter().filter(|leased| leased.lease.queue == pass.queue).count();
            let used = u32::try_from(used).unwrap_or(u32::MAX);
            for _ in used..pass.permits.unwrap_or(0) {
                self.engine.report(&pass.queue, pass.epoch, Sign::Neutral);
            }
        }
        for lane in &mut self.lanes {
            // No permits were left: whoever has them says when it may be tried again.
            if asked.passes.iter().any(|pass| pass.queue == lane.queue && pass.permits == Some(0)) {
                lane.dry = true;
            }
            if let Some(want) = asked.claim.wants.iter().find(|want| want.queue == lane.queue) {
                let got = granted.iter().filter(|leased| leased.lease.queue == lane.queue).count();
                lane.dry = got < want.max && !self.hinted;
            }
        }
        let now = self.engine.now();
        for leased in granted {
            if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.queue == leased.lease.queue) {
                let pass = asked.passes.iter().find(|pass| pass.queue == lane.queue);
                let (epoch, is_probe) = pass.map_or((0, false), |pass| (pass.epoch, pass.is_probation));
                let standing = match (is_suspect(&leased, now), is_at_last_strike(&leased, now)) {
                    (_, true) => Standing::LastStrike,
                    (true, false) => Standing::Suspect,
                    (false, false) => Standing::Ordinary,
                };
                lane.take_in(leased, epoch, is_probe, standing);
            }
        }
    }

    /// Gives back what has waited here for longer than a poll: another worker may have a handler free for it.
    async fn share_idle(&mut self) {
        for at in 0..self.lanes.len() {
            if self.lanes[at].hoards(self.engine.timing.poll) {
                let all = self.lanes[at].empty();
                self.give_back(all).await;
            }
            let suspects =
                self.lanes[at].impatient_suspects(self.engine.timing.poll, self.quiet_since.is_some());
            if !suspects.is_empty() {
                // They go back to the head of the line: others, with their place free, may have them first.
                self.engine.note_stranger();
                self.give_back(suspects).await;
            }
        }
    }

    fn is_shut(&self, at: usize) -> bool {
        matches!(self.engine.admission(&self.lanes[at].queue), Admission::Not { .. })
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
            self.engine.report(&leased.lease.queue, epoch, Sign::Neutral);
            *leave.entry(leased.lease.queue.clone()).or_default() += 1;
            let outcome = Outcome::Released { at: now };
            let _ = self.ended.send(Settlement { lease: leased.lease, outcome }).await;
        }
        // Leave that was got for them is for others.
        for (queue, unused) in leave {
            self.engine.return_leave(&queue, unused).await;
        }
    }
}

/// What a breaker lets through of one queue, for one claim.
struct Pass {
    queue: QueueName,
    epoch: u64,
    /// So many permits were got; `None` if none are needed.
    permits: Option<u32>,
    /// Permits are needed, and not got yet.
    is_probation: bool,
}

impl Pass {
    fn of(engine: &Engine, want: &Want) -> Self {
        let (epoch, is_probation) = match engine.admission(&want.queue) {
            Admission::Freely { epoch } => (epoch, false),
            Admission::Probes { epoch, .. } => (epoch, true),
            // It shut a moment ago: what the permits say decides.
            Admission::Not { .. } => (0, true),
        };
        Self { queue: want.queue.clone(), epoch, permits: None, is_probation }
    }
}

async fn claim(engine: &Engine, asked: &mut Asked, now: Time) -> Answer<Vec<Leased>> {
    let answer = allowed_claim(engine, asked, now).await.transpose();
    if let Some(answer) = &answer {
        engine.refusals.note(Vital::Claim, answer, Instant::now());
    }
    answer.unwrap_or_else(|| Ok(Vec::new()))
}

/// `None` if there was nothing to be asked for.
async fn allowed_claim(engine: &Engine, asked: &mut Asked, now: Time) -> Answer<Option<Vec<Leased>>> {
    get_permits(engine, asked).await?;
    get_leave(engine, asked).await?;
    if asked.claim.wants.is_empty() {
        return Ok(None);
    }
    engine.store().claim(asked.claim.clone(), now).await.map(Some)
}

/// Asks leave for queues over their rate limits, and asks for no more jobs than they got.
async fn get_leave(engine: &Engine, asked: &mut Asked) -> Answer<()> {
    for want in &mut asked.claim.wants {
        if engine.rates.is_over(&want.queue) && !asked.leave.contains_key(&want.queue) {
            let wanted = u32::try_from(want.max).unwrap_or(u32::MAX);
            let leave = engine.ask_leave(&want.queue, wanted).await?;
            asked.leave.insert(want.queue.clone(), leave);
            want.max = leave as usize;
        }
    }
    asked.claim.wants.retain(|want| want.max > 0);
    Ok(())
}

/// What may run of what was granted, and what goes back because its queue is over its limit.
async fn heed_rates(engine: &Engine, asked: &Asked, granted: Vec<Leased>) -> (Vec<Leased>, Vec<Settlement>) {
    if !engine.has_rate_limits() {
        return (granted, Vec::new());
    }
    let (mut with_leave, without): (Vec<_>, Vec<_>) =
        granted.into_iter().partition(|leased| asked.leave.contains_key(&leased.lease.queue));
    for (queue, leave) in &asked.leave {
        let used = with_leave.iter().filter(|leased| leased.lease.queue == *queue).count();
        engine.return_leave(queue, leave.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))).await;
    }
    let (may, over) = engine.within_rate(without, asked.term).await;
    with_leave.extend(may);
    (with_leave, over)
}

/// Returns when a queue that was over its rate limit may be looked at again; never, if there is none.
async fn room_again(engine: &Engine) {
    match engine.rates.next_look() {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Asks for permits where they are needed, and asks for no more jobs than there are. A claim that is asked for again has its
/// permits already.
async fn get_permits(engine: &Engine, asked: &mut Asked) -> Answer<()> {
    for pass in asked.passes.iter_mut().filter(|pass| pass.is_probation && pass.permits.is_none()) {
        let Some(want) = asked.claim.wants.iter_mut().find(|want| want.queue == pass.queue) else { continue };
        let wanted = u32::try_from(want.max).unwrap_or(u32::MAX);
        let admitted = engine.admit(&pass.queue, wanted).await?;
        (pass.epoch, pass.permits) = (admitted.epoch, Some(admitted.calls));
        want.max = admitted.calls as usize;
    }
    asked.claim.wants.retain(|want| want.max > 0);
    Ok(())
}

/// The answer of the claim under way; never, if there is none.
async fn answer_of(asking: &mut Option<Asking>) -> (Asked, Answer<Vec<Leased>>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// A handler's place while it is taken. However the run ends, even by a panic that nobody caught, the place is free
/// again, and a lease that was not settled is not beaten for any more.
struct Slot {
    engine: Arc<Engine>,
    running: Arc<AtomicUsize>,
    freed: Arc<Notify>,
    unsettled: Option<Lease>,
}

impl Slot {
    fn take(engine: &Arc<Engine>, running: &Arc<AtomicUsize>, freed: &Arc<Notify>, lease: Lease) -> Self {
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
