//! Breakers and gates as all workers share them, and as an operator sees and turns them.
//!
//! | what | name of its cell | shut means |
//! |---|---|---|
//! | breaker of a queue's service | `breaker/QUEUE` | the queue is not claimed from |
//! | gate of a kind's dead letters | `gate/QUEUE/KIND` | jobs of the kind are not started |
//!
//! A cell holds the settings beside the state, so that whoever reads it can tell what happens next.

use crate::client::Backstop;
use crate::shared_cells::{cells, read, update};
use backstop_core::breaker::{
    Breaker, BreakerAdmission, BreakerPhase, BreakerSettings, BreakerStatus,
};
use backstop_core::failure::truncate_text;
use backstop_core::gate::{Gate, GateSettings, ShutReason};
use backstop_core::limits::EVENT_REASON_CHARS_MAX;
use backstop_core::port::{Cell, StoreResult};
use backstop_core::{Kind, QueueName, Time};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Why a breaker is open that somebody opened without saying so.
pub const BY_HAND: &str = "opened by hand";

const BREAKER: &str = "breaker/";
pub(crate) const GATE: &str = "gate/";

/// Names a breaker, or a gate.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BreakerName {
    /// The breaker of a queue's service.
    Breaker(QueueName),
    /// The gate of a kind's dead letters.
    Gate(QueueName, Kind),
}

impl BreakerName {
    /// The queue it stands before.
    pub const fn queue(&self) -> &QueueName {
        match self {
            Self::Breaker(queue) | Self::Gate(queue, _) => queue,
        }
    }

    /// The kind it stands before; `None` for all of the queue.
    pub const fn kind(&self) -> Option<&Kind> {
        match self {
            Self::Breaker(_) => None,
            Self::Gate(_, kind) => Some(kind),
        }
    }

    /// The word for a phase of it: a gate is shut where a breaker is open, and open where that is
    /// closed.
    pub const fn word(&self, phase: BreakerPhase) -> &'static str {
        match (self, phase) {
            (Self::Gate(..), BreakerPhase::Closed) => "open",
            (Self::Gate(..), BreakerPhase::Open) => "shut",
            (_, phase) => phase.as_str(),
        }
    }

    pub(crate) fn cell_name(&self) -> String {
        match self {
            Self::Breaker(_) => format!("{BREAKER}{self}"),
            Self::Gate(..) => format!("{GATE}{self}"),
        }
    }

    fn from_cell_name(cell: &str) -> Option<Self> {
        let name = cell
            .strip_prefix(BREAKER)
            .or_else(|| cell.strip_prefix(GATE))?;
        name.parse().ok()
    }
}

impl fmt::Display for BreakerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breaker(queue) => queue.fmt(f),
            Self::Gate(queue, kind) => write!(f, "{queue}/{kind}"),
        }
    }
}

/// Text that names neither a breaker nor a gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no breaker: write QUEUE for a queue's breaker, or QUEUE/KIND for the gate of a kind"
)]
pub struct InvalidBreakerName(String);

impl FromStr for BreakerName {
    type Err = InvalidBreakerName;

    /// A queue's name has no slash.
    fn from_str(text: &str) -> Result<Self, InvalidBreakerName> {
        let wrong = || InvalidBreakerName(text.to_owned());
        match text.split_once('/') {
            None => Ok(Self::Breaker(QueueName::new(text).map_err(|_| wrong())?)),
            Some((queue, kind)) => Ok(Self::Gate(
                QueueName::new(queue).map_err(|_| wrong())?,
                Kind::new(kind).map_err(|_| wrong())?,
            )),
        }
    }
}

/// A breaker with its settings.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SharedBreaker {
    pub(crate) settings: BreakerSettings,
    pub(crate) state: Breaker,
}

/// A gate with its settings.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct SharedGate {
    pub(crate) settings: GateSettings,
    pub(crate) state: Gate,
}

/// A breaker or a gate as it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct BreakerInfo {
    pub name: BreakerName,
    /// Why it is shut, if it is a gate and shut.
    pub shut: Option<ShutReason>,
    /// Deaths a gate counts at the moment.
    pub deaths: Option<u64>,
    /// When it opens, and what it takes to close it.
    pub settings: BreakerSettings,
    pub status: BreakerStatus,
    /// What it would let through now.
    pub admission: BreakerAdmission,
}

/// Writes into the log that a breaker or a gate changed its phase, if it did; whether it did.
pub(crate) fn log_change(name: &BreakerName, before: BreakerPhase, after: &BreakerStatus) -> bool {
    if before == after.state {
        return false;
    }
    let last = after.events.last();
    let cause = last.map(|event| event.why.as_str()).unwrap_or_default();
    let (queue, kind) = (name.queue(), name.kind().map(Kind::as_str));
    let what = kind.map_or("breaker", |_| "gate");
    let word = name.word(after.state);
    match after.state {
        BreakerPhase::Open => {
            let probe = after
                .next_probe_at
                .map(|at| format!(", one is tried at {at}"))
                .unwrap_or_default();
            tracing::warn!(%queue, kind, cause, "{what} {word}: {name}; its jobs wait{probe}");
        }
        BreakerPhase::HalfOpen => {
            tracing::info!(%queue, kind, cause, "{what} {word}: {name}; a few of its jobs are tried");
        }
        BreakerPhase::Closed => {
            tracing::warn!(%queue, kind, cause, "{what} {word}: {name}; its jobs run again");
        }
    }
    true
}

