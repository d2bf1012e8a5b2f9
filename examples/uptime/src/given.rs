//! What tests start from: one organization, one subscription that is checked every minute, its
//! results.

use crate::directory::{
    Beginning, Detector, DetectorId, Directory, Interval, Organization, OrganizationId, RegionMode,
    Regions, Subscription,
};
use crate::event::{Effect, Event, Record};
use crate::memory::{Durability, KeptLine, Memory, SqliteMemory};
use crate::wire::{Id, SubscriptionId};
use bytes::Bytes;
use std::collections::HashMap;
use std::path::Path;
use tempfile::TempDir;

pub(crate) const KEY: SubscriptionId =
    SubscriptionId(Id::new(0x5421_b5df_8074_4113_a6b5_7014_f01a_3a42));
pub(crate) const DETECTOR: DetectorId = DetectorId(10);
pub(crate) const MINUTE_MS: i64 = 60_000;

pub(crate) fn directory() -> Directory {
    let regions = Regions::from([
        ("us".to_owned(), RegionMode::Active),
        ("eu".to_owned(), RegionMode::Shadow),
    ]);
    let organization = OrganizationId(1);
    let subscription = Subscription {
        interval: Interval::try_from(60).unwrap(),
        regions: regions.clone(),
        detector: Some(DETECTOR),
        host_provider: None,
    };
    Directory {
        regions,
        organizations: HashMap::from([(organization, Organization { has_uptime: true })]),
        detectors: HashMap::from([(
            DETECTOR,
            Detector {
                organization,
                enabled: true,
                begins: Beginning::Active,
            },
        )]),
        subscriptions: HashMap::from([(KEY, subscription)]),
    }
}

/// A result of that minute, with a field that only its sender knows.
pub(crate) fn result(minute: i64, status: &str, region: &str) -> Bytes {
    let (scheduled, actual) = (minute * MINUTE_MS, minute * MINUTE_MS + 250);
    let reason = match status {
        "failure" => r#"{"type":"timeout","description":"no answer","details":null}"#,
        _ => "null",
    };
    Bytes::from(format!(
        r#"{{"guid":"{minute:032x}","subscription_id":"{KEY}","status":"{status}","status_reason":{reason},"trace_id":"947efba02dac463b9c1d886a44bafc94","span_id":"58e84098e63f42e1","scheduled_check_time_ms":{scheduled},"actual_check_time_ms":{actual},"duration_ms":12.50,"request_info":{{"request_type":"GET","http_status_code":200}},"region":"{region}","sender's own" : [1.0,  "\u00e9"]}}"#
    ))
}

pub(crate) fn record(minute: i64, status: &str) -> Record {
    let (position, payload) = (minute * MINUTE_MS, result(minute, status, "us"));
    Record {
        key: KEY,
        position,
        step: MINUTE_MS,
        tenant: "1".to_owned(),
        payload,
    }
}

pub(crate) fn event(minute: i64, effect: Effect) -> Event {
    event_of(minute, effect, "success")
}

pub(crate) fn event_of(minute: i64, effect: Effect, status: &str) -> Event {
    let has_result = matches!(effect, Effect::Handled | Effect::Amended);
    Event {
        key: KEY,
        position: minute * MINUTE_MS,
        step: MINUTE_MS,
        effect,
        payload: has_result.then(|| result(minute, status, "us")),
        following: (!has_result).then(|| result(minute + 1, status, "us")),
    }
}

/// A folder with a memory in it; the folder goes with the value.
pub(crate) struct Kept {
    folder: TempDir,
}

impl Kept {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A connection, as a process of its own would have it.
    pub(crate) fn open(&self) -> SqliteMemory {
        SqliteMemory::open(&self.folder.path().join("memory.db"), Durability::Relaxed).unwrap()
    }

    /// What was done to which minute, in order.
    pub(crate) fn told(&self) -> String {
        let tell =
            |line: KeptLine| format!("{} {}", line.effect.as_str(), line.position / MINUTE_MS);
        self.open()
            .lines(0)
            .unwrap()
            .into_iter()
            .map(tell)
            .collect::<Vec<_>>()
            .join(", ")
    }
}
