//! What goes on to the analytics: one line of JSON for each event, with the result in it byte for
//! byte.
//!
//! Makes text of values, and knows nothing of where it is kept.

#[cfg(test)]
mod tests;

use crate::directory::{DetectorId, OrganizationId};
use crate::event::{Effect, Event};
use crate::standing::Standing;
use crate::wire::{CheckResult, Id, ReasonType, Received, Status, StatusReason, SubscriptionId};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// What every miss that we make up says of itself.
const MISS_DESCRIPTION: &str = "No result came for this scheduled check";

/// Whose line it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The organization.
    pub organization: OrganizationId,
    /// The detector.
    pub detector: DetectorId,
}

/// The line of a result, with how its detector stands after it; an amendment passes no detector.
pub fn of_result(
    event: &Event,
    received: &Received,
    owner: Owner,
    standing: Option<Standing>,
) -> String {
    let result = &received.result;
    let text = String::from_utf8_lossy(&received.bytes);
    let attributes = Attributes {
        mode: standing.map(Standing::mode),
        incident_status: standing.map(incident_status),
        ..Attributes::of(result)
    };
    line(
        event,
        owner,
        result.guid,
        result.trace_id,
        attributes,
        &text,
    )
}

/// The line of a miss: a result that is made up from the one after the gap. The same miss always
/// gives the same ids, so whoever reads it twice can tell.
pub fn of_miss(event: &Event, following: Option<&CheckResult>, owner: Owner, at_ms: i64) -> String {
    let (subscription, position) = (event.key.to_string(), event.position.to_string());
    let id = |what: &str| Id::named(&["miss", what, &subscription, &position]);
    let miss = Miss {
        guid: id("guid"),
        subscription_id: event.key,
        status: Status::MissedWindow,
        status_reason: StatusReason {
            kind: ReasonType::MissBackfill,
            description: MISS_DESCRIPTION.to_owned(),
            details: None,
        },
        trace_id: id("trace"),
        span_id: id("span"),
        scheduled_check_time_ms: event.position,
        actual_check_time_ms: following.map_or(at_ms, |result| result.actual_check_time_ms),
        duration_ms: 0,
        request_info: None,
        region: following.and_then(|result| result.region.as_deref()),
    };
    let text = serde_json::to_string(&miss).expect("words and numbers are always JSON");
    let made_up =
        CheckResult::read(text.as_bytes()).expect("what is made up has the form of a result");
    line(
        event,
        owner,
        miss.guid,
        miss.trace_id,
        Attributes::of(&made_up),
        &text,
    )
}

/// A result that was never made.
#[derive(Serialize)]
struct Miss<'a> {
    guid: Id,
    subscription_id: SubscriptionId,
    status: Status,
    status_reason: StatusReason,
    trace_id: Id,
    span_id: Id,
    scheduled_check_time_ms: i64,
    actual_check_time_ms: i64,
    duration_ms: u32,
    request_info: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    item_type: &'static str,
    item_id: Id,
    trace_id: Id,
    timestamp_ms: i64,
    organization_id: OrganizationId,
    detector_id: DetectorId,
    effect: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    attributes: Attributes<'a>,
    result: &'a RawValue,
}

/// What people search by.
#[derive(Serialize)]
struct Attributes<'a> {
    subscription_id: SubscriptionId,
    check_status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_reason_type: Option<&'a ReasonType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    actual_check_time_ms: i64,
    duration_ms: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_type: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status_code: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incident_status: Option<&'static str>,
}

impl<'a> Attributes<'a> {
    fn of(result: &'a CheckResult) -> Self {
        let request = result.request_info.as_ref();
        Self {
            subscription_id: result.subscription_id,
            check_status: result.status,
            status_reason_type: result.status_reason.as_ref().map(|reason| &reason.kind),
            region: result.region.as_deref(),
            actual_check_time_ms: result.actual_check_time_ms,
            duration_ms: result.duration_ms.as_ref(),
            request_type: request
                .and_then(|request| serde_json::to_value(&request.request_type).ok()),
            http_status_code: request.and_then(|request| request.http_status_code.as_ref()),
            mode: None,
            incident_status: None,
        }
    }
}

fn line(
    event: &Event,
    owner: Owner,
    item_id: Id,
    trace_id: Id,
    attributes: Attributes<'_>,
    text: &str,
) -> String {
    // A line ends at its first line break. Between the tokens of JSON, the only place for one, a
    // space means the same.
    let text = text.replace(['\n', '\r'], " ");
    let (to_ms, count) = match event.effect {
        Effect::MissRange { to, count } => (Some(to), Some(count)),
        Effect::Handled | Effect::Miss | Effect::Amended => (None, None),
    };
    let line = Line {
        item_type: "uptime_result",
        item_id,
        trace_id,
        timestamp_ms: event.position,
        organization_id: owner.organization,
        detector_id: owner.detector,
        effect: event.effect.as_str(),
        to_ms,
        count,
        attributes,
        result: serde_json::from_str(&text).expect("a result was read before it is written"),
    };
    serde_json::to_string(&line).expect("words and numbers are always JSON")
}

const fn incident_status(standing: Standing) -> &'static str {
    if standing.is_down() {
        "in_incident"
    } else {
        "no_incident"
    }
}
