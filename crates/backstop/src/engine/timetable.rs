//! Fires what schedules say is due. Every worker that has schedules does; the ledger lets each
//! instant be fired once.

use super::Engine;
use crate::schedules::look::{Looked, Memory, look};
use backstop_core::{Schedule, Span, Time};
use futures_util::StreamExt;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

/// The longest sleep: a clock that was moved is noticed after this.
const SLEEP_MAX: Span = Span::secs(10);
/// The shortest one, so that a clock that stands still is not asked a million times a second.
const SLEEP_MIN: Span = Span::millis(5);
/// A schedule is looked at this often even when nothing is due: for what others agreed on and left,
/// for pauses, for the gauge.
const PATROL: Span = Span::minutes(1);
/// A full queue is tried again after this.
const FULL_AGAIN: Span = Span::secs(5);
/// Waits after a look that failed: the first, and the longest.
const FAILED_AGAIN: (Span, Span) = (Span::secs(1), Span::secs(30));
/// Schedules looked at at once.
const LOOKS_AT_ONCE: usize = 8;

/// Fires until told to stop.
pub(crate) async fn timetable_loop(engine: &Engine, stop: &CancellationToken) {
    let mut watches: Vec<Watch<'_>> = engine.schedules.iter().map(Watch::new).collect();
    while !watches.is_empty() {
        let now = engine.now();
        let due = watches.iter_mut().filter(|watch| watch.is_due(now));
        tokio::select! {
            biased;
            // Wherever that cuts a look off: what was agreed on is done by whoever looks next.
            () = stop.cancelled() => return,
            () = stream::iter(due).for_each_concurrent(LOOKS_AT_ONCE, |watch| watch.look(engine)) => {}
        }
        let next = watches.iter().filter_map(|watch| watch.next).min();
        let wait = next
            .map_or(SLEEP_MIN, |next| next.since(engine.now()))
            .max(SLEEP_MIN)
            .min(SLEEP_MAX);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait.into()) => {}
        }
    }
}

/// A schedule, and when to look at it.
struct Watch<'a> {
    schedule: &'a Schedule,
    memory: Memory,
    /// `None` for at once.
    next: Option<Time>,
    failed_again: Span,
}

impl<'a> Watch<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        Self {
            schedule,
            memory: Memory::among_many(),
            next: None,
            failed_again: FAILED_AGAIN.0,
        }
    }

    /// Nobody waits for longer than a patrol: a look that lies further ahead was set by a clock
    /// that has been set back.
    fn is_due(&self, now: Time) -> bool {
        self.next
            .is_none_or(|next| next <= now || next > now.after(PATROL))
    }

    async fn look(&mut self, engine: &Engine) {
        match look(&engine.backstop, self.schedule, &mut self.memory).await {
            Ok(looked) => {
                self.failed_again = FAILED_AGAIN.0;
                self.next = Some(again(&looked, engine.now()));
            }
            // What was due stays due: nothing is entered that was not done, and the next look
            // begins where this one did.
            Err(error) => {
                tracing::warn!(%error, schedule = %self.schedule.name, "looked at in vain; again in {}", self.failed_again);
                self.next = Some(engine.now().after(self.failed_again));
                self.failed_again = self.failed_again.times(2).min(FAILED_AGAIN.1);
            }
        }
    }
}

/// When to look again.
fn again(looked: &Looked, now: Time) -> Time {
    let patrol = if looked.waiting > 0 {
        FULL_AGAIN
    } else {
        PATROL
    };
    let soonest = [looked.next, looked.follow_up]
        .into_iter()
        .flatten()
        .chain([now.after(patrol)])
        .min();
    if looked.more {
        now
    } else {
        soonest.unwrap_or(now)
    }
}
