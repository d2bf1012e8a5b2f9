use super::*;
use crate::directory::{Beginning, Detector, DetectorId, Interval, Organization};
use crate::wire::Id;
use std::collections::HashMap;

/// 2024-06-05T19:00:00Z: minute 0.
const HOUR_MS: i64 = 1_717_614_000_000;
const NOW_MS: i64 = HOUR_MS + 5_000;

fn key(bits: u128) -> SubscriptionId {
    SubscriptionId(Id::new(bits))
}

fn regions(all: &[(&str, RegionMode)]) -> Regions {
    all.iter()
        .map(|(name, mode)| ((*name).to_owned(), *mode))
        .collect()
}

/// Subscription 0 is well. Each of the others falls short in one way; 9 falls short in all of them
/// at once.
fn directory() -> Directory {
    let organization = |has_uptime| Organization { has_uptime };
    let detector = |organization, enabled| Detector {
        organization: OrganizationId(organization),
        enabled,
        begins: Beginning::Active,
    };
    let subscription = |detector: Option<i64>| Subscription {
        interval: Interval::try_from(300).unwrap(),
        regions: regions(&[("us", RegionMode::Active), ("eu", RegionMode::Shadow)]),
        detector: detector.map(DetectorId),
        host_provider: None,
    };
    Directory {
        regions: regions(&[
            ("us", RegionMode::Active),
            ("eu", RegionMode::Shadow),
            ("ap", RegionMode::Inactive),
        ]),
        organizations: HashMap::from([
            (OrganizationId(1), organization(true)),
            (OrganizationId(2), organization(false)),
        ]),
        detectors: HashMap::from([
            (DetectorId(10), detector(1, true)),
            (DetectorId(11), detector(1, false)),
            (DetectorId(12), detector(2, true)),
            (DetectorId(13), detector(2, false)),
        ]),
        subscriptions: HashMap::from([
            (key(0), subscription(Some(10))),
            (key(1), subscription(None)),
            (key(2), subscription(Some(99))),
            (key(3), subscription(Some(11))),
            (key(4), subscription(Some(12))),
            (key(9), subscription(Some(13))),
        ]),
    }
}

fn result(subscription: u128, status: Status, region: Option<&str>, minute: i64) -> CheckResult {
    let bytes = include_bytes!("../wire/fixtures/success.json");
    CheckResult {
        subscription_id: key(subscription),
        status,
        region: region.map(str::to_owned),
        scheduled_check_time_ms: HOUR_MS + minute * 60_000,
        ..CheckResult::read(bytes).unwrap()
    }
}

/// Minute 57 is in no slot of these subscriptions, so that only what is under test happens.
fn check(subscription: u128, status: Status, region: Option<&str>, expected: Ending) {
    let verdict = validate(
        &result(subscription, status, region, 57),
        &directory(),
        NOW_MS,
    );
    assert_eq!(
        verdict.ending, expected,
        "subscription {subscription}, {status}, from {region:?}"
    );
    assert_eq!(
        verdict.tags.is_none(),
        expected == Ending::UnknownSubscription
    );
}

fn admitted(subscription: u128) -> Ending {
    Ending::Admitted(Place {
        key: key(subscription),
        position: HOUR_MS + 57 * 60_000,
        step: 300_000,
        organization: OrganizationId(1),
    })
}

#[test]
fn each_thing_that_falls_short_is_named() {
    use Status::{DisallowedByRobots, Failure, MissedWindow, Success};
    for status in [Success, Failure, MissedWindow] {
        check(0, status, Some("us"), admitted(0));
        check(7, status, Some("us"), Ending::UnknownSubscription);
        check(0, status, Some("eu"), Ending::ShadowRegion);
        check(1, status, Some("us"), Ending::NoDetector);
        check(2, status, Some("us"), Ending::NoDetector);
        check(3, status, Some("us"), Ending::DetectorDisabled);
        check(4, status, Some("us"), Ending::FeatureOff);
    }
    check(
        0,
        DisallowedByRobots,
        Some("us"),
        Ending::DisallowedByRobots,
    );
}

