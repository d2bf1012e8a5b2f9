//! What is watched: subscriptions, their regions, detectors and organizations.
//!
//! A directory is a value. It is read from a file, and changes that results bring about are applied
//! to it; who else must know of them is the business of [`crate::memory`].

#[cfg(test)]
mod tests;
mod written;

use crate::wire::SubscriptionId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
pub use written::DirectoryError;

/// All that is watched.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Directory {
    /// The regions there are; a region check brings subscriptions in line with them.
    pub regions: Regions,
    /// The organizations.
    pub organizations: HashMap<OrganizationId, Organization>,
    /// The detectors.
    pub detectors: HashMap<DetectorId, Detector>,
    /// The subscriptions.
    pub subscriptions: HashMap<SubscriptionId, Subscription>,
}

/// Regions by name, and what each is for.
pub type Regions = BTreeMap<String, RegionMode>;

/// What is checked, how often and from where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// How often.
    pub interval: Interval,
    /// From where.
    pub regions: Regions,
    /// Who judges the results.
    pub detector: Option<DetectorId>,
    /// Who hosts what is checked.
    pub host_provider: Option<String>,
}

/// Judges the results of a subscription.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Detector {
    /// Who owns it.
    pub organization: OrganizationId,
    /// Whether it is at work.
    pub enabled: bool,
    /// How it begins.
    pub begins: Beginning,
}

/// An organization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Organization {
    /// Whether it has the uptime feature.
    pub has_uptime: bool,
}

/// What a region is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionMode {
    /// Its results count.
    Active,
    /// It is being tried out: its results are dropped.
    Shadow,
    /// Nothing is to be checked from there.
    Inactive,
}

/// How a detector begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beginning {
    /// It must see good results before it may open incidents.
    Onboarding,
    /// It opens incidents from the start.
    Active,
}

/// Names a detector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DetectorId(pub i64);

/// Names an organization.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrganizationId(pub i64);

impl fmt::Display for OrganizationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Seconds from one check to the next: one of six.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Interval(u32);

impl Interval {
    /// Those there are, in seconds.
    pub const ALLOWED: [u32; 6] = [60, 300, 600, 1200, 1800, 3600];

    /// In seconds.
    pub const fn secs(self) -> u32 {
        self.0
    }

    /// In milliseconds, as positions are.
    pub const fn millis(self) -> i64 {
        self.0 as i64 * 1000
    }
}

impl TryFrom<u32> for Interval {
    type Error = String;

    fn try_from(secs: u32) -> Result<Self, String> {
        if Self::ALLOWED.contains(&secs) {
            Ok(Self(secs))
        } else {
            Err(format!(
                "an interval of {secs} s; it must be one of {:?}",
                Self::ALLOWED
            ))
        }
    }
}

impl From<Interval> for u32 {
    fn from(interval: Interval) -> Self {
        interval.0
    }
}

/// Something that a result changed in the directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A site does not want to be checked.
    DetectorDisabled {
        /// Its detector.
        detector: DetectorId,
        /// When that was noticed.
        at_ms: i64,
    },
    /// A region check found that a subscription is not checked from where it should be.
    RegionsAssigned {
        /// The subscription.
        subscription: SubscriptionId,
        /// From where it is checked from now on.
        regions: Regions,
    },
}

impl Directory {
    /// Makes a change. One that is about something unknown, or that was made before, changes
    /// nothing.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::DetectorDisabled { detector, .. } => {
                if let Some(detector) = self.detectors.get_mut(detector) {
                    detector.enabled = false;
                }
            }
            Change::RegionsAssigned {
                subscription,
                regions,
            } => {
                if let Some(subscription) = self.subscriptions.get_mut(subscription) {
                    subscription.regions.clone_from(regions);
                }
            }
        }
    }

    /// The regions a subscription should be checked from: all that are not inactive.
    pub fn regions_due(&self) -> Regions {
        let due = self
            .regions
            .iter()
            .filter(|(_, mode)| **mode != RegionMode::Inactive);
        due.map(|(name, mode)| (name.clone(), *mode)).collect()
    }
}
