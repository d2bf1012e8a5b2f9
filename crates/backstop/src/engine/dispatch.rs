//! Claims jobs and keeps handlers busy.

use super::Engine;
use super::execute::execute;
use crate::worker::QueueSettings;
use backstop_core::limits::CLAIM_JOBS_MAX;
use backstop_core::plan::{Lane, Want, wants};
use backstop_core::port::{Answer, Claim};
use backstop_core::verdict::{Outcome, Settlement};
use backstop_core::{Leased, QueueName, Span};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};
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
}

/// One queue, as this worker serves it.
struct ServedQueue {
    queue: QueueName,
    settings: Arc<QueueSettings>,
    running: Arc<AtomicUsize>,
    buffered: VecDeque<Leased>,
    /// The last claim got less than it asked for: nothing more to ask for until a hint or a poll.
    dry: bool,
}

/// A claim under way, or to be repeated because its answer was lost.
struct Asked {
    claim: Claim,
    term: Span,
}

impl Dispatcher {
    pub(crate) fn new(engine: Arc<Engine>, ended: mpsc::Sender<Settlement>, runs: TaskTracker) -> Self {
        let lane = |(queue, settings): (&QueueName, &QueueSettings)| ServedQueue {
            queue: queue.clone(),
            settings: Arc::new(settings.clone()),
            running: Arc::default(),
            buffered: VecDeque::new(),
            dry: false,
        };
        let lanes = engine.queues.iter().map(lane).collect();
        Self { engine, lanes, ended, runs, freed: Arc::default(), turn: 0, retry_in: CLAIM_RETRY_FIRST }
    }

    /// Claims and runs until told to stop; then gives back what was claimed and not begun.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut hints = self.engine.store().watch();
        let mut asking: Option<BoxFuture<'static, (Asked, Answer<Vec<Leased>>)>> = None;
        loop {
            self.start_buffered();
            if asking.is_none() {
                asking = self.next_claim().map(|asked| self.ask(asked, Span::ZERO));
            }
            let poll = self.engine.timing.poll;
            tokio::select! {
                biased;
                (asked, answer) = async { asking.as_mut().expect("guarded by the condition").await }, if asking.is_some() => {
                    asking = self.answered(asked, answer);
                }
                () = stop.cancelled() => break,
                () = self.freed.notified() => {}
                () = hints.next() => self.look_again(),
                () = tokio::time::sleep(poll.into()) => self.look_again(),
            }
        }
        if let Some(asking) = asking {
            // The claim may have been granted: wait for its answer, or its jobs would be stuck until the lease ends.
            let (asked, answer) = asking.await;
            self.answered(asked, answer);
        }
        self.give_back().await;
    }

    fn look_again(&mut self) {
        for lane in &mut self.lanes {
            lane.dry = false;
        }
    }

    fn start_buffered(&mut self) {
        for at in 0..self.lanes.len() {
            while self.lanes[at].has_free_handler() {
                let Some(leased) = self.lanes[at].buffered.pop_front() else { break };
                self.start(at, leased);
            }
        }
    }

    fn start(&mut self, at: usize, leased: Leased) {
        // Lost while it waited: whoever has it now runs it.
        let Some(cancel) = self.engine.held.cancel_token(&leased.lease) else { return };
        let lane = &self.lanes[at];
        let (settings, running) = (Arc::clone(&lane.settings), Arc::clone(&lane.running));
        running.fetch_add(1, Ordering::AcqRel);
        let (engine, ended, freed) = (Arc::clone(&self.engine), self.ended.clone(), Arc::clone(&self.freed));
        self.runs.spawn(async move {
            let settlement = execute(&engine, &settings, leased, cancel).await;
            // Waits while the store is behind: the handler is not free for more before its last work is on its way.
            let _ = ended.send(settlement).await;
            running.fetch_sub(1, Ordering::AcqRel);
            freed.notify_one();
        });
    }

    /// What to ask for now. Queues with the same lease go into one claim.
    fn next_claim(&mut self) -> Option<Asked> {
        let wet: Vec<&ServedQueue> = self.lanes.iter().filter(|lane| !lane.dry).collect();
        let lanes: Vec<Lane> = wet.iter().map(|lane| lane.lane()).collect();
        let wanted = wants(&lanes, CLAIM_JOBS_MAX, self.turn);
        self.turn = self.turn.wrapping_add(1);
        let term = self.term_of(wanted.first()?)?;
        let wants: Vec<Want> = wanted.into_iter().filter(|want| self.term_of(want) == Some(term)).collect();
        let claim = Claim {
            number: self.engine.backstop.random().lease_number(),
            worker: self.engine.name.clone(),
            until: self.engine.now().after(term),
            wants,
        };
        Some(Asked { claim, term })
    }

    fn term_of(&self, want: &Want) -> Option<Span> {
        self.engine.queues.get(&want.queue).map(|settings| settings.lease)
    }

    fn ask(&self, asked: Asked, wait: Span) -> BoxFuture<'static, (Asked, Answer<Vec<Leased>>)> {
        let engine = Arc::clone(&self.engine);
        async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait.into()).await;
            }
            let answer = engine.store().claim(asked.claim.clone(), engine.now()).await;
            (asked, answer)
        }
        .boxed()
    }

    /// Takes in the answer of a claim. A lost answer is asked for again under the same number: the store may have
    /// granted it.
    fn answered(
        &mut self,
        asked: Asked,
        answer: Answer<Vec<Leased>>,
    ) -> Option<BoxFuture<'static, (Asked, Answer<Vec<Leased>>)>> {
        match answer {
            Ok(granted) => {
                self.retry_in = CLAIM_RETRY_FIRST;
                self.engine.held.insert(asked.claim.number, asked.term, asked.claim.until, &granted);
                self.take_in(&asked.claim.wants, granted);
                None
            }
            Err(error) => {
                let wait = self.retry_in.scaled(0.5 + self.engine.backstop.random().unit());
                tracing::warn!(%error, "a claim was not answered; asking again in {wait}");
                self.retry_in = self.retry_in.times(2).min(CLAIM_RETRY_LAST);
                let is_over = self.engine.now().after(wait) >= asked.claim.until;
                let again = if is_over || !error.is_transient() { self.next_claim()? } else { asked };
                Some(self.ask(again, wait))
            }
        }
    }

    fn take_in(&mut self, wants: &[Want], granted: Vec<Leased>) {
        for lane in &mut self.lanes {
            if let Some(want) = wants.iter().find(|want| want.queue == lane.queue) {
                let got = granted.iter().filter(|leased| leased.lease.queue == lane.queue).count();
                lane.dry = got < want.max;
            }
        }
        for leased in granted {
            if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.queue == leased.lease.queue) {
                lane.buffered.push_back(leased);
            }
        }
    }

    async fn give_back(mut self) {
        let at = self.engine.now();
        for leased in self.lanes.iter_mut().flat_map(|lane| lane.buffered.drain(..)) {
            let _ =
                self.ended.send(Settlement { lease: leased.lease, outcome: Outcome::Released { at } }).await;
        }
    }
}

impl ServedQueue {
    fn has_free_handler(&self) -> bool {
        self.running.load(Ordering::Acquire) < self.settings.concurrency
    }

    fn lane(&self) -> Lane {
        Lane {
            queue: self.queue.clone(),
            concurrency: self.settings.concurrency,
            prefetch: self.settings.prefetch.unwrap_or(self.settings.concurrency),
            running: self.running.load(Ordering::Acquire),
            buffered: self.buffered.len(),
        }
    }
}
