//! Ends of runs that the store was told of and has not answered for: a line for each queue, until
//! it does.
//!
//! | what comes | where it goes |
//! |---|---|
//! | an end whose queue has no line | into the next batch: this is not looked at |
//! | an end that was not answered | into its queue's line |
//! | an end whose first call takes long | the same, under way: what comes after it is not to wait for its turn elsewhere |
//! | an end whose queue has a line | behind the others there: none overtakes another |
//!
//! | what is asked for again | when |
//! |---|---|
//! | the first of all lines that are not silent, together | 50 ms after it failed, then after twice as long each time, up to two seconds |
//! | the first of one line, alone, beside that | the same: of a silent line, and of any while nobody answered for all of them together: one may be in the others' way |
//!
//! A line is silent from a call that was answered for others and not for it, until it is answered
//! for: it holds up no other. Where all are silent, they are asked for together as well.
//!
//! So there are two calls at a time, however many queues do not answer and however long. A line
//! that is empty is gone.

use super::settle::BATCH_MAX;
use backstop_core::QueueName;
use backstop_core::verdict::Settlement;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_LAST: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct RetryQueue {
    lines: BTreeMap<QueueName, QueueRetries>,
    together: RetryPacer,
    alone: RetryPacer,
    /// Nobody answered for all lines together.
    is_apart: bool,
    /// Counts calls for one line.
    turn: u64,
}

#[derive(Default)]
struct QueueRetries {
    waiting: VecDeque<Settlement>,
    /// How many are in a call.
    in_call: usize,
    /// Others are answered for, and this is not.
    is_silent: bool,
    /// When it was last asked for alone, as a turn.
    alone_at: u64,
}

/// When the next call of a kind may go out.
#[derive(Default)]
struct RetryPacer {
    is_out: bool,
    due: Option<Instant>,
    wait: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SettleCallKind {
    /// The first for these ends.
    First,
    Together,
    Alone,
}

impl RetryQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Ends in here, in calls and not.
    pub(super) fn len(&self) -> usize {
        self.lines
            .values()
            .map(|line| line.waiting.len() + line.in_call)
            .sum()
    }

    /// Takes in what was not answered, at `now`.
    pub(super) fn add(&mut self, unanswered: Vec<Settlement>, now: Instant) {
        if unanswered.is_empty() {
            return;
        }
        self.begin(now);
        for settlement in unanswered {
            self.lines
                .entry(settlement.lease.queue.clone())
                .or_default()
                .waiting
                .push_back(settlement);
        }
    }

    /// Makes lines for what is under way in a first call that takes long; what it comes to is told
    /// by [`Again::tried`].
    pub(super) fn track_call(&mut self, queues: &[QueueName], now: Instant) {
        self.begin(now);
        for queue in queues {
            self.lines.entry(queue.clone()).or_default().in_call += 1;
        }
    }

    fn begin(&mut self, now: Instant) {
        if self.lines.is_empty() {
            *self = Self {
                together: RetryPacer::after(WAIT_FIRST, now),
                turn: self.turn,
                ..Self::default()
            };
        }
    }

    /// Takes from a batch what has to stand behind others.
    pub(super) fn take_queued_from(&mut self, batch: &mut Vec<Settlement>) {
        if self.lines.is_empty() {
            return;
        }
        for settlement in std::mem::take(batch) {
            match self.lines.get_mut(&settlement.lease.queue) {
                Some(line) => line.waiting.push_back(settlement),
                None => batch.push(settlement),
            }
        }
    }

    /// The next call that may go out.
    pub(super) fn next(&mut self, now: Instant) -> Option<(SettleCallKind, Vec<Settlement>)> {
        let (is_apart, all_silent) = (self.is_apart(), self.all_silent());
        if self.alone.may_go(now) {
            let free = self
                .lines
                .values_mut()
                .filter(|line| line.may_go_alone(is_apart));
            if let Some(line) = free.min_by_key(|line| line.alone_at) {
                self.turn += 1;
                line.alone_at = self.turn;
                self.alone.is_out = true;
                return Some((SettleCallKind::Alone, line.take_batch(BATCH_MAX)));
            }
        }
        if !self.together.may_go(now) {
            return None;
        }
        let free = self
            .lines
            .values_mut()
            .filter(|line| line.may_go_together(all_silent));
        let free: Vec<&mut QueueRetries> = free.take(BATCH_MAX).collect();
        let share = BATCH_MAX.checked_div(free.len())?;
        let batch = free
            .into_iter()
            .flat_map(|line| line.take_batch(share))
            .collect();
        self.together.is_out = true;
        Some((SettleCallKind::Together, batch))
    }

