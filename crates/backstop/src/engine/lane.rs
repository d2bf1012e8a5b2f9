//! One queue, as one worker serves it.

use crate::worker::QueueSettings;
use backstop_core::plan::Lane;
use backstop_core::{Leased, QueueName, Span};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;

/// One queue, as one worker serves it.
pub(crate) struct ServedQueue {
    pub(crate) queue: QueueName,
    pub(crate) settings: Arc<QueueSettings>,
    pub(crate) running: Arc<AtomicUsize>,
    /// The last claim got less than it asked for: nothing more to ask for until a hint or a poll.
    pub(crate) dry: bool,
    /// What waits here.
    buffered: VecDeque<Waiting>,
    /// How many may wait here at the moment: none once jobs turned out to take longer than a poll.
    prefetch: usize,
    /// Jobs started since the last look at the buffer.
    started: usize,
}

/// A job that waits for a handler.
pub(crate) struct Waiting {
    since: Instant,
    pub(crate) leased: Leased,
    /// The epoch of the breaker that let it through.
    pub(crate) epoch: u64,
    /// Whether it has a permit of its own, and may start although the breaker is not closed.
    is_probe: bool,
}

impl ServedQueue {
    pub(crate) fn new(queue: &QueueName, settings: &QueueSettings) -> Self {
        Self {
            queue: queue.clone(),
            settings: Arc::new(settings.clone()),
            running: Arc::default(),
            dry: false,
            buffered: VecDeque::new(),
            prefetch: settings.prefetch_usual(),
            started: 0,
        }
    }

    /// The lane as the plan sees it.
    pub(crate) fn lane(&self) -> Lane {
        Lane {
            queue: self.queue.clone(),
            concurrency: self.settings.concurrency,
            prefetch: self.prefetch,
            running: self.running.load(Ordering::Acquire),
            buffered: self.buffered.len(),
        }
    }

    pub(crate) fn take_in(&mut self, leased: Leased, epoch: u64, is_probe: bool) {
        self.buffered.push_back(Waiting { since: Instant::now(), leased, epoch, is_probe });
    }

    /// The next job, if a handler is free for it; of a queue whose service is left alone, the next probe.
    pub(crate) fn next_to_start(&mut self, is_shut: bool) -> Option<Waiting> {
        if self.running.load(Ordering::Acquire) >= self.settings.concurrency {
            return None;
        }
        let next = if is_shut { self.buffered.iter().position(|waiting| waiting.is_probe)? } else { 0 };
        let waiting = self.buffered.remove(next)?;
        self.started += 1;
        Some(waiting)
    }

    /// Whether jobs wait here for longer than `patience`. A lane that hoards stops claiming ahead, until it starts as
    /// many jobs between two looks as it can run at once.
    pub(crate) fn hoards(&mut self, patience: Span) -> bool {
        let hoards = self.buffered.front().is_some_and(|waiting| waiting.since.elapsed() >= patience.into());
        if hoards {
            self.prefetch = 0;
        } else if self.started >= self.settings.concurrency {
            self.prefetch = self.settings.prefetch_usual();
        }
        self.started = 0;
        hoards
    }

    /// What waits here without a permit.
    pub(crate) fn empty_of_ordinary(&mut self) -> Vec<Waiting> {
        let (probes, ordinary) = self.buffered.drain(..).partition(|waiting| waiting.is_probe);
        self.buffered = probes;
        Vec::from(ordinary)
    }

    /// Everything that waits here.
    pub(crate) fn empty(&mut self) -> Vec<Waiting> {
        self.buffered.drain(..).collect()
    }
}
