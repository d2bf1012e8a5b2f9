//! Results as a checker sends them, with the fields that it sends beyond the schema.

use super::Dice;
use super::watched::{SHADOW, Watched};
use crate::wire::{Id, ReasonType, RequestType, Status, StatusReason, SubscriptionId};
use bytes::Bytes;
use serde::Serialize;

/// The share of results that do not say where they come from.
const WITHOUT_REGION: f64 = 0.02;
/// The share of checks that a checker itself reports as not made.
const NOT_MADE: f64 = 0.002;
/// The share of subscriptions that are down for a while.
const DOWN: f64 = 0.2;
/// The share of checks that a region on trial makes too.
const ON_TRIAL: f64 = 0.2;

/// Sends the results of one subscription.
pub(super) struct Sender<'a> {
    subscription: &'a Watched,
    /// How many checks there were, and during which of them the site is down.
    checks: i64,
    down: std::ops::Range<i64>,
}

#[derive(Serialize)]
struct Sent<'a> {
    guid: Id,
    subscription_id: SubscriptionId,
    status: Status,
    status_reason: Option<StatusReason>,
    trace_id: Id,
    span_id: String,
    scheduled_check_time_ms: i64,
    scheduled_check_time_us: i64,
    actual_check_time_ms: i64,
    actual_check_time_us: i64,
    duration_ms: Option<i64>,
    duration_us: Option<i64>,
    request_info: Option<Call>,
    request_info_list: Vec<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
}

#[derive(Clone, Serialize)]
struct Call {
    certificate_info: Option<()>,
    http_status_code: Option<u16>,
    request_type: RequestType,
    url: &'static str,
    request_duration_us: i64,
}

impl<'a> Sender<'a> {
    pub(super) fn new(subscription: &'a Watched, dice: &mut Dice) -> Self {
        let from = 2 + dice.below(20);
        let down = if dice.chance(DOWN) {
            from..from + 3 + dice.below(6)
        } else {
            0..0
        };
        Self {
            subscription,
            checks: 0,
            down,
        }
    }

    /// The result of the check at a position, from the next region in turn.
    pub(super) fn result(&mut self, position: i64, dice: &mut Dice) -> Bytes {
        let nth = self.checks;
        self.checks += 1;
        let regions = &self.subscription.regions;
        let region =
            regions[usize::try_from(nth).expect("it counts up from 0") % regions.len()].as_str();
        let region = (!dice.chance(WITHOUT_REGION)).then_some(region);
        let status = match self.subscription.always {
            Some(status) => status,
            None if dice.chance(NOT_MADE) => Status::MissedWindow,
            None if self.down.contains(&nth) => Status::Failure,
            None => Status::Success,
        };
        self.write(position, status, region, dice)
    }

    /// The result of a region on trial, if there is one and it made this check.
    pub(super) fn shadow(&self, position: i64, dice: &mut Dice) -> Option<Bytes> {
        let is_made = self.subscription.has_shadow && dice.chance(ON_TRIAL);
        is_made.then(|| self.write(position, Status::Success, Some(SHADOW), dice))
    }

    fn write(&self, position: i64, status: Status, region: Option<&str>, dice: &mut Dice) -> Bytes {
        let actual_us = position * 1000 + dice.below(40_000);
        let is_made = matches!(status, Status::Success | Status::Failure);
        let took_us = 1_000 + dice.below(400_000);
        let request = is_made.then(|| Call {
            certificate_info: None,
            http_status_code: (status == Status::Success).then_some(200),
            request_type: RequestType::Get,
            url: "https://shop.example/",
            request_duration_us: took_us,
        });
        let sent = Sent {
            guid: Id::new(dice.bits()),
            subscription_id: self.subscription.key,
            status,
            status_reason: reason(status),
            trace_id: Id::new(dice.bits()),
            span_id: Id::new(dice.bits()).to_string().split_off(16),
            scheduled_check_time_ms: position,
            scheduled_check_time_us: position * 1000,
            actual_check_time_ms: actual_us / 1000,
            actual_check_time_us: actual_us,
            duration_ms: is_made.then_some(took_us / 1000),
            duration_us: is_made.then_some(took_us),
            request_info_list: request.iter().cloned().collect(),
            request_info: request,
            region,
        };
        serde_json::to_vec(&sent)
            .expect("words and numbers are always JSON")
            .into()
    }
}

fn reason(status: Status) -> Option<StatusReason> {
    let (kind, description) = match status {
        Status::Failure => (ReasonType::Timeout, "no answer within 10 s"),
        Status::MissedWindow => (ReasonType::MissProduced, "the checker was too busy"),
        Status::Success | Status::DisallowedByRobots => return None,
    };
    Some(StatusReason {
        kind,
        description: description.to_owned(),
        details: None,
    })
}