    /// Takes in what a call for these ends came to, at `now`: what is left of them goes back to the
    /// head of its line.
    pub(super) fn finish_call(
        &mut self,
        kind: SettleCallKind,
        queues: &[QueueName],
        left: Vec<Settlement>,
        now: Instant,
    ) {
        let is_answered = left.len() < queues.len();
        let mut answers: BTreeMap<&QueueName, usize> = BTreeMap::new();
        for queue in queues {
            *answers.entry(queue).or_default() += 1;
        }
        for settlement in &left {
            if let Some(count) = answers.get_mut(&settlement.lease.queue) {
                *count -= 1;
            }
        }
        for queue in queues {
            if let Some(line) = self.lines.get_mut(queue) {
                line.in_call -= 1;
                let is_heard = answers.get(queue).is_some_and(|count| *count > 0);
                line.is_silent = !is_heard && (is_answered || line.is_silent);
            }
        }
        for settlement in left.into_iter().rev() {
            self.lines
                .entry(settlement.lease.queue.clone())
                .or_default()
                .waiting
                .push_front(settlement);
        }
        self.lines
            .retain(|_, line| line.in_call > 0 || !line.waiting.is_empty());
        match kind {
            SettleCallKind::First => {}
            SettleCallKind::Together => {
                self.is_apart = !is_answered;
                self.together = self.together.after_call(is_answered, now);
            }
            SettleCallKind::Alone => self.alone = self.alone.after_call(is_answered, now),
        }
    }

    /// When a call may go out that may not yet; `None` if all wait for answers.
    pub(super) fn due(&self) -> Option<Instant> {
        let all_silent = self.all_silent();
        let together = self
            .lines
            .values()
            .any(|line| line.may_go_together(all_silent));
        let is_apart = self.is_apart();
        let alone = self.lines.values().any(|line| line.may_go_alone(is_apart));
        let paces = [
            together.then_some(&self.together),
            alone.then_some(&self.alone),
        ];
        paces
            .into_iter()
            .flatten()
            .filter(|pace| !pace.is_out)
            .filter_map(|pace| pace.due)
            .min()
    }

    /// Whether each of several lines is to be tried by itself.
    fn is_apart(&self) -> bool {
        self.is_apart && self.lines.len() > 1
    }

    fn all_silent(&self) -> bool {
        self.lines.len() > 1 && self.lines.values().all(|line| line.is_silent)
    }
}

impl QueueRetries {
    fn may_go_together(&self, all_silent: bool) -> bool {
        self.in_call == 0 && (all_silent || !self.is_silent)
    }

    fn may_go_alone(&self, is_apart: bool) -> bool {
        self.in_call == 0 && (is_apart || self.is_silent)
    }

    /// The first of it, for a call.
    fn take_batch(&mut self, max: usize) -> Vec<Settlement> {
        let first: Vec<Settlement> = self.waiting.drain(..max.min(self.waiting.len())).collect();
        self.in_call = first.len();
        first
    }
}

impl RetryPacer {
    fn after(wait: Duration, now: Instant) -> Self {
        Self {
            is_out: false,
            due: Some(now + wait),
            wait,
        }
    }

    fn may_go(&self, now: Instant) -> bool {
        !self.is_out && self.due.is_none_or(|due| due <= now)
    }

    /// The pace after a call: at once where there were answers and there may be more.
    fn after_call(&self, is_answered: bool, now: Instant) -> Self {
        if is_answered {
            return Self::after(Duration::ZERO, now);
        }
        Self::after((self.wait * 2).clamp(WAIT_FIRST, WAIT_LAST), now)
    }
}

#[cfg(test)]
mod tests;