#[test]
fn the_first_thing_in_order_is_named() {
    // An unknown subscription before robots, robots before the shadow region, that before the
    // detector, its being disabled before the feature.
    check(
        7,
        Status::DisallowedByRobots,
        Some("eu"),
        Ending::UnknownSubscription,
    );
    check(
        9,
        Status::DisallowedByRobots,
        Some("eu"),
        Ending::DisallowedByRobots,
    );
    check(9, Status::Success, Some("eu"), Ending::ShadowRegion);
    check(1, Status::Success, Some("eu"), Ending::ShadowRegion);
    check(9, Status::Success, Some("us"), Ending::DetectorDisabled);
}

#[test]
fn a_result_need_not_say_where_it_comes_from() {
    check(0, Status::Success, None, admitted(0));
    check(
        0,
        Status::Success,
        Some("a place nobody knows"),
        admitted(0),
    );
    let verdict = validate(&result(0, Status::Success, None, 57), &directory(), NOW_MS);
    let tags = verdict.tags.unwrap();
    assert_eq!(
        (tags.uptime_region.as_str(), tags.host_provider.as_str()),
        ("default", "other")
    );
}

#[test]
fn robots_disable_a_detector_once() {
    let robots = result(0, Status::DisallowedByRobots, Some("us"), 57);
    let mut directory = directory();
    let first = validate(&robots, &directory, NOW_MS);
    assert_eq!(
        first.changes,
        [Change::DetectorDisabled {
            detector: DetectorId(10),
            at_ms: NOW_MS
        }]
    );
    directory.apply(&first.changes[0]);
    let second = validate(&robots, &directory, NOW_MS);
    assert_eq!(
        (second.ending, second.changes.len()),
        (Ending::DisallowedByRobots, 0)
    );
    let after = validate(
        &result(0, Status::Success, Some("us"), 57),
        &directory,
        NOW_MS,
    );
    assert_eq!(after.ending, Ending::DetectorDisabled);
    let nobody = validate(
        &result(1, Status::DisallowedByRobots, None, 57),
        &directory,
        NOW_MS,
    );
    assert_eq!(nobody.changes, []);
}

/// Whether a subscription whose regions are out of date is put right by its result of that minute.
fn is_put_right(
    subscription: u128,
    interval: u32,
    minute: i64,
    status: Status,
    region: &str,
) -> bool {
    let mut directory = directory();
    let out_of_date = Subscription {
        interval: Interval::try_from(interval).unwrap(),
        regions: regions(&[("eu", RegionMode::Shadow), ("old", RegionMode::Active)]),
        ..directory.subscriptions[&key(3)].clone()
    };
    directory
        .subscriptions
        .insert(key(subscription), out_of_date);
    let verdict = validate(
        &result(subscription, status, Some(region), minute),
        &directory,
        NOW_MS,
    );
    let due = regions(&[("us", RegionMode::Active), ("eu", RegionMode::Shadow)]);
    let wanted = Change::RegionsAssigned {
        subscription: key(subscription),
        regions: due,
    };
    verdict.changes.contains(&wanted)
}

#[test]
fn regions_are_checked_once_an_hour_in_the_slot_of_the_subscription() {
    for (subscription, interval, minutes) in [
        (0, 60, 0..=0),
        (61, 60, 1..=1),
        (5, 300, 25..=29),
        (12, 300, 0..=4),
        (u128::MAX, 1200, 0..=19),
        (3, 3600, 0..=59),
    ] {
        for minute in 0..60 {
            let due = is_put_right(subscription, interval, minute, Status::Success, "old");
            assert_eq!(
                due,
                minutes.contains(&minute),
                "{subscription} at {minute}, every {interval} s"
            );
        }
    }
}

#[test]
fn the_region_check_comes_after_robots_and_shadow_and_before_the_detector() {
    // Subscription 3's detector is disabled.
    assert!(is_put_right(3, 3600, 7, Status::Success, "old"));
    assert!(!is_put_right(3, 3600, 7, Status::Success, "eu"));
    assert!(!is_put_right(3, 3600, 7, Status::DisallowedByRobots, "old"));
}

#[test]
fn a_subscription_that_is_in_line_is_left_alone() {
    let verdict = validate(
        &result(0, Status::Success, Some("us"), 0),
        &directory(),
        NOW_MS,
    );
    assert_eq!(verdict.changes, []);
}
