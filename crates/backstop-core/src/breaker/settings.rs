//! The settings of a breaker as people write them, and the check that they cannot leave it stuck.

use crate::limits::{BREAKER_CALLS_MAX, RECOVERY_TIMEOUT_MAX};
use crate::time::Span;
use serde::{Deserialize, Deserializer, Serialize};

/// When a breaker opens, and what it takes to close it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct BreakerSettings {
    /// The number of failures in a row that opens it.
    pub failure_threshold: u32,
    /// How long it stays open before it admits probes.
    pub recovery_timeout: Span,
    /// The total number of probes that a half-open breaker admits.
    pub half_open_max_calls: u32,
    /// The number of probes that must succeed to close it.
    pub success_threshold: u32,
}

impl Default for BreakerSettings {
    /// Five failures in a row open it for 30 s; two successes of three probes close it.
    fn default() -> Self {
        Self {
            failure_threshold: 5,
            recovery_timeout: Span::secs(30),
            half_open_max_calls: 3,
            success_threshold: 2,
        }
    }
}

/// Settings that cannot work, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBreaker {
    #[error("`{field}` is 0: {why}; write at least 1")]
    Zero {
        field: &'static str,
        why: &'static str,
    },
    /// The wait is zero, or too long.
    #[error(
        "`recovery_timeout` is {0}: a service that is down needs some time, and nobody waits for ever; \
         write something longer than nothing and at most {RECOVERY_TIMEOUT_MAX}, such as \"30s\""
    )]
    Recovery(Span),
    /// There are more probes than make sense.
    #[error(
        "`half_open_max_calls` is {0}: probes are a few calls that find out whether a service is well; \
         write at most {BREAKER_CALLS_MAX}"
    )]
    TooManyProbes(u32),
    /// There are fewer probes than it takes to close.
    #[error(
        "`success_threshold` is {success_threshold} and `half_open_max_calls` {half_open_max_calls}: so few probes can \
         never bring so many successes, and the breaker would not close again; write a `success_threshold` of at most \
         {half_open_max_calls}, or `half_open_max_calls` of at least {success_threshold}"
    )]
    Sticks {
        success_threshold: u32,
        half_open_max_calls: u32,
    },
}

impl BreakerSettings {
    /// Whether a breaker with these settings works, and can always close again.
    pub fn check(&self) -> Result<(), InvalidBreaker> {
        let thresholds = [
            (
                "failure_threshold",
                self.failure_threshold,
                "it would open before anything failed",
            ),
            (
                "half_open_max_calls",
                self.half_open_max_calls,
                "no probe could find the service well again",
            ),
            (
                "success_threshold",
                self.success_threshold,
                "it would close before any probe succeeded",
            ),
        ];
        if let Some((field, _, why)) = thresholds.into_iter().find(|(_, number, _)| *number == 0) {
            return Err(InvalidBreaker::Zero { field, why });
        }
        if self.recovery_timeout.is_zero() || self.recovery_timeout > RECOVERY_TIMEOUT_MAX {
            return Err(InvalidBreaker::Recovery(self.recovery_timeout));
        }
        if self.half_open_max_calls > BREAKER_CALLS_MAX {
            return Err(InvalidBreaker::TooManyProbes(self.half_open_max_calls));
        }
        if self.success_threshold > self.half_open_max_calls {
            return Err(InvalidBreaker::Sticks {
                success_threshold: self.success_threshold,
                half_open_max_calls: self.half_open_max_calls,
            });
        }
        Ok(())
    }
}

/// Settings as they were written; fields that were left out get the defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BreakerSettingsInput {
    failure_threshold: Option<u32>,
    recovery_timeout: Option<Span>,
    half_open_max_calls: Option<u32>,
    success_threshold: Option<u32>,
}

impl BreakerSettingsInput {
    /// Completes the settings from `usual`.
    pub(crate) fn apply_to(self, usual: BreakerSettings) -> BreakerSettings {
        BreakerSettings {
            failure_threshold: self.failure_threshold.unwrap_or(usual.failure_threshold),
            recovery_timeout: self.recovery_timeout.unwrap_or(usual.recovery_timeout),
            half_open_max_calls: self
                .half_open_max_calls
                .unwrap_or(usual.half_open_max_calls),
            success_threshold: self.success_threshold.unwrap_or(usual.success_threshold),
        }
    }
}

impl<'de> Deserialize<'de> for BreakerSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let settings = BreakerSettingsInput::deserialize(deserializer)?.apply_to(Self::default());
        settings.check().map_err(serde::de::Error::custom)?;
        Ok(settings)
    }
}
