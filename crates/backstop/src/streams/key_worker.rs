//! One key, worked through by whoever has its lease.

use super::batch_writer::{BatchSubmitter, SubmitOutcome};
use super::dead_letters::{BuryError, DeadLetterTarget, FinalFailure, burial, bury};
use super::event::StreamEvent;
use super::key_leases::KeyOwnership;
use super::metrics;
use super::running::{RecordOutcome, RecordOutcomes, StreamRuntime};
use crate::engine::execute::panic_ending;
use backstop_core::failure::{ErrorReport, FailureCause};
use backstop_core::port::{KeyAdvance, KeyLease, KeyLeaseAction};
use backstop_core::stream::{
    FailedCallDecision, HandlerCall, HandlerFailure, KeyChange, KeyEvent, KeyStep, KeyWindow,
    StreamRules,
};
use backstop_core::verdict::{EndReason, FailureAdvice, RunEnding};
use backstop_core::{LeaseNumber, Span, Time};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// How long a key waits whose dead letter found no room, or no store.
const NO_ROOM_WAIT: Span = Span::secs(60);
const NO_STORE_WAIT: Span = Span::secs(5);

/// One key in one's hands.
pub(super) struct KeyWorker<'a> {
    shared: &'a Arc<StreamRuntime>,
    window: KeyWindow,
    number: LeaseNumber,
    /// What had arrived when it was taken.
    seen: u64,
    /// The last turn that was said.
    turn: u32,
    /// Whether anything was written: before that, somebody else knows nothing of what this one was
    /// given to take over.
    has_written: bool,
    ownership: KeyOwnership<'a>,
    outcomes: RecordOutcomes,
}

/// How the work on a key ended.
pub(super) enum KeyWorkEnd {
    /// All of it is in the store.
    Written(RecordOutcomes),
    /// The lease was lost: what was not written is somebody else's to do again.
    Lost {
        /// Whether anything was written before.
        has_written: bool,
    },
    /// The store does not answer: the key goes on without it.
    Offline(Box<KeyWindow>, RecordOutcomes),
}

/// What came of a call.
pub(super) enum HandlerCallEnd {
    GoesOn,
    Waits,
    /// The lease was lost meanwhile.
    Lost,
}

impl<'a> KeyWorker<'a> {
    pub(super) fn new(
        shared: &'a Arc<StreamRuntime>,
        window: KeyWindow,
        number: LeaseNumber,
        seen: u64,
    ) -> Self {
        let ownership = KeyOwnership::with_lease(shared, number, window.key().clone());
        Self {
            shared,
            window,
            number,
            seen,
            turn: 0,
            has_written: false,
            ownership,
            outcomes: RecordOutcomes::new(),
        }
    }

    /// Does all there is to do, and gives the key back.
    pub(super) async fn work(mut self, submitter: &BatchSubmitter) -> KeyWorkEnd {
        let rules = self.shared.rules();
        let mut unwritten = 0;
        while !self.shared.stop.is_cancelled() {
            match self.window.next(rules, self.shared.now()) {
                None => break,
                Some(KeyStep::Event(note)) => {
                    record_note(self.shared, &mut self.outcomes, self.window.key(), note);
                }
                Some(KeyStep::Call(call)) => {
                    // What was done is written before the next is begun, so that a crash repeats no
                    // more than that.
                    if unwritten >= self.shared.settings.run {
                        let until = self.shared.now().after(self.shared.settings.lease);
                        if let Some(end) = self.write(KeyLeaseAction::Keep(until), submitter).await
                        {
                            return end;
                        }
                        unwritten = 0;
                    }
                    let context = (rules, DeadLetterTarget::Store, &self.ownership);
                    match call_handler(
                        self.shared,
                        &mut self.window,
                        context,
                        call,
                        &mut self.outcomes,
                    )
                    .await
                    {
                        HandlerCallEnd::GoesOn => unwritten += 1,
                        HandlerCallEnd::Waits => {}
                        HandlerCallEnd::Lost => return self.lost(),
                    }
                }
            }
        }
        while let Some(note) = self.window.hold_arrivals(rules, self.shared.now()) {
            record_note(self.shared, &mut self.outcomes, self.window.key(), note);
        }
        let wake = self.window.wake(rules, self.shared.now());
        if let Some(end) = self.write(KeyLeaseAction::Release(wake), submitter).await {
            return end;
        }
        self.shared.outage.remember(&self.window);
        KeyWorkEnd::Written(self.outcomes)
    }

