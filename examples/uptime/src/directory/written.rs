//! The directory as a file has it, and the way from there to the one that is used.

use super::{
    Beginning, Detector, DetectorId, Directory, Interval, Organization, OrganizationId, Regions,
    Subscription,
};
use crate::wire::SubscriptionId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::Hash;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It does not have the form of one.
    #[error("the directory cannot be read: {0}")]
    Form(#[from] serde_json::Error),
    /// It has something twice.
    #[error("the directory has two {0}s with the id {1}; an id names one")]
    Twice(&'static str, String),
    /// A detector belongs to nobody.
    #[error("detector {0} belongs to organization {1}, which the directory does not have")]
    NoOrganization(i64, i64),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    regions: Regions,
    organizations: Vec<WrittenOrganization>,
    detectors: Vec<WrittenDetector>,
    subscriptions: Vec<WrittenSubscription>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenOrganization {
    id: OrganizationId,
    has_uptime: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDetector {
    id: DetectorId,
    organization: OrganizationId,
    enabled: bool,
    begins: Beginning,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSubscription {
    id: SubscriptionId,
    interval_s: Interval,
    regions: Regions,
    detector: Option<DetectorId>,
    host_provider: Option<String>,
}

impl Directory {
    /// Reads the text of a file.
    pub fn from_json(text: &str) -> Result<Self, DirectoryError> {
        let written: Written = serde_json::from_str(text)?;
        let organizations = written.organizations.into_iter();
        let organizations = unique(
            "organization",
            organizations.map(|it| {
                (
                    it.id,
                    Organization {
                        has_uptime: it.has_uptime,
                    },
                )
            }),
        )?;
        for detector in &written.detectors {
            if !organizations.contains_key(&detector.organization) {
                return Err(DirectoryError::NoOrganization(
                    detector.id.0,
                    detector.organization.0,
                ));
            }
        }
        let detectors = written.detectors.into_iter().map(|it| {
            (
                it.id,
                Detector {
                    organization: it.organization,
                    enabled: it.enabled,
                    begins: it.begins,
                },
            )
        });
        let subscriptions = written.subscriptions.into_iter().map(|it| {
            let WrittenSubscription {
                id,
                interval_s: interval,
                regions,
                detector,
                host_provider,
            } = it;
            (
                id,
                Subscription {
                    interval,
                    regions,
                    detector,
                    host_provider,
                },
            )
        });
        Ok(Self {
            regions: written.regions,
            organizations,
            detectors: unique("detector", detectors)?,
            subscriptions: unique("subscription", subscriptions)?,
        })
    }

    /// The text of a file, with everything in the order of its ids.
    pub fn to_json(&self) -> String {
        let organizations = sorted(&self.organizations);
        let detectors = sorted(&self.detectors);
        let subscriptions = sorted(&self.subscriptions);
        let written = Written {
            regions: self.regions.clone(),
            organizations: organizations
                .map(|(id, it)| WrittenOrganization {
                    id,
                    has_uptime: it.has_uptime,
                })
                .collect(),
            detectors: detectors
                .map(|(id, it)| {
                    let Detector {
                        organization,
                        enabled,
                        begins,
                    } = it;
                    WrittenDetector {
                        id,
                        organization,
                        enabled,
                        begins,
                    }
                })
                .collect(),
            subscriptions: subscriptions
                .map(|(id, it)| {
                    let Subscription {
                        interval: interval_s,
                        regions,
                        detector,
                        host_provider,
                    } = it;
                    WrittenSubscription {
                        id,
                        interval_s,
                        regions,
                        detector,
                        host_provider,
                    }
                })
                .collect(),
        };
        serde_json::to_string_pretty(&written).expect("names and numbers are always JSON")
    }
}

fn unique<K: Eq + Hash + Serialize, V>(
    what: &'static str,
    entries: impl Iterator<Item = (K, V)>,
) -> Result<HashMap<K, V>, DirectoryError> {
    let mut all = HashMap::new();
    for (id, entry) in entries {
        let name = serde_json::to_string(&id)?;
        if all.insert(id, entry).is_some() {
            return Err(DirectoryError::Twice(what, name));
        }
    }
    Ok(all)
}

fn sorted<K: Ord + Copy, V: Clone>(all: &HashMap<K, V>) -> impl Iterator<Item = (K, V)> {
    let mut all: Vec<(K, V)> = all.iter().map(|(id, it)| (*id, it.clone())).collect();
    all.sort_by_key(|(id, _)| *id);
    all.into_iter()
}
