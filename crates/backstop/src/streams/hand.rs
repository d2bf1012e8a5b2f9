//! One key, worked through by whoever has its lease.

use super::dead::{Death, Ground, Unburied, burial, bury};
use super::event::Event;
use super::leases::Tenure;
use super::metrics;
use super::outlet::{Outlet, Written};
use super::running::{Became, Shared, Told};
use crate::engine::execute::panicked;
use backstop_core::failure::{Cause, ErrorReport};
use backstop_core::port::{Advance, KeyLease, Then};
use backstop_core::stream::{Call, Change, Failed, Failure, Note, Rules, Step, Window};
use backstop_core::verdict::{Advice, Ending, Reason};
use backstop_core::{LeaseNumber, Span, Time};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// How long a key waits whose dead letter found no room, or no store.
const NO_ROOM_WAIT: Span = Span::secs(60);
const NO_STORE_WAIT: Span = Span::secs(5);

/// One key in one's hands.
pub(super) struct Hand<'a> {
    shared: &'a Arc<Shared>,
    window: Window,
    number: LeaseNumber,
    /// What had arrived when it was taken.
    seen: u64,
    /// The last turn that was said.
    turn: u32,
    /// Whether anything was written: before that, somebody else knows nothing of what this one was
    /// given to take over.
    has_written: bool,
    tenure: Tenure<'a>,
    became: Told,
}

/// How the work on a key ended.
pub(super) enum Ended {
    /// All of it is in the store.
    Written(Told),
    /// The lease was lost: what was not written is somebody else's to do again.
    Lost {
        /// Whether anything was written before.
        has_written: bool,
    },
    /// The store does not answer: the key goes on without it.
    Adrift(Box<Window>, Told),
}

/// What came of a call.
pub(super) enum Called {
    /// The key goes on.
    GoesOn,
    /// The key waits.
    Waits,
    /// The lease was lost meanwhile.
    Lost,
}

impl<'a> Hand<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        window: Window,
        number: LeaseNumber,
        seen: u64,
    ) -> Self {
        let tenure = Tenure::under(shared, number, window.key().clone());
        Self {
            shared,
            window,
            number,
            seen,
            turn: 0,
            has_written: false,
            tenure,
            became: Told::new(),
        }
    }

    /// Does all there is to do, and gives the key back.
    pub(super) async fn work(mut self, outlet: &Outlet) -> Ended {
        let rules = self.shared.rules();
        let mut unwritten = 0;
        while !self.shared.stop.is_cancelled() {
            match self.window.next(rules, self.shared.now()) {
                None => break,
                Some(Step::Note(note)) => {
                    note_down(self.shared, &mut self.became, self.window.key(), note);
                }
                Some(Step::Call(call)) => {
                    // What was done is written before the next is begun, so that a crash repeats no
                    // more than that.
                    if unwritten >= self.shared.settings.run {
                        let until = self.shared.now().after(self.shared.settings.lease);
                        if let Some(ended) = self.write(Then::Keep(until), outlet).await {
                            return ended;
                        }
                        unwritten = 0;
                    }
                    let on = (rules, Ground::Store, &self.tenure);
                    match call_handler(self.shared, &mut self.window, on, call, &mut self.became)
                        .await
                    {
                        Called::GoesOn => unwritten += 1,
                        Called::Waits => {}
                        Called::Lost => return self.lost(),
                    }
                }
            }
        }
        while let Some(note) = self.window.put_by(rules, self.shared.now()) {
            note_down(self.shared, &mut self.became, self.window.key(), note);
        }
        let wake = self.window.wake(rules, self.shared.now());
        if let Some(ended) = self.write(Then::Release(wake), outlet).await {
            return ended;
        }
        self.shared.adrift.remember(&self.window);
        Ended::Written(self.became)
    }

    /// Writes what has changed; answers how the work ends if it cannot go on.
    async fn write(&mut self, then: Then, outlet: &Outlet) -> Option<Ended> {
        self.turn += 1;
        let change = self.window.change();
        let lease = KeyLease {
            stream: self.shared.name.clone(),
            key: self.window.key().clone(),
            number: self.number,
        };
        let advance = Advance {
            lease,
            turn: self.turn,
            seen: self.seen,
            change: change.clone(),
            then,
        };
        match outlet.say(advance).await {
            Written::Yes => {
                self.has_written = true;
                metrics::count(&self.shared.name, &change.counts);
                None
            }
            Written::Stale => {
                tracing::warn!(stream = %self.shared.name, key = %self.window.key(), "a key was worked on after its lease was lost; what came of it does not count");
                Some(self.lost())
            }
            Written::Refused => Some(self.lost()),
            Written::Unknown => Some(self.go_adrift(&change)),
        }
    }

    const fn lost(&self) -> Ended {
        Ended::Lost {
            has_written: self.has_written,
        }
    }

    fn go_adrift(&mut self, unsaved: &Change) -> Ended {
        Ended::Adrift(
            Box::new(self.window.adrift(unsaved)),
            std::mem::take(&mut self.became),
        )
    }
}