    /// Writes what has changed; answers how the work ends if it cannot go on.
    async fn write(
        &mut self,
        then: KeyLeaseAction,
        submitter: &BatchSubmitter,
    ) -> Option<KeyWorkEnd> {
        self.turn += 1;
        let change = self.window.take_change();
        let lease = KeyLease {
            stream: self.shared.name.clone(),
            key: self.window.key().clone(),
            number: self.number,
        };
        let advance = KeyAdvance {
            lease,
            turn: self.turn,
            seen: self.seen,
            change: change.clone(),
            lease_action: then,
        };
        match submitter.submit(advance).await {
            SubmitOutcome::Yes => {
                self.has_written = true;
                metrics::count(&self.shared.name, &change.counts);
                None
            }
            SubmitOutcome::Stale => {
                tracing::warn!(stream = %self.shared.name, key = %self.window.key(), "a key was worked on after its lease was lost; what came of it does not count");
                Some(self.lost())
            }
            SubmitOutcome::Refused => Some(self.lost()),
            SubmitOutcome::Unknown => Some(self.go_offline(&change)),
        }
    }

    const fn lost(&self) -> KeyWorkEnd {
        KeyWorkEnd::Lost {
            has_written: self.has_written,
        }
    }

    fn go_offline(&mut self, unsaved: &KeyChange) -> KeyWorkEnd {
        KeyWorkEnd::Offline(
            Box::new(self.window.offline_with_unsaved(unsaved)),
            std::mem::take(&mut self.outcomes),
        )
    }
}

/// The rules that hold, where dead letters may go, and the right to call.
pub(super) type CallContext<'a> = (&'a StreamRules, DeadLetterTarget, &'a KeyOwnership<'a>);

/// Calls the handler, and tells the window what came of it.
pub(super) async fn call_handler(
    shared: &Arc<StreamRuntime>,
    window: &mut KeyWindow,
    (rules, target, ownership): CallContext<'_>,
    call: HandlerCall,
    outcomes: &mut RecordOutcomes,
) -> HandlerCallEnd {
    let event = StreamEvent::new(&shared.name, window, call);
    let Some(ending) = run_handler(shared, event.clone(), ownership).await else {
        return HandlerCallEnd::Lost;
    };
    let now = shared.now();
    match ending {
        RunEnding::Done => record_done(shared, window, call, outcomes, now),
        RunEnding::Cancelled(reason) => {
            tracing::info!(stream = %shared.name, key = %event.key, position = event.position, reason, "an event is no longer wanted");
            record_done(shared, window, call, outcomes, now);
        }
        RunEnding::Snoozed(wait) | RunEnding::Released(wait) => {
            window.put_off(call, now.after(wait), now);
            record_held(call, outcomes);
            return HandlerCallEnd::Waits;
        }
        RunEnding::Failed {
            cause,
            error,
            advice,
            ..
        } => {
            let failure = (cause, error, advice);
            return record_failure(
                shared,
                window,
                (rules, target),
                (call, event),
                failure,
                outcomes,
            )
            .await;
        }
    }
    HandlerCallEnd::GoesOn
}

fn record_done(
    shared: &StreamRuntime,
    window: &mut KeyWindow,
    call: HandlerCall,
    outcomes: &mut RecordOutcomes,
    now: Time,
) {
    let arrived = window.held(call.position()).map(|held| held.at);
    let done = window.complete(call, now);
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
        HandlerCall::Handle { position } => outcomes.insert(position, RecordOutcome::Handled),
        HandlerCall::Amend { position } => outcomes.insert(position, RecordOutcome::Amended),
        HandlerCall::Miss { .. } | HandlerCall::MissRange { .. } => None,
    };
}

