//! A circuit breaker: when to stop calling a failing service, and how to find out that it works
//! again.
//!
//! A breaker is a value. Callers ask it before they call, and record how their calls ended. It
//! knows nothing of queues, stores or clocks.
//!
//! | phase | admits | ends when |
//! |---|---|---|
//! | closed | everything | `failure_threshold` calls in a row failed: open |
//! | open | nothing | `recovery_timeout` has passed: half-open; never by itself if forced |
//! | half-open | a few probes | `success_threshold` probes succeeded: closed; one failed: open |
//!
//! It cannot get stuck. A probe that never reports back is granted again once its time is over, and
//! while no probe is under way there is always one to be granted, whatever the settings say.

mod settings;

pub(crate) use settings::BreakerSettingsInput;
pub use settings::{BreakerSettings, InvalidBreaker};

use crate::failure::truncate_text;
use crate::limits::{BREAKER_EVENTS_MAX, EVENT_REASON_CHARS_MAX, LEASE_REQUEST_MAX};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The phase of a breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerPhase {
    Closed,
    Open,
    HalfOpen,
}

impl BreakerPhase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for BreakerPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a call shows about the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallOutcome {
    Success,
    Failure,
    /// The call ended for a reason of its own and shows nothing. A probe's permit is returned.
    Neutral,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallReport {
    /// The epoch under which the call was admitted.
    pub epoch: u64,
    pub outcome: CallOutcome,
}

/// What a breaker would admit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BreakerAdmission {
    /// Admits any number of calls. They need no permit; their reports carry this epoch.
    Unlimited {
        /// The epoch for the reports of these calls.
        epoch: u64,
    },
    /// Admits a few calls, each with a permit of [`Breaker::admit`].
    Probes {
        /// The epoch that an admission would get now.
        epoch: u64,
        left: u32,
    },
    Blocked {
        /// When to ask again; `None` means not before somebody resets the breaker.
        until: Option<Time>,
    },
}

/// The calls that a breaker admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmittedCalls {
    /// The epoch of these calls. Their reports carry it, and so does [`Breaker::give_back`].
    pub epoch: u64,
    pub calls: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PhaseChange {
    pub at: Time,
    pub from: BreakerPhase,
    pub to: BreakerPhase,
    pub why: String,
}

/// A breaker with its counters; a new one is closed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Breaker {
    /// Counted up by every phase change, and by every admission of probes so that each has its
    /// own.
    epoch: u64,
    state: BreakerState,
    /// Failures since the last success while closed, or since the breaker closed.
    failures: u32,
    total_calls: u64,
    rejected_calls: u64,
    last_failure_time: Option<Time>,
    events: Vec<PhaseChange>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
enum BreakerState {
    #[default]
    Closed,
    Open {
        since: Time,
    },
    Forced {
        since: Time,
    },
    HalfOpen {
        opened_at: Time,
        /// The first epoch of this phase. Reports of earlier epochs are late.
        first_epoch: u64,
        successes: u32,
        grants: Vec<ProbeGrant>,
    },
}

/// The permits of one admission that were not returned yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct ProbeGrant {
    epoch: u64,
    calls: u32,
    at: Time,
    until: Time,
}

impl BreakerState {
    const fn phase(&self) -> BreakerPhase {
        match self {
            Self::Closed => BreakerPhase::Closed,
            Self::Open { .. } | Self::Forced { .. } => BreakerPhase::Open,
            Self::HalfOpen { .. } => BreakerPhase::HalfOpen,
        }
    }
}

/// A breaker as operators see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BreakerStatus {
    pub state: BreakerPhase,
    pub failure_count: u32,
    /// The probes that succeeded, while the breaker is half-open.
    pub success_count: u32,
    /// Calls whose end was recorded; late reports do not count. Most successes are missing here:
    /// workers do not report them while [`Breaker::has_no_recent_failures`] holds, so that a
    /// healthy service costs no write.
    pub total_calls: u64,
    /// Calls that were requested and not admitted.
    pub rejected_calls: u64,
    /// The time of the last failed call.
    pub last_failure_time: Option<Time>,
    /// When the breaker opened, if it is not closed.
    pub opened_at: Option<Time>,
    /// When the next probe may be granted; `None` if none is needed, or none is granted before a
    /// reset.
    pub next_probe_at: Option<Time>,
    /// The latest phase changes, newest last.
    pub events: Vec<PhaseChange>,
}