/// The rules that hold, where dead letters may go, and the right to call.
pub(super) type On<'a> = (&'a Rules, Ground, &'a Tenure<'a>);

/// Calls the handler, and tells the window what came of it.
pub(super) async fn call_handler(
    shared: &Arc<Shared>,
    window: &mut Window,
    (rules, ground, tenure): On<'_>,
    call: Call,
    became: &mut Told,
) -> Called {
    let event = Event::new(&shared.name, window, call);
    let Some(ending) = run(shared, event.clone(), tenure).await else {
        return Called::Lost;
    };
    let now = shared.now();
    match ending {
        Ending::Done => done(shared, window, call, became, now),
        Ending::Cancelled(reason) => {
            tracing::info!(stream = %shared.name, key = %event.key, position = event.position, reason, "an event is no longer wanted");
            done(shared, window, call, became, now);
        }
        Ending::Snoozed(wait) | Ending::Released(wait) => {
            window.put_off(call, now.after(wait), now);
            note_held(call, became);
            return Called::Waits;
        }
        Ending::Failed {
            cause,
            error,
            advice,
            ..
        } => {
            let failure = (cause, error, advice);
            return failed(
                shared,
                window,
                (rules, ground),
                (call, event),
                failure,
                became,
            )
            .await;
        }
    }
    Called::GoesOn
}

fn done(shared: &Shared, window: &mut Window, call: Call, became: &mut Told, now: Time) {
    let arrived = window.held(call.position()).map(|held| held.at);
    let done = window.done(call, now);
    if let Some(arrived) = arrived {
        metrics::delay(&shared.name, now.since(arrived));
    }
    if done.missing > 0 {
        metrics::missing(&shared.name, done.missing);
    }
    if let Some(off) = done.off_step {
        tracing::info!(stream = %shared.name, key = %window.key(), "a record is off the grid of its key: {off}; the grid goes on from it");
    }
    match call {
        Call::Handle { position } => became.insert(position, Became::Handled),
        Call::Amend { position } => became.insert(position, Became::Amended),
        Call::Miss { .. } | Call::MissRange { .. } => None,
    };
}

