//! When a kind of jobs dies too often, or its dead letters no longer fit: stop starting it, and
//! keep its work where it is.
//!
//! A gate counts deaths over a sliding time and shuts on too many, or at once when the dead-letter
//! store refused one. How it finds out that all is well again is the [`Breaker`]'s affair: shut is
//! open, and probes reopen it.
//!
//! | shut by | reopens when |
//! |---|---|
//! | deaths | probes did not die |
//! | a full dead-letter store | there is room again, or probes found room or did not need it |
//! | hand | somebody resets it |

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

/// Why a gate is shut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShutReason {
    Deaths,
    /// The dead-letter store is full.
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

/// What workers tell a gate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GateUpdate {
    pub deaths: u32,
    /// Whether a death found none.
    pub is_refused: bool,
    /// How probes ended, in this order.
    pub probes: Vec<ProbeResult>,
}

/// How a run ended that was a probe of a shut gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeResult {
    Lived(CallReport),
    Died {
        /// The epoch it was admitted under.
        epoch: u64,
        /// Whether its death found room.
        had_room: bool,
    },
}

impl GateUpdate {
    /// A job died, or there was no room for its death; `probe` is the epoch of a probe.
    pub fn record_death(&mut self, probe: Option<u64>, had_room: bool) {
        self.deaths += u32::from(had_room);
        self.is_refused |= !had_room;
        self.probes
            .extend(probe.map(|epoch| ProbeResult::Died { epoch, had_room }));
    }

    /// A probe ended and did not die.
    pub fn record_survival(&mut self, signal: CallReport) {
        self.probes.push(ProbeResult::Lived(signal));
    }
}

/// The state of a gate; not shut to begin with.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gate {
    shut: Option<ShutReason>,
    deaths: DeathCounter,
    breaker: Breaker,
}

/// A gate as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GateStatus {
    /// Why it is shut, if it is; probes under way do not reopen it yet.
    pub shut: Option<ShutReason>,
    /// Deaths it counts at the moment.
    pub deaths: u64,
    /// The breaker that reopens it.
    #[serde(flatten)]
    pub breaker: BreakerStatus,
}

impl Gate {
    /// The gate a store kept; `None` if these bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The bytes a store keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a gate has only text, numbers and lists")
    }

    /// What it would let through; see [`Breaker::admits`].
    pub fn admits(&self, settings: &GateSettings, now: Time) -> BreakerAdmission {
        self.breaker.admits(&settings.breaker, now)
    }

    /// Lets through up to `want` runs; see [`Breaker::admit`].
    pub fn admit(
        &mut self,
        settings: &GateSettings,
        want: u32,
        until: Time,
        now: Time,
    ) -> AdmittedCalls {
        self.breaker.admit(&settings.breaker, want, until, now)
    }

    /// Takes back permits that were not used; see [`Breaker::give_back`].
    pub fn give_back(&mut self, settings: &GateSettings, epoch: u64, calls: u32, now: Time) {
        self.breaker.give_back(&settings.breaker, epoch, calls, now);
    }

    /// Follows a clock that was set back; see [`Breaker::follow`].
    pub fn follow_clock(&mut self, now: Time) -> bool {
        self.breaker.follow_clock(now)
    }

    /// What it lets through at `now`; see [`Breaker::phase`].
    pub fn phase(&self, settings: &GateSettings, now: Time) -> BreakerPhase {
        self.breaker.phase(&settings.breaker, now)
    }

    /// Why it is shut, if it is. It stays shut while probes are under way.
    pub const fn shut(&self) -> Option<ShutReason> {
        self.shut
    }

    /// Takes note of deaths that found room. Too many of them shut it.
    pub fn record_deaths(&mut self, settings: &GateSettings, count: u32, now: Time) {
        if count == 0 {
            return;
        }
        self.deaths.add(count, settings.within, now);
        let deaths = self.deaths.within(settings.within, now);
        // What shut it for lack of room does not excuse deaths: room alone must not reopen it then.
        if matches!(self.shut, None | Some(ShutReason::Full))
            && deaths >= u64::from(settings.deaths)
        {
            self.shut = Some(ShutReason::Deaths);
            self.breaker
                .open(format!("{deaths} deaths within {}", settings.within), now);
        }
    }

    /// Takes note that the dead-letter store refused a death: shut at once.
    pub fn record_no_room(&mut self, now: Time) {
        // Who waits already is not made to wait longer by runs that had begun before.
        if self.breaker.written_phase() != BreakerPhase::Open {
            self.shut.get_or_insert(ShutReason::Full);
            self.breaker
                .open("the dead-letter store is full".to_owned(), now);
        }
    }

    /// Takes note that the dead-letter store has room: a gate shut for lack of it opens at once,
    /// any other stays as it is.
    pub fn record_room(&mut self, now: Time) {
        if self.shut == Some(ShutReason::Full) {
            self.shut = None;
            self.breaker
                .close("the dead-letter store has room again".to_owned(), now);
        }
    }

    /// Takes note of how probes ended. A success is a run that did not die or, where lack of room
    /// shut the gate, one whose death had room; a failure is one that died, or was refused. What
    /// ran through an open gate says nothing here: its deaths are counted.
    pub fn record(&mut self, settings: &GateSettings, signals: &[CallReport], now: Time) {
        if self.breaker.written_phase() == BreakerPhase::Closed {
            return;
        }
        self.breaker.record(&settings.breaker, signals, now);
        if self.breaker.written_phase() == BreakerPhase::Closed {
            if self.shut == Some(ShutReason::Deaths) {
                // The deaths that shut it must not shut it again together with the next one.
                self.deaths = DeathCounter::default();
            }
            self.shut = None;
        }
    }

    /// Takes note of all that workers tell. To a gate that lack of room shut, a probe whose death
    /// found room is a success.
    pub fn apply_update(&mut self, settings: &GateSettings, news: &GateUpdate, now: Time) {
        let lacked_room = self.shut == Some(ShutReason::Full);
        let signal = |end: &ProbeResult| match *end {
            ProbeResult::Lived(signal) => signal,
            ProbeResult::Died { epoch, had_room } if had_room && lacked_room => CallReport {
                epoch,
                sign: CallOutcome::Success,
            },
            ProbeResult::Died { epoch, .. } => CallReport {
                epoch,
                sign: CallOutcome::Failure,
            },
        };
        let signals: Vec<CallReport> = news.probes.iter().map(signal).collect();
        self.record(settings, &signals, now);
        self.record_deaths(settings, news.deaths, now);
        if news.is_refused {
            self.record_no_room(now);
        }
    }

    /// Shuts it until somebody resets it.
    pub fn force_shut(&mut self, why: &str, now: Time) {
        self.shut = Some(ShutReason::Forced);
        self.breaker.force_open(why, now);
    }

    /// Opens it, and forgets the deaths so far; runs under way no longer count as probes.
    pub fn reset(&mut self, why: &str, now: Time) {
        self.shut = None;
        self.deaths = DeathCounter::default();
        self.breaker.reset(why, now);
    }

    /// What people see of it.
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
