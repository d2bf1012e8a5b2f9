//! The result of a check as the checkers send it: read strictly where something is decided by it,
//! kept as it came.
//!
//! Knows JSON and nothing of what is done with a result. Fields that it does not know stay in the
//! bytes, which go with the result everywhere.

mod field;
mod id;
mod request;
#[cfg(test)]
mod tests;

use crate::limits::{RESULT_BYTES_MAX, TIME_MS_MAX};
use bytes::Bytes;
pub use field::Broken;
use field::Fields;
pub use id::{Id, SpanId, SubscriptionId};
pub use request::{Durations, RequestInfo, RequestType, Timing};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::fmt;

/// A result as it came, and what was understood of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Received {
    /// Every byte of it.
    pub bytes: Bytes,
    /// What the bytes say.
    pub result: CheckResult,
}

impl Received {
    /// Reads one result.
    pub fn read(bytes: Bytes) -> Result<Self, Broken> {
        let result = CheckResult::read(&bytes)?;
        Ok(Self { bytes, result })
    }
}

/// The result of one check.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckResult {
    /// Names this result.
    pub guid: Id,
    /// What was checked.
    pub subscription_id: SubscriptionId,
    /// How it went.
    pub status: Status,
    /// Why it went so; nothing for a success.
    pub status_reason: Option<StatusReason>,
    /// The trace that the request was part of.
    pub trace_id: Id,
    /// The span within it.
    pub span_id: SpanId,
    /// When it was to be made: its place in the order of its subscription.
    pub scheduled_check_time_ms: i64,
    /// When it was made.
    pub actual_check_time_ms: i64,
    /// How long it took; nothing if it was not made.
    pub duration_ms: Option<Number>,
    /// The last request of it.
    pub request_info: Option<RequestInfo>,
    /// All its requests, redirects in order.
    pub request_info_list: Vec<RequestInfo>,
    /// Where it was made. The schema lets it be absent.
    pub region: Option<String>,
    /// What of an assertion failed, in a form that only the checker knows.
    pub assertion_failure_data: Option<Value>,
}

impl CheckResult {
    /// Reads one result.
    pub fn read(bytes: &[u8]) -> Result<Self, Broken> {
        if bytes.len() > RESULT_BYTES_MAX {
            return Err(Broken::TooLarge(bytes.len()));
        }
        let text = str::from_utf8(bytes).map_err(|error| Broken::NotText(error.valid_up_to()))?;
        let fields = Fields::read(text)?;
        Ok(Self {
            guid: field::required("guid", fields.guid)?,
            subscription_id: field::required("subscription_id", fields.subscription_id)?,
            status: field::required("status", fields.status)?,
            status_reason: field::required("status_reason", fields.status_reason)?,
            trace_id: field::required("trace_id", fields.trace_id)?,
            span_id: field::required("span_id", fields.span_id)?,
            scheduled_check_time_ms: time(
                "scheduled_check_time_ms",
                fields.scheduled_check_time_ms,
            )?,
            actual_check_time_ms: time("actual_check_time_ms", fields.actual_check_time_ms)?,
            duration_ms: field::required("duration_ms", fields.duration_ms)?,
            request_info: field::required("request_info", fields.request_info)?,
            request_info_list: field::optional("request_info_list", fields.request_info_list)?
                .unwrap_or_default(),
            region: field::optional("region", fields.region)?,
            assertion_failure_data: field::optional(
                "assertion_failure_data",
                fields.assertion_failure_data,
            )?,
        })
    }
}

/// How a check went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is up.
    Success,
    /// It is down.
    Failure,
    /// The check was not made in its time.
    MissedWindow,
    /// The site does not want to be checked.
    DisallowedByRobots,
}

impl Status {
    /// As it is on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::MissedWindow => "missed_window",
            Self::DisallowedByRobots => "disallowed_by_robots",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a check went as it did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StatusReason {
    /// The kind of reason.
    #[serde(rename = "type")]
    pub kind: ReasonType,
    /// In words.
    pub description: String,
    /// More of an assertion that could not be compiled or evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// The kinds of reasons. Nothing is decided by them, so a kind that a newer checker knows is
/// carried on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the wire format")]
pub enum ReasonType {
    Timeout,
    DnsError,
    Failure,
    TlsError,
    ConnectionError,
    RedirectError,
    MissProduced,
    MissBackfill,
    AssertionCompilationError,
    AssertionEvaluationError,
    #[serde(untagged)]
    Other(String),
}

/// Times are numbers in the schema; a position is a whole number of milliseconds.
fn time(name: &'static str, raw: Option<&serde_json::value::RawValue>) -> Result<i64, Broken> {
    let number: Number = field::required(name, raw)?;
    whole(&number)
        .filter(|ms| (0..=TIME_MS_MAX).contains(ms))
        .ok_or_else(|| {
            Broken::wrong(
                name,
                "must be whole milliseconds since 1970",
                &number.to_string(),
            )
        })
}

/// Writers without integers send `1717614062978.0`.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number
            .as_f64()
            .filter(|float| float.fract() == 0.0 && float.abs() < 9e15)?;
        Some(float as i64)
    })
}