async fn record_failure(
    shared: &Arc<StreamRuntime>,
    window: &mut KeyWindow,
    (rules, target): (&StreamRules, DeadLetterTarget),
    (call, event): (HandlerCall, StreamEvent),
    (cause, error, advice): (FailureCause, ErrorReport, FailureAdvice),
    outcomes: &mut RecordOutcomes,
) -> HandlerCallEnd {
    let now = shared.now();
    let text = shared.backstop.redaction().text(&error.message);
    let (reason, attempts) = match advice {
        FailureAdvice::Discard => {
            tracing::warn!(stream = %shared.name, key = %event.key, position = event.position, error = %text, "an event failed and is not worth keeping");
            record_done(shared, window, call, outcomes, now);
            return HandlerCallEnd::GoesOn;
        }
        FailureAdvice::Dead => (EndReason::Rejected, event.attempt),
        FailureAdvice::Retry | FailureAdvice::RetryAfter(_) => {
            let wish = if let FailureAdvice::RetryAfter(wait) = advice {
                Some(wait)
            } else {
                None
            };
            let failure = HandlerFailure {
                requested_wait: wish,
                error: &text,
                roll: shared.backstop.random().roll(),
            };
            match window.fail(call, rules, failure, now) {
                FailedCallDecision::Retry { until, attempt } => {
                    tracing::info!(stream = %shared.name, key = %event.key, position = event.position, attempt, next = %until, error = %text, "an event failed; its key waits until it is tried again");
                    record_held(call, outcomes);
                    return HandlerCallEnd::Waits;
                }
                FailedCallDecision::ForGood { attempt } => (EndReason::AttemptsExhausted, attempt),
            }
        }
    };
    tracing::warn!(stream = %shared.name, key = %event.key, position = event.position, %reason, error = %text, "an event failed for good");
    let letter = burial(
        &event,
        FinalFailure {
            cause,
            error,
            reason,
            attempts,
        },
        &shared.worker,
        now,
    );
    match bury(&shared.backstop, letter, target).await {
        Ok(()) => {
            window.bury(call, rules);
            outcomes.insert(call.position(), RecordOutcome::Dead);
            HandlerCallEnd::GoesOn
        }
        Err(error) => {
            tracing::error!(%error, stream = %shared.name, key = %event.key, "a dead letter was not taken; the key waits");
            let wait = if matches!(error, BuryError::NoRoom) {
                NO_ROOM_WAIT
            } else {
                NO_STORE_WAIT
            };
            wait_for_room(window, call, wait, now, outcomes)
        }
    }
}

fn wait_for_room(
    window: &mut KeyWindow,
    call: HandlerCall,
    wait: Span,
    now: Time,
    outcomes: &mut RecordOutcomes,
) -> HandlerCallEnd {
    window.put_off(call, now.after(wait), now);
    record_held(call, outcomes);
    HandlerCallEnd::Waits
}

fn record_held(call: HandlerCall, outcomes: &mut RecordOutcomes) {
    outcomes.insert(call.position(), RecordOutcome::Held);
}

/// Runs the handler; `None` if the lease was lost meanwhile.
async fn run_handler(
    shared: &Arc<StreamRuntime>,
    event: StreamEvent,
    ownership: &KeyOwnership<'_>,
) -> Option<RunEnding> {
    let _permit = tokio::select! {
        biased;
        () = ownership.lost() => return None,
        // Never closed while hands are at work.
        permit = shared.calls.acquire() => permit.ok(),
    };
    // It may have waited for long, and the process may have been stopped meanwhile.
    if !ownership.is_certain() {
        return None;
    }
    let call = async {
        match AssertUnwindSafe(shared.handler.handle(event))
            .catch_unwind()
            .await
        {
            Ok(Ok(())) => RunEnding::Done,
            Ok(Err(fail)) => fail.into_ending(),
            Err(panic) => panic_ending("handler", panic.as_ref()),
        }
    };
    let timed_out = async {
        match shared.settings.timeout {
            Some(timeout) => {
                tokio::time::sleep(timeout.into()).await;
                crate::engine::execute::timeout_ending(timeout)
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = ownership.lost() => None,
        ending = call => Some(ending),
        ending = timed_out => Some(ending),
    }
}

/// Takes note of what is so.
pub(super) fn record_note(
    shared: &StreamRuntime,
    outcomes: &mut RecordOutcomes,
    key: &backstop_core::StreamKey,
    note: KeyEvent,
) {
    let (position, outcome) = match note {
        KeyEvent::Duplicate { position, off_step } => {
            if let Some(off) = off_step {
                tracing::warn!(stream = %shared.name, %key, "a record was dropped as a duplicate, and is off the grid of its key: {off}");
            }
            // The first record of a batch for a position has an answer of its own.
            outcomes.entry(position).or_insert(RecordOutcome::Duplicate);
            return;
        }
        KeyEvent::Late { position } => (position, RecordOutcome::Late),
        KeyEvent::Ignored { position } => (position, RecordOutcome::Ignored),
        KeyEvent::Held { position } => (position, RecordOutcome::Held),
        KeyEvent::Overflow { position } => {
            tracing::warn!(stream = %shared.name, %key, position, "a key holds too much; it is drained with misses");
            return;
        }
        KeyEvent::Timeout { position } => {
            tracing::info!(stream = %shared.name, %key, position, "a gap was not filled in time; the key is drained with misses");
            return;
        }
        KeyEvent::Wait { .. } | KeyEvent::Cleared { .. } => return,
    };
    outcomes.insert(position, outcome);
}