impl Breaker {
    /// Parses a stored breaker; `None` if the bytes are not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The bytes that a store keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a breaker has only text, numbers and lists")
    }

    /// Whether it is closed without recent failures. A success would then change only
    /// `total_calls`.
    pub fn has_no_recent_failures(&self) -> bool {
        self.state == BreakerState::Closed && self.failures == 0
    }

    /// The phase of the breaker at `now`.
    pub fn phase(&self, settings: &BreakerSettings, now: Time) -> BreakerPhase {
        if self.has_waited(settings, now) {
            BreakerPhase::HalfOpen
        } else {
            self.state.phase()
        }
    }

    /// What the breaker would admit at `now`. This changes nothing, so another caller may get the
    /// permits first.
    ///
    /// If the clock was set back to before the opening, this cannot know how much of the wait has
    /// passed and names the whole wait. [`Self::follow_clock`] restarts the wait; so does every
    /// other call that changes the breaker.
    pub fn admits(&self, settings: &BreakerSettings, now: Time) -> BreakerAdmission {
        match &self.state {
            BreakerState::Closed => BreakerAdmission::Unlimited { epoch: self.epoch },
            BreakerState::Forced { .. } => BreakerAdmission::Blocked { until: None },
            BreakerState::Open { .. } if self.has_waited(settings, now) => {
                BreakerAdmission::Probes {
                    epoch: self.epoch.wrapping_add(1),
                    left: probes_left(settings, 0, 0),
                }
            }
            BreakerState::Open { since } => BreakerAdmission::Blocked {
                until: Some((*since).min(now).after(settings.recovery_timeout)),
            },
            BreakerState::HalfOpen {
                successes, grants, ..
            } => {
                let live = grants.iter().filter(|grant| grant.until > now);
                let outstanding = live
                    .clone()
                    .map(|grant| grant.calls)
                    .fold(0, u32::saturating_add);
                match probes_left(settings, *successes, outstanding) {
                    0 => BreakerAdmission::Blocked {
                        until: live.map(|grant| grant.shifted_to(now).until).min(),
                    },
                    left => BreakerAdmission::Probes {
                        epoch: self.epoch,
                        left,
                    },
                }
            }
        }
    }

    /// Admits up to `want` calls. A probe that does not report back before `until` is granted
    /// again; its report still counts when it comes, as long as the breaker stays half-open.
    pub fn admit(
        &mut self,
        settings: &BreakerSettings,
        want: u32,
        until: Time,
        now: Time,
    ) -> AdmittedCalls {
        self.follow_clock(now);
        if let BreakerState::Open { since } = self.state
            && self.has_waited(settings, now)
        {
            let why = format!("{} have passed", settings.recovery_timeout);
            self.half_open(since, why, now);
        }
        let calls = match self.admits(settings, now) {
            BreakerAdmission::Unlimited { .. } => want,
            BreakerAdmission::Probes { left, .. } => want.min(left),
            BreakerAdmission::Blocked { .. } => 0,
        };
        self.rejected_calls = self.rejected_calls.saturating_add(u64::from(want - calls));
        let admitted = AdmittedCalls {
            epoch: self.epoch,
            calls,
        };
        if let BreakerState::HalfOpen { grants, .. } = &mut self.state {
            grants.retain(|grant| grant.until > now);
            if calls > 0 {
                // No lease is longer than this, whatever the caller's clock says.
                let until = until.min(now.after(LEASE_REQUEST_MAX));
                grants.push(ProbeGrant {
                    epoch: self.epoch,
                    calls,
                    at: now,
                    until,
                });
                self.epoch = self.epoch.wrapping_add(1);
            }
        }
        admitted
    }

    /// Records how calls ended, in this order. Reports of calls admitted in an earlier phase are
    /// late and change nothing, not even `total_calls`. An open breaker admits no calls, so every
    /// report to it is late.
    pub fn record(&mut self, settings: &BreakerSettings, reports: &[CallReport], now: Time) {
        self.follow_clock(now);
        for signal in reports {
            match self.state {
                BreakerState::Closed if signal.epoch == self.epoch => {
                    self.record_call(settings, signal.outcome, now);
                }
                BreakerState::HalfOpen { first_epoch, .. }
                    if (first_epoch..self.epoch).contains(&signal.epoch) =>
                {
                    self.record_probe(settings, *signal, now);
                }
                _ => {}
            }
        }
    }

    /// Takes back unused permits of the admission `epoch`.
    pub fn give_back(&mut self, _settings: &BreakerSettings, epoch: u64, calls: u32, now: Time) {
        self.follow_clock(now);
        self.take_back(epoch, calls);
    }

    /// Opens the breaker until somebody resets it.
    pub fn force_open(&mut self, why: &str, now: Time) {
        self.change_phase(BreakerState::Forced { since: now }, why.to_owned(), now);
    }

    /// Closes the breaker and forgets its failures. Reports of calls under way no longer count.
    pub fn reset(&mut self, why: &str, now: Time) {
        self.close(why.to_owned(), now);
    }

    /// Adjusts to a clock that was set back: waits that began in what is now the future restart at
    /// `now`. Returns whether anything changed and must be stored.
    pub fn follow_clock(&mut self, now: Time) -> bool {
        match &mut self.state {
            BreakerState::Open { since } if *since > now => *since = now,
            BreakerState::HalfOpen { grants, .. } if grants.iter().any(|grant| grant.at > now) => {
                for grant in grants {
                    *grant = grant.shifted_to(now);
                }
            }
            _ => return false,
        }
        true
    }

    /// The breaker as operators see it.
    pub fn status(&self, settings: &BreakerSettings, now: Time) -> BreakerStatus {
        let (opened_at, success_count) = match self.state {
            BreakerState::Closed => (None, 0),
            BreakerState::Open { since } | BreakerState::Forced { since } => (Some(since), 0),
            BreakerState::HalfOpen {
                opened_at,
                successes,
                ..
            } => (Some(opened_at), successes),
        };
        let next_probe_at = match self.admits(settings, now) {
            BreakerAdmission::Unlimited { .. } => None,
            BreakerAdmission::Probes { .. } => Some(now),
            BreakerAdmission::Blocked { until } => until,
        };
        BreakerStatus {
            state: self.phase(settings, now),
            failure_count: self.failures,
            success_count,
            total_calls: self.total_calls,
            rejected_calls: self.rejected_calls,
            last_failure_time: self.last_failure_time,
            opened_at,
            next_probe_at,
            events: self.events.clone(),
        }
    }

    /// The stored phase: an open breaker stays open until a call is admitted.
    pub(crate) const fn written_phase(&self) -> BreakerPhase {
        self.state.phase()
    }

    /// Opens the breaker, or restarts the wait of an open one.
    pub(crate) fn open(&mut self, why: String, now: Time) {
        self.change_phase(BreakerState::Open { since: now }, why, now);
    }

    pub(crate) fn close(&mut self, why: String, now: Time) {
        self.failures = 0;
        self.change_phase(BreakerState::Closed, why, now);
    }

    fn half_open(&mut self, opened_at: Time, why: String, now: Time) {
        self.change_phase(
            BreakerState::HalfOpen {
                opened_at,
                first_epoch: 0,
                successes: 0,
                grants: Vec::new(),
            },
            why,
            now,
        );
        if let BreakerState::HalfOpen { first_epoch, .. } = &mut self.state {
            *first_epoch = self.epoch;
        }
    }

    fn change_phase(&mut self, to: BreakerState, why: String, now: Time) {
        let event = PhaseChange {
            at: now,
            from: self.state.phase(),
            to: to.phase(),
            why: truncate_text(why, EVENT_REASON_CHARS_MAX),
        };
        self.epoch = self.epoch.wrapping_add(1);
        self.state = to;
        self.events.push(event);
        let surplus = self.events.len().saturating_sub(BREAKER_EVENTS_MAX);
        self.events.drain(..surplus);
    }

    /// Whether it is open and its wait is over. A clock set back to before the opening does not end
    /// the wait.
    fn has_waited(&self, settings: &BreakerSettings, now: Time) -> bool {
        matches!(self.state, BreakerState::Open { since } if now >= since.after(settings.recovery_timeout))
    }

    fn record_call(&mut self, settings: &BreakerSettings, outcome: CallOutcome, now: Time) {
        self.count(outcome, now);
        if outcome == CallOutcome::Success {
            self.failures = 0;
        }
        if outcome == CallOutcome::Failure && self.failures >= settings.failure_threshold {
            self.open(in_a_row(self.failures), now);
        }
    }

    fn record_probe(&mut self, settings: &BreakerSettings, signal: CallReport, now: Time) {
        self.count(signal.outcome, now);
        self.take_back(signal.epoch, 1);
        let BreakerState::HalfOpen { successes, .. } = &mut self.state else {
            return;
        };
        match signal.outcome {
            CallOutcome::Neutral => {}
            CallOutcome::Failure => self.open("a probe failed".to_owned(), now),
            CallOutcome::Success => {
                *successes = successes.saturating_add(1);
                if *successes >= settings.success_threshold {
                    let why = format!("{successes} probe{} succeeded", plural(*successes));
                    self.close(why, now);
                }
            }
        }
    }

    fn count(&mut self, outcome: CallOutcome, now: Time) {
        self.total_calls = self.total_calls.saturating_add(1);
        if outcome == CallOutcome::Failure {
            self.failures = self.failures.saturating_add(1);
            self.last_failure_time = Some(now);
        }
    }

    fn take_back(&mut self, epoch: u64, calls: u32) {
        let BreakerState::HalfOpen { grants, .. } = &mut self.state else {
            return;
        };
        for grant in grants.iter_mut().filter(|grant| grant.epoch == epoch) {
            grant.calls = grant.calls.saturating_sub(calls);
        }
        grants.retain(|grant| grant.calls > 0);
    }
}

impl ProbeGrant {
    /// The same permits for the same length of time, moved to `now` if the clock was set back to
    /// before their start.
    fn shifted_to(self, now: Time) -> Self {
        if self.at <= now {
            self
        } else {
            Self {
                at: now,
                until: now.after(self.length()),
                ..self
            }
        }
    }

    fn length(self) -> Span {
        self.until.since(self.at)
    }
}

/// The number of probes that may still be granted. While none is under way there is always one.
/// Otherwise settings that were changed halfway, or never checked, could leave nobody to find out
/// that the service works again.
fn probes_left(settings: &BreakerSettings, successes: u32, outstanding: u32) -> u32 {
    let taken = successes.saturating_add(outstanding);
    settings
        .half_open_max_calls
        .saturating_sub(taken)
        .max(u32::from(outstanding == 0))
}

fn in_a_row(failures: u32) -> String {
    format!("{failures} failure{} in a row", plural(failures))
}

const fn plural(number: u32) -> &'static str {
    if number == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests;
