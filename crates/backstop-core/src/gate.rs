//! Stops starting a kind of jobs that dies too often, or whose dead letters no longer fit, and
//! keeps its jobs in the queue.
//!
//! A gate counts deaths over a sliding window. It shuts on too many, or at once when the queue had
//! no room for a dead letter. A [`Breaker`] reopens it: a shut gate is an open breaker, and its
//! probes close it.
//!
//! | shut by | reopens when |
//! |---|---|
//! | deaths | probes did not die |
//! | no room for dead letters | there is room again, or probes found room or did not need it |
//! | an operator | somebody resets it |

mod deaths;
mod settings;

pub use settings::{GateSettings, InvalidGate};

use crate::breaker::{
    AdmittedCalls, Breaker, BreakerAdmission, BreakerPhase, BreakerStatus, CallOutcome, CallReport,
};
use crate::time::Time;
use deaths::DeathCounter;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The reason why a gate is shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShutReason {
    Deaths,
    /// There is no room for more dead letters.
    Full,
    Forced,
}

impl ShutReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deaths => "deaths",
            Self::Full => "full",
            Self::Forced => "forced",
        }
    }
}

impl fmt::Display for ShutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What workers report to a gate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GateUpdate {
    pub deaths: u32,
    /// Whether a death was refused for lack of room.
    pub is_refused: bool,
    /// How probes ended, in this order.
    pub probes: Vec<ProbeResult>,
}

/// How a run ended that was a probe of a shut gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeResult {
    Lived(CallReport),
    Died {
        /// The epoch under which the probe was admitted.
        epoch: u64,
        /// Whether there was room for its dead letter.
        had_room: bool,
    },
}

impl GateUpdate {
    /// Records that a job died, or that there was no room for its dead letter. `probe` is the epoch
    /// if the run was a probe.
    pub fn record_death(&mut self, probe: Option<u64>, had_room: bool) {
        self.deaths += u32::from(had_room);
        self.is_refused |= !had_room;
        self.probes
            .extend(probe.map(|epoch| ProbeResult::Died { epoch, had_room }));
    }

    /// Records that a probe ended and did not die.
    pub fn record_survival(&mut self, signal: CallReport) {
        self.probes.push(ProbeResult::Lived(signal));
    }
}

/// A gate with its counters; a new one is not shut.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    shut: Option<ShutReason>,
    deaths: DeathCounter,
    breaker: Breaker,
}

/// A gate as operators see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GateStatus {
    /// Why the gate is shut, if it is. Probes under way do not reopen it yet.
    pub shut: Option<ShutReason>,
    /// The number of deaths within the window.
    pub deaths: u64,
    /// The breaker that reopens the gate.
    #[serde(flatten)]
    pub breaker: BreakerStatus,
}

