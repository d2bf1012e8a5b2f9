//! `[telemetry]`: where spans go.

use super::InvalidConfig;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// What a collector's address ends with where traces are taken.
const TRACES_PATH: &str = "/v1/traces";

/// Where spans go, as the file says it; the standard `OTEL_*` variables win over it.
#[derive(Clone, PartialEq, Default)]
pub struct TelemetryConfig {
    /// The address of an OTLP collector that spans are sent to, by HTTP, with its path; `None` for
    /// nowhere.
    pub otlp: Option<String>,
    /// What this process is called there.
    pub service: Option<String>,
    /// The share of traces that is recorded, from 0 to 1; those that a caller records are,
    /// whatever it is.
    pub sample: Option<f64>,
    /// Headers that the collector wants; they may be secret.
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for TelemetryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            otlp,
            service,
            sample,
            headers,
        } = self;
        let names: Vec<&String> = headers.keys().collect();
        f.debug_struct("Telemetry")
            .field("otlp", &otlp.as_deref().map(crate::address::redacted))
            .field("service", service)
            .field("sample", sample)
            .field("headers", &names)
            .finish()
    }
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTelemetry {
    otlp: Option<String>,
    service: Option<String>,
    sample: Option<f64>,
    headers: BTreeMap<String, String>,
}

impl RawTelemetry {
    pub(super) fn build(self, path: &str) -> Result<TelemetryConfig, InvalidConfig> {
        let bad = |problem: &str| {
            Err(InvalidConfig::Telemetry {
                path: path.to_owned(),
                problem: problem.to_owned(),
            })
        };
        let is_web =
            |address: &String| address.starts_with("http://") || address.starts_with("https://");
        if !self.otlp.as_ref().is_none_or(is_web) {
            return bad("`otlp` is the address of a collector, such as http://127.0.0.1:4318");
        }
        if !self.sample.is_none_or(|share| (0.0..=1.0).contains(&share)) {
            return bad("`sample` is the share of traces that is recorded, from 0.0 to 1.0");
        }
        if self
            .headers
            .iter()
            .any(|(name, value)| name.is_empty() || value.contains(['\r', '\n']))
        {
            return bad("`headers` are names and values without line breaks");
        }
        let otlp = self.otlp.map(|address| {
            let address = address.trim_end_matches('/');
            if address.ends_with(TRACES_PATH) {
                address.to_owned()
            } else {
                format!("{address}{TRACES_PATH}")
            }
        });
        Ok(TelemetryConfig {
            otlp,
            service: self.service,
            sample: self.sample,
            headers: self.headers,
        })
    }
}
