//! Fires what schedules say is due. Every worker that has schedules does; the ledger lets each
//! instant be fired once.

use super::Engine;
use crate::schedules::check::{ScheduleCheckReport, ScheduleMemory, check_schedule};
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
const FULL_RETRY: Span = Span::secs(5);
/// Waits after a look that failed: the first, and the longest.
const FAILED_RETRY: (Span, Span) = (Span::secs(1), Span::secs(30));
/// Schedules looked at at once.
const LOOKS_AT_ONCE: usize = 8;

/// Fires until told to stop.
pub(crate) async fn scheduler_loop(engine: &Engine, stop: &CancellationToken) {
    let mut watches: Vec<ScheduleWatch<'_>> =
        engine.schedules.iter().map(ScheduleWatch::new).collect();
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
struct ScheduleWatch<'a> {
    schedule: &'a Schedule,
    memory: ScheduleMemory,
    next: Option<Time>,
    retry_wait: Span,
}

impl<'a> ScheduleWatch<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        Self {
            schedule,
            memory: ScheduleMemory::among_many(),
            next: None,
            retry_wait: FAILED_RETRY.0,
        }
    }

    /// Nobody waits for longer than a patrol: a look that lies further ahead was set by a clock
    /// that has been set back.
    fn is_due(&self, now: Time) -> bool {
        self.next
            .is_none_or(|next| next <= now || next > now.after(PATROL))
    }

    async fn look(&mut self, engine: &Engine) {
        match check_schedule(&engine.backstop, self.schedule, &mut self.memory).await {
            Ok(looked) => {
                self.retry_wait = FAILED_RETRY.0;
                self.next = Some(next_look(&looked, engine.now()));
            }
            // What was due stays due: nothing is entered that was not done, and the next look
            // begins where this one did.
            Err(error) => {
                tracing::warn!(%error, schedule = %self.schedule.name, "looked at in vain; again in {}", self.retry_wait);
                self.next = Some(engine.now().after(self.retry_wait));
                self.retry_wait = self.retry_wait.times(2).min(FAILED_RETRY.1);
            }
        }
    }
}

fn next_look(looked: &ScheduleCheckReport, now: Time) -> Time {
    let patrol = if looked.waiting > 0 {
        FULL_RETRY
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
