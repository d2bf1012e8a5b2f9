//! What must be settled about a result before it may enter the stream, in a fixed order.
//!
//! Nothing invalid, disabled or from a shadow region is ever held. Decides only; who calls makes
//! the changes.

#[cfg(test)]
mod tests;

use crate::directory::{Change, Directory, OrganizationId, RegionMode, Regions, Subscription};
use crate::wire::{CheckResult, Status, SubscriptionId};
use serde::Serialize;

/// What validation found.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// What the result is counted under; nothing if its subscription is unknown.
    pub tags: Option<Tags>,
    /// What it changes in the directory.
    pub changes: Vec<Change>,
    /// What becomes of it.
    pub ending: Ending,
}

/// What becomes of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Nobody knows its subscription: it was deleted.
    UnknownSubscription,
    /// The site does not want to be checked; its detector is disabled, and what the stream knows of
    /// it is forgotten.
    DisallowedByRobots,
    /// It comes from a region that is being tried out.
    ShadowRegion,
    /// Nobody would judge it.
    NoDetector,
    /// Its detector is not at work.
    DetectorDisabled,
    /// Its organization does not have the feature.
    FeatureOff,
    /// It goes into the stream.
    Admitted(Place),
}

impl Ending {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownSubscription => "unknown_subscription",
            Self::DisallowedByRobots => "disallowed_by_robots",
            Self::ShadowRegion => "shadow_region",
            Self::NoDetector => "no_detector",
            Self::DetectorDisabled => "detector_disabled",
            Self::FeatureOff => "feature_off",
            Self::Admitted(_) => "admitted",
        }
    }
}

/// Where a result belongs in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The subscription.
    pub key: SubscriptionId,
    /// When the check was to be made.
    pub position: i64,
    /// Milliseconds from one check to the next.
    pub step: i64,
    /// Who owns the detector.
    pub organization: OrganizationId,
}

/// What a result is counted under.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Tags {
    /// How the check went.
    pub status: Status,
    /// Where it was made; `default` if it does not say.
    pub uptime_region: String,
    /// Who hosts what was checked.
    pub host_provider: String,
}

/// Judges one result.
pub fn validate(result: &CheckResult, directory: &Directory, now_ms: i64) -> Verdict {
    let Some(subscription) = directory.subscriptions.get(&result.subscription_id) else {
        return Verdict {
            tags: None,
            changes: Vec::new(),
            ending: Ending::UnknownSubscription,
        };
    };
    let tags = Some(tags(result, subscription));
    if result.status == Status::DisallowedByRobots {
        let changes = disable(subscription, directory, now_ms)
            .into_iter()
            .collect();
        return Verdict {
            tags,
            changes,
            ending: Ending::DisallowedByRobots,
        };
    }
    if is_shadow(result, &subscription.regions) {
        return Verdict {
            tags,
            changes: Vec::new(),
            ending: Ending::ShadowRegion,
        };
    }
    // A region check is due whether or not the result is admitted: it is about the subscription.
    let changes = check_regions(result, subscription, directory)
        .into_iter()
        .collect();
    Verdict {
        tags,
        changes,
        ending: admit(result, subscription, directory),
    }
}

/// Detector, whether it is at work, and the feature, in this order.
fn admit(result: &CheckResult, subscription: &Subscription, directory: &Directory) -> Ending {
    let Some(detector) = subscription
        .detector
        .and_then(|id| directory.detectors.get(&id))
    else {
        return Ending::NoDetector;
    };
    if !detector.enabled {
        return Ending::DetectorDisabled;
    }
    if !directory
        .organizations
        .get(&detector.organization)
        .is_some_and(|owner| owner.has_uptime)
    {
        return Ending::FeatureOff;
    }
    Ending::Admitted(Place {
        key: result.subscription_id,
        position: result.scheduled_check_time_ms,
        step: subscription.interval.millis(),
        organization: detector.organization,
    })
}

fn tags(result: &CheckResult, subscription: &Subscription) -> Tags {
    Tags {
        status: result.status,
        uptime_region: result
            .region
            .clone()
            .unwrap_or_else(|| "default".to_owned()),
        host_provider: subscription
            .host_provider
            .clone()
            .unwrap_or_else(|| "other".to_owned()),
    }
}

/// Nothing is left to disable where there is no detector, or it is disabled already.
fn disable(subscription: &Subscription, directory: &Directory, now_ms: i64) -> Option<Change> {
    let id = subscription.detector?;
    let detector = directory.detectors.get(&id)?;
    detector.enabled.then_some(Change::DetectorDisabled {
        detector: id,
        at_ms: now_ms,
    })
}

/// A result that does not say where it comes from counts.
fn is_shadow(result: &CheckResult, regions: &Regions) -> bool {
    let region = result
        .region
        .as_ref()
        .and_then(|region| regions.get(region));
    region == Some(&RegionMode::Shadow)
}

/// Once an hour, in the slot that falls to the subscription, its regions are brought in line with
/// those there are.
fn check_regions(
    result: &CheckResult,
    subscription: &Subscription,
    directory: &Directory,
) -> Option<Change> {
    if !is_region_check_due(result, subscription) {
        return None;
    }
    let regions = directory.regions_due();
    (regions != subscription.regions).then_some(Change::RegionsAssigned {
        subscription: result.subscription_id,
        regions,
    })
}

/// An hour has as many slots as checks; the id says which one falls to the subscription. The
/// scheduled time decides, not the clock: a replay checks the same results again.
fn is_region_check_due(result: &CheckResult, subscription: &Subscription) -> bool {
    let slots = 3600 / subscription.interval.secs();
    let own = result.subscription_id.0.as_u128() % u128::from(slots);
    let minute = result
        .scheduled_check_time_ms
        .div_euclid(60_000)
        .rem_euclid(60);
    let current = minute * 60 / i64::from(subscription.interval.secs());
    own == u128::from(current.unsigned_abs())
}