impl Gate {
    /// Parses a stored gate; `None` if the bytes are not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The bytes that a store keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a gate has only text, numbers and lists")
    }

    /// What the gate would admit; see [`Breaker::admits`].
    pub fn admits(&self, settings: &GateSettings, now: Time) -> BreakerAdmission {
        self.breaker.admits(&settings.breaker, now)
    }

    /// Admits up to `want` runs; see [`Breaker::admit`].
    pub fn admit(
        &mut self,
        settings: &GateSettings,
        want: u32,
        until: Time,
        now: Time,
    ) -> AdmittedCalls {
        self.breaker.admit(&settings.breaker, want, until, now)
    }

    /// Takes back unused permits; see [`Breaker::give_back`].
    pub fn give_back(&mut self, settings: &GateSettings, epoch: u64, calls: u32, now: Time) {
        self.breaker.give_back(&settings.breaker, epoch, calls, now);
    }

    /// Adjusts to a clock that was set back; see [`Breaker::follow_clock`].
    pub fn follow_clock(&mut self, now: Time) -> bool {
        self.breaker.follow_clock(now)
    }

    /// The phase of the gate at `now`; see [`Breaker::phase`].
    pub fn phase(&self, settings: &GateSettings, now: Time) -> BreakerPhase {
        self.breaker.phase(&settings.breaker, now)
    }

    /// Why the gate is shut, if it is. It stays shut while probes are under way.
    pub const fn shut(&self) -> Option<ShutReason> {
        self.shut
    }

    /// Records deaths that had room. Too many of them shut the gate.
    pub fn record_deaths(&mut self, settings: &GateSettings, count: u32, now: Time) {
        if count == 0 {
            return;
        }
        self.deaths.add(count, settings.within, now);
        let deaths = self.deaths.within(settings.within, now);
        // A gate that is shut for lack of room still counts deaths: room alone must not reopen it
        // then.
        if matches!(self.shut, None | Some(ShutReason::Full))
            && deaths >= u64::from(settings.deaths)
        {
            self.shut = Some(ShutReason::Deaths);
            self.breaker
                .open(format!("{deaths} deaths within {}", settings.within), now);
        }
    }

    /// Records that a death was refused for lack of room; this shuts the gate at once.
    pub fn record_no_room(&mut self, now: Time) {
        // Runs that had begun earlier must not make the current wait longer.
        if self.breaker.written_phase() != BreakerPhase::Open {
            self.shut.get_or_insert(ShutReason::Full);
            self.breaker
                .open("the dead-letter store is full".to_owned(), now);
        }
    }

    /// Records that there is room for dead letters. A gate that was shut for lack of room opens at
    /// once; any other stays as it is.
    pub fn record_room(&mut self, now: Time) {
        if self.shut == Some(ShutReason::Full) {
            self.shut = None;
            self.breaker
                .close("the dead-letter store has room again".to_owned(), now);
        }
    }

    /// Records how probes ended. A success is a run that did not die or, if the gate is shut for
    /// lack of room, one whose dead letter had room. A failure is a run that died, or whose death
    /// was refused. Runs through an open gate are ignored here: only their deaths count.
    pub fn record(&mut self, settings: &GateSettings, signals: &[CallReport], now: Time) {
        if self.breaker.written_phase() == BreakerPhase::Closed {
            return;
        }
        self.breaker.record(&settings.breaker, signals, now);
        if self.breaker.written_phase() == BreakerPhase::Closed {
            if self.shut == Some(ShutReason::Deaths) {
                // The deaths that shut the gate must not shut it again together with the next one.
                self.deaths = DeathCounter::default();
            }
            self.shut = None;
        }
    }

    /// Applies all that workers report. If the gate is shut for lack of room, a probe whose dead
    /// letter had room is a success.
    pub fn apply_update(&mut self, settings: &GateSettings, news: &GateUpdate, now: Time) {
        let lacked_room = self.shut == Some(ShutReason::Full);
        let signal = |end: &ProbeResult| match *end {
            ProbeResult::Lived(signal) => signal,
            ProbeResult::Died { epoch, had_room } if had_room && lacked_room => CallReport {
                epoch,
                outcome: CallOutcome::Success,
            },
            ProbeResult::Died { epoch, .. } => CallReport {
                epoch,
                outcome: CallOutcome::Failure,
            },
        };
        let signals: Vec<CallReport> = news.probes.iter().map(signal).collect();
        self.record(settings, &signals, now);
        self.record_deaths(settings, news.deaths, now);
        if news.is_refused {
            self.record_no_room(now);
        }
    }

    /// Shuts the gate until somebody resets it.
    pub fn force_shut(&mut self, why: &str, now: Time) {
        self.shut = Some(ShutReason::Forced);
        self.breaker.force_open(why, now);
    }

    /// Opens the gate and forgets its deaths. Runs under way no longer count as probes.
    pub fn reset(&mut self, why: &str, now: Time) {
        self.shut = None;
        self.deaths = DeathCounter::default();
        self.breaker.reset(why, now);
    }

    /// The gate as operators see it.
    pub fn status(&self, settings: &GateSettings, now: Time) -> GateStatus {
        GateStatus {
            shut: self.shut,
            deaths: self.deaths.within(settings.within, now),
            breaker: self.breaker.status(&settings.breaker, now),
        }
    }
}

#[cfg(test)]
mod tests;