async fn failed(
    shared: &Arc<Shared>,
    window: &mut Window,
    (rules, ground): (&Rules, Ground),
    (call, event): (Call, Event),
    (cause, error, advice): (Cause, ErrorReport, Advice),
    became: &mut Told,
) -> Called {
    let now = shared.now();
    let text = shared.backstop.redaction().text(&error.message);
    let (reason, attempts) = match advice {
        Advice::Discard => {
            tracing::warn!(stream = %shared.name, key = %event.key, position = event.position, error = %text, "an event failed and is not worth keeping");
            done(shared, window, call, became, now);
            return Called::GoesOn;
        }
        Advice::Dead => (Reason::Rejected, event.attempt),
        Advice::Retry | Advice::RetryAfter(_) => {
            let wish = if let Advice::RetryAfter(wait) = advice {
                Some(wait)
            } else {
                None
            };
            let failure = Failure {
                wish,
                error: &text,
                roll: shared.backstop.random().roll(),
            };
            match window.failed(call, rules, failure, now) {
                Failed::Retry { until, attempt } => {
                    tracing::info!(stream = %shared.name, key = %event.key, position = event.position, attempt, next = %until, error = %text, "an event failed; its key waits until it is tried again");
                    note_held(call, became);
                    return Called::Waits;
                }
                Failed::ForGood { attempt } => (Reason::AttemptsExhausted, attempt),
            }
        }
    };
    tracing::warn!(stream = %shared.name, key = %event.key, position = event.position, %reason, error = %text, "an event failed for good");
    let letter = burial(
        &event,
        Death {
            cause,
            error,
            reason,
            attempts,
        },
        &shared.worker,
        now,
    );
    match bury(&shared.backstop, letter, ground).await {
        Ok(()) => {
            window.buried(call, rules);
            became.insert(call.position(), Became::Dead);
            Called::GoesOn
        }
        Err(error) => {
            tracing::error!(%error, stream = %shared.name, key = %event.key, "a dead letter was not taken; the key waits");
            let wait = if matches!(error, Unburied::NoRoom) {
                NO_ROOM_WAIT
            } else {
                NO_STORE_WAIT
            };
            wait_for_room(window, call, wait, now, became)
        }
    }
}

fn wait_for_room(
    window: &mut Window,
    call: Call,
    wait: Span,
    now: Time,
    became: &mut Told,
) -> Called {
    window.put_off(call, now.after(wait), now);
    note_held(call, became);
    Called::Waits
}

fn note_held(call: Call, became: &mut Told) {
    became.insert(call.position(), Became::Held);
}

/// Runs the handler; `None` if the lease was lost meanwhile.
async fn run(shared: &Arc<Shared>, event: Event, tenure: &Tenure<'_>) -> Option<Ending> {
    let _permit = tokio::select! {
        biased;
        () = tenure.lost() => return None,
        // Never closed while hands are at work.
        permit = shared.calls.acquire() => permit.ok(),
    };
    // It may have waited for long, and the process may have been stopped meanwhile.
    if !tenure.is_certain() {
        return None;
    }
    let call = async {
        match AssertUnwindSafe(shared.handler.handle(event))
            .catch_unwind()
            .await
        {
            Ok(Ok(())) => Ending::Done,
            Ok(Err(fail)) => fail.into_ending(),
            Err(panic) => panicked("handler", panic.as_ref()),
        }
    };
    let timed_out = async {
        match shared.settings.timeout {
            Some(timeout) => {
                tokio::time::sleep(timeout.into()).await;
                crate::engine::execute::timed_out(timeout)
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = tenure.lost() => None,
        ending = call => Some(ending),
        ending = timed_out => Some(ending),
    }
}

/// Takes note of what is so.
pub(super) fn note_down(
    shared: &Shared,
    became: &mut Told,
    key: &backstop_core::StreamKey,
    note: Note,
) {
    let (position, now) = match note {
        Note::Duplicate { position, off_step } => {
            if let Some(off) = off_step {
                tracing::warn!(stream = %shared.name, %key, "a record was dropped as a duplicate, and is off the grid of its key: {off}");
            }
            // The first record of a batch for a position has an answer of its own.
            became.entry(position).or_insert(Became::Duplicate);
            return;
        }
        Note::Late { position } => (position, Became::Late),
        Note::Ignored { position } => (position, Became::Ignored),
        Note::Held { position } => (position, Became::Held),
        Note::Overflow { position } => {
            tracing::warn!(stream = %shared.name, %key, position, "a key holds too much; it is drained with misses");
            return;
        }
        Note::Timeout { position } => {
            tracing::info!(stream = %shared.name, %key, position, "a gap was not filled in time; the key is drained with misses");
            return;
        }
        Note::Wait { .. } | Note::Cleared { .. } => return,
    };
    became.insert(position, now);
}
