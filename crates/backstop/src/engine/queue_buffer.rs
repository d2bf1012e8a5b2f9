//! One queue, as one worker serves it.

use super::suspects::{LocalSuspectGuard, LocalSuspectSlot};
use crate::worker::QueueSettings;
use backstop_core::plan::QueueLoad;
use backstop_core::{LeasedRun, QueueName, Span};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;

/// One queue, as one worker serves it.
pub(crate) struct QueueBuffer {
    pub(crate) queue: QueueName,
    pub(crate) settings: Arc<QueueSettings>,
    pub(crate) running: Arc<AtomicUsize>,
    /// The last claim got less than it asked for: nothing more to ask for until a hint or a poll.
    pub(crate) dry: bool,
    /// A hint came since it was last asked for: an answer may be older than the hint.
    pub(crate) hinted: bool,
    /// A claim of it was not answered, and is asked for again: until it is, there is no other.
    pub(crate) unanswered: bool,
    buffered: VecDeque<BufferedJob>,
    /// Suspects that wait here for their turn to run alone.
    suspects: VecDeque<BufferedJob>,
    /// How many may wait here at the moment: none once jobs turned out to take longer than a poll.
    prefetch: usize,
    /// Jobs started since the last look at the buffer.
    started: usize,
}

/// A job that waits for a handler.
pub(crate) struct BufferedJob {
    since: Instant,
    pub(crate) leased: LeasedRun,
    /// The epoch of the breaker that let it through.
    pub(crate) epoch: u64,
    /// Whether it has a permit of its own, and may start although the breaker is not closed.
    is_probe: bool,
    is_at_last_strike: bool,
}

/// What a job is accused of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuspicionLevel {
    Ordinary,
    Suspect,
    /// The next loss of a worker would be its death.
    LastStrike,
}

impl QueueBuffer {
    pub(crate) fn new(queue: &QueueName, settings: &QueueSettings) -> Self {
        Self {
            queue: queue.clone(),
            settings: Arc::new(settings.clone()),
            running: Arc::default(),
            dry: false,
            hinted: false,
            unanswered: false,
            buffered: VecDeque::new(),
            suspects: VecDeque::new(),
            prefetch: settings.default_prefetch(),
            started: 0,
        }
    }

    /// The lane as the plan sees it. Suspects that wait take no room from others, up to as many as
    /// the lane holds: they come back to the head of the line, and would keep everything behind
    /// them waiting.
    pub(crate) fn queue_load(&self) -> QueueLoad {
        let suspects_over = self
            .suspects
            .len()
            .saturating_sub(self.settings.concurrency + self.prefetch);
        QueueLoad {
            queue: self.queue.clone(),
            concurrency: self.settings.concurrency,
            prefetch: self.prefetch,
            running: self.running.load(Ordering::Acquire),
            buffered: self.buffered.len() + suspects_over,
        }
    }

    pub(crate) fn push(
        &mut self,
        leased: LeasedRun,
        epoch: u64,
        is_probe: bool,
        suspicion: SuspicionLevel,
    ) {
        let line = if suspicion == SuspicionLevel::Ordinary {
            &mut self.buffered
        } else {
            &mut self.suspects
        };
        let is_at_last_strike = suspicion == SuspicionLevel::LastStrike;
        line.push_back(BufferedJob {
            since: Instant::now(),
            leased,
            epoch,
            is_probe,
            is_at_last_strike,
        });
    }

    /// Whether a suspect at its last strike waits here that may start.
    pub(crate) fn has_last_strike(&self, is_shut: bool) -> bool {
        self.suspects
            .iter()
            .any(|waiting| waiting.is_at_last_strike && (!is_shut || waiting.is_probe))
    }

    /// The first suspect at its last strike, with its place.
    pub(crate) fn next_last_strike(
        &mut self,
        is_shut: bool,
        suspects: &LocalSuspectSlot,
    ) -> Option<(BufferedJob, Arc<LocalSuspectGuard>)> {
        let may_start =
            |waiting: &BufferedJob| waiting.is_at_last_strike && (!is_shut || waiting.is_probe);
        let next = self.suspects.iter().position(may_start)?;
        let guard = suspects.enter()?;
        self.started += 1;
        Some((self.suspects.remove(next)?, guard))
    }

    /// The next job, if a handler is free for it; of a queue whose service is left alone, the next
    /// probe. A suspect if one may run, with its place.
    pub(crate) fn next_to_start(
        &mut self,
        is_shut: bool,
        suspects: &LocalSuspectSlot,
    ) -> Option<(BufferedJob, Option<Arc<LocalSuspectGuard>>)> {
        if self.running.load(Ordering::Acquire) >= self.settings.concurrency {
            return None;
        }
        let may_start = |line: &VecDeque<BufferedJob>| {
            line.iter().position(|waiting| !is_shut || waiting.is_probe)
        };
        let suspect = may_start(&self.suspects).and_then(|next| Some((next, suspects.enter()?)));
        let next = match suspect {
            Some((next, guard)) => (self.suspects.remove(next)?, Some(guard)),
            None => (self.buffered.remove(may_start(&self.buffered)?)?, None),
        };
        self.started += 1;
        Some(next)
    }

    /// Suspects that have waited here for `patience`: another worker may have its place free. One
    /// that waits for quiet stays.
    pub(crate) fn drain_impatient_suspects(
        &mut self,
        patience: Span,
        is_awaiting_quiet: bool,
    ) -> Vec<BufferedJob> {
        let is_over = |waiting: &BufferedJob| {
            waiting.since.elapsed() >= patience.into()
                && !(is_awaiting_quiet && waiting.is_at_last_strike)
        };
        let (over, rest) = self.suspects.drain(..).partition::<VecDeque<_>, _>(is_over);
        self.suspects = rest;
        over.into()
    }

    /// Whether jobs wait here for longer than `patience`. A lane that hoards stops claiming ahead,
    /// until it starts as many jobs between two looks as it can run at once.
    pub(crate) fn is_hoarding(&mut self, patience: Span) -> bool {
        let hoards = self
            .buffered
            .front()
            .is_some_and(|waiting| waiting.since.elapsed() >= patience.into());
        if hoards {
            self.prefetch = 0;
        } else if self.started >= self.settings.concurrency {
            self.prefetch = self.settings.default_prefetch();
        }
        self.started = 0;
        hoards
    }

    /// What waits here without a permit.
    pub(crate) fn drain_without_permit(&mut self) -> Vec<BufferedJob> {
        let mut ordinary = Vec::new();
        for line in [&mut self.buffered, &mut self.suspects] {
            let (probes, others) = line.drain(..).partition(|waiting| waiting.is_probe);
            *line = probes;
            ordinary.extend::<VecDeque<_>>(others);
        }
        ordinary
    }

    pub(crate) fn drain_all(&mut self) -> Vec<BufferedJob> {
        self.buffered
            .drain(..)
            .chain(self.suspects.drain(..))
            .collect()
    }
}
