//! What immediate backfill must make of a world, foretold from its files and nothing else.
//!
//! Shares no code with the example: a result is falsely missed exactly if one of a later check got
//! there first.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Subscription and position.
pub(crate) type Check = (String, i64);

/// The checks that are falsely missed if results are handled in the order in which they arrive.
pub(crate) fn false_misses(folder: &Path) -> BTreeSet<Check> {
    let watched = watched(&read(folder, "directory.json"));
    let late = late(&read(folder, "truth.json"));
    let mut newest: BTreeMap<String, i64> = BTreeMap::new();
    let mut arrived: BTreeSet<Check> = BTreeSet::new();
    let mut overtaken = BTreeSet::new();
    for line in fs::read_to_string(folder.join("trace.ndjson"))
        .unwrap()
        .lines()
    {
        let arrival: Value = serde_json::from_str(line).unwrap();
        let result = &arrival["result"];
        let Some(key) = result["subscription_id"]
            .as_str()
            .filter(|key| watched.contains(*key))
        else {
            continue;
        };
        if result["region"] == "ap-south" || result["status"] == "disallowed_by_robots" {
            continue;
        }
        let check = (
            key.to_owned(),
            result["scheduled_check_time_ms"].as_i64().unwrap(),
        );
        let newest = newest.entry(check.0.clone()).or_insert(check.1);
        if check.1 < *newest && !arrived.contains(&check) && !late.contains(&check) {
            overtaken.insert(check.clone());
        }
        *newest = check.1.max(*newest);
        arrived.insert(check);
    }
    overtaken
}

pub(crate) fn read(folder: &Path, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

/// Those with a detector that is at work, for somebody who has the feature.
pub(crate) fn watched(directory: &Value) -> BTreeSet<String> {
    let list = |name: &str| directory[name].as_array().unwrap().iter();
    let paying: BTreeSet<i64> = list("organizations")
        .filter(|it| it["has_uptime"] == true)
        .map(|it| it["id"].as_i64().unwrap())
        .collect();
    let at_work: BTreeSet<i64> = list("detectors")
        .filter(|it| {
            it["enabled"] == true && paying.contains(&it["organization"].as_i64().unwrap())
        })
        .map(|it| it["id"].as_i64().unwrap())
        .collect();
    list("subscriptions")
        .filter(|it| {
            it["detector"]
                .as_i64()
                .is_some_and(|id| at_work.contains(&id))
        })
        .map(|it| it["id"].as_str().unwrap().to_owned())
        .collect()
}

/// The checks of those who are watched that have a result.
#[cfg(feature = "kafka")]
pub(crate) fn admitted(folder: &Path) -> BTreeSet<Check> {
    let watched = watched(&read(folder, "directory.json"));
    let trace = fs::read_to_string(folder.join("trace.ndjson")).unwrap();
    let results = trace
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].clone());
    results
        .filter(|result| {
            result["region"] != "ap-south" && result["status"] != "disallowed_by_robots"
        })
        .map(|result| {
            let key = result["subscription_id"].as_str().unwrap().to_owned();
            (key, result["scheduled_check_time_ms"].as_i64().unwrap())
        })
        .filter(|(key, _)| watched.contains(key))
        .collect()
}

fn late(truth: &Value) -> BTreeSet<Check> {
    let check = |it: &Value| {
        (
            it["key"].as_str().unwrap().to_owned(),
            it["position"].as_i64().unwrap(),
        )
    };
    truth["late"]
        .as_array()
        .unwrap()
        .iter()
        .map(check)
        .collect()
}
