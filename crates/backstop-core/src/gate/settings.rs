//! The settings of a gate as people write them, and their check.

use crate::breaker::{BreakerSettings, BreakerSettingsInput, InvalidBreaker};
use crate::limits::{DEATHS_WITHIN_MAX, DEATHS_WITHIN_MIN};
use crate::time::Span;
use serde::{Deserialize, Deserializer, Serialize};

/// When a gate shuts, and what it takes to reopen it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct GateSettings {
    pub deaths: u32,
    /// The window over which deaths are counted.
    pub within: Span,
    /// How the gate reopens. Its `failure_threshold` is ignored: `deaths` decides when a gate
    /// shuts.
    pub breaker: BreakerSettings,
}

impl Default for GateSettings {
    /// A thousand deaths within a minute shut the gate; probes begin a minute later.
    fn default() -> Self {
        let breaker = BreakerSettings {
            recovery_timeout: Span::secs(60),
            ..BreakerSettings::default()
        };
        Self {
            deaths: 1_000,
            within: Span::minutes(1),
            breaker,
        }
    }
}

/// Settings that cannot work, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGate {
    /// The gate would shut before any death.
    #[error("`deaths` is 0: the gate would shut before any job died; write at least 1")]
    Zero,
    /// The window is too short to count in, or too long to matter.
    #[error(
        "`within` is {0}: deaths are counted over {DEATHS_WITHIN_MIN} to {DEATHS_WITHIN_MAX}; write such as \"1m\""
    )]
    Within(Span),
    /// The settings of the breaker cannot work.
    #[error("the gate's breaker: {0}")]
    Breaker(#[from] InvalidBreaker),
}

impl GateSettings {
    /// Whether a gate with these settings works, and can always reopen.
    pub fn check(&self) -> Result<(), InvalidGate> {
        if self.deaths == 0 {
            return Err(InvalidGate::Zero);
        }
        if self.within < DEATHS_WITHIN_MIN || self.within > DEATHS_WITHIN_MAX {
            return Err(InvalidGate::Within(self.within));
        }
        Ok(self.breaker.check()?)
    }
}

/// Settings as they were written; fields that were left out get the defaults, in the breaker too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GateSettingsInput {
    deaths: Option<u32>,
    within: Option<Span>,
    breaker: Option<BreakerSettingsInput>,
}

impl<'de> Deserialize<'de> for GateSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = GateSettingsInput::deserialize(deserializer)?;
        let usual = Self::default();
        let settings = Self {
            deaths: written.deaths.unwrap_or(usual.deaths),
            within: written.within.unwrap_or(usual.within),
            breaker: written
                .breaker
                .map_or(usual.breaker, |breaker| breaker.apply_to(usual.breaker)),
        };
        settings.check().map_err(serde::de::Error::custom)?;
        Ok(settings)
    }
}