impl BreakerInfo {
    fn of(cell: &Cell, now: Time) -> Option<Self> {
        let name = BreakerName::from_cell_name(&cell.name)?;
        Some(match name {
            BreakerName::Breaker(_) => {
                let breaker: SharedBreaker = read(cell)?;
                Self {
                    name,
                    shut: None,
                    deaths: None,
                    settings: breaker.settings,
                    status: breaker.state.status(&breaker.settings, now),
                    admission: breaker.state.admits(&breaker.settings, now),
                }
            }
            BreakerName::Gate(..) => {
                let gate: SharedGate = read(cell)?;
                let status = gate.state.status(&gate.settings, now);
                Self {
                    name,
                    shut: status.shut,
                    deaths: Some(status.deaths),
                    settings: gate.settings.breaker,
                    status: status.breaker,
                    admission: gate.state.admits(&gate.settings, now),
                }
            }
        })
    }

    /// How it stands, in the word that fits it.
    pub const fn word(&self) -> &'static str {
        self.name.word(self.status.state)
    }

    /// Whether it keeps jobs from running, wholly or in part.
    pub fn is_shut(&self) -> bool {
        self.status.state != BreakerPhase::Closed
    }
}

/// What an operator sees of breakers and gates, and can do to them.
#[derive(Debug)]
pub struct Breakers<'a>(&'a Backstop);

impl Backstop {
    /// The breakers and gates that all workers on this store heed.
    pub const fn breakers(&self) -> Breakers<'_> {
        Breakers(self)
    }
}

impl Breakers<'_> {
    /// All of them: breakers by queue, then gates. A kind has a gate once one of its jobs died.
    pub async fn list(&self) -> StoreResult<Vec<BreakerInfo>> {
        let (now, mut found) = (self.0.current_time().await, Vec::new());
        for prefix in [BREAKER, GATE] {
            found.extend(
                cells(self.0, prefix)
                    .await?
                    .iter()
                    .filter_map(|cell| BreakerInfo::of(cell, now)),
            );
        }
        Ok(found)
    }

    /// Those that stand before jobs of this queue and kind.
    pub async fn list_for(&self, queue: &QueueName, kind: &Kind) -> StoreResult<Vec<BreakerInfo>> {
        let names = [
            BreakerName::Breaker(queue.clone()),
            BreakerName::Gate(queue.clone(), kind.clone()),
        ];
        let cells = self
            .0
            .store()
            .cells(names.iter().map(BreakerName::cell_name).collect())
            .await?;
        let now = self.0.current_time().await;
        Ok(cells
            .iter()
            .flatten()
            .filter_map(|cell| BreakerInfo::of(cell, now))
            .collect())
    }

    /// Whether there is such a breaker or gate, and it keeps jobs from running.
    pub(crate) async fn is_shut(&self, name: &BreakerName) -> StoreResult<bool> {
        Ok(self.find(name).await?.is_some_and(|guard| guard.is_shut()))
    }

    /// Whether somebody opened it by hand already, for the same reason.
    pub(crate) async fn is_forced(&self, name: &BreakerName, why: &str) -> StoreResult<bool> {
        let guard = self.find(name).await?;
        Ok(guard.is_some_and(|guard| {
            let is_forced = matches!(guard.admission, BreakerAdmission::Blocked { until: None });
            let last = guard.status.events.last();
            is_forced
                && last.is_some_and(|event| {
                    event.why == truncate_text(why.to_owned(), EVENT_REASON_CHARS_MAX)
                })
        }))
    }

    async fn find(&self, name: &BreakerName) -> StoreResult<Option<BreakerInfo>> {
        let cell = self
            .0
            .store()
            .cells(vec![name.cell_name()])
            .await?
            .pop()
            .flatten();
        let now = self.0.current_time().await;
        Ok(cell.and_then(|cell| BreakerInfo::of(&cell, now)))
    }

    /// Closes a breaker or reopens a gate, and forgets what made it open; whether there is such a
    /// one.
    pub async fn reset(&self, name: &BreakerName, why: &str) -> StoreResult<bool> {
        if self
            .0
            .store()
            .cells(vec![name.cell_name()])
            .await?
            .pop()
            .flatten()
            .is_none()
        {
            return Ok(false);
        }
        let now = self.0.current_time().await;
        match name {
            BreakerName::Breaker(_) => {
                update(self.0, &name.cell_name(), default_breaker(), |breaker| {
                    breaker.state.reset(why, now);
                })
                .await?;
            }
            BreakerName::Gate(..) => {
                update(self.0, &name.cell_name(), default_gate(), |gate| {
                    gate.state.reset(why, now);
                })
                .await?;
            }
        }
        Ok(true)
    }

    /// Opens a breaker, or shuts a gate, until somebody resets it. One that is not there yet comes
    /// into being.
    pub async fn open(&self, name: &BreakerName, why: &str) -> StoreResult<()> {
        let now = self.0.current_time().await;
        match name {
            BreakerName::Breaker(_) => {
                update(self.0, &name.cell_name(), default_breaker(), |breaker| {
                    breaker.state.force_open(why, now);
                })
                .await?;
            }
            BreakerName::Gate(..) => {
                update(self.0, &name.cell_name(), default_gate(), |gate| {
                    gate.state.force_shut(why, now);
                })
                .await?;
            }
        }
        Ok(())
    }
}

fn default_breaker() -> SharedBreaker {
    SharedBreaker {
        settings: BreakerSettings::default(),
        state: Breaker::default(),
    }
}

fn default_gate() -> SharedGate {
    SharedGate {
        settings: GateSettings::default(),
        state: Gate::default(),
    }
}

/// The gate of a cell.
pub(crate) fn parse_gate_cell(cell: &Cell) -> Option<((QueueName, Kind), SharedGate)> {
    match BreakerName::from_cell_name(&cell.name)? {
        BreakerName::Gate(queue, kind) => Some(((queue, kind), read(cell)?)),
        BreakerName::Breaker(_) => None,
    }
}
