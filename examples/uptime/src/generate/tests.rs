mod hold;

use super::*;
use crate::consumer::Counts;
use crate::validate::{Ending, validate};
use crate::wire::CheckResult;
use hold::Hold;
use std::collections::{BTreeMap, BTreeSet};

/// What validation lets pass, in the order of arrival.
fn admitted(world: &World) -> Vec<(i64, Slot, i64)> {
    let admit = |arrival: &Arrival| {
        let result = CheckResult::read(&arrival.bytes).ok()?;
        match validate(&result, &world.directory, arrival.at_ms).ending {
            Ending::Admitted(place) => Some((
                arrival.at_ms,
                Slot {
                    key: place.key,
                    position: place.position,
                },
                place.step,
            )),
            _ => None,
        }
    };
    world.trace.iter().filter_map(admit).collect()
}

fn plans() -> impl Iterator<Item = Plan> {
    let common = (1..=2).map(|seed| Plan {
        seed,
        subscriptions: 150,
        ..Plan::default()
    });
    let wild = (3..=5).map(|seed| Plan {
        seed,
        subscriptions: 50,
        minutes: 60,
        slow: 0.5,
        stall_every_min: 6,
        stall_s: 240,
        dropped: 0.05,
        late: 0.05,
        duplicates: 0.2,
        ..Plan::default()
    });
    let long = Plan {
        seed: 6,
        subscriptions: 20,
        minutes: 300,
        dropped: 0.02,
        ..Plan::default()
    };
    common.chain(wild).chain([long])
}

#[test]
fn the_same_plan_gives_the_same_world() {
    let plan = Plan {
        subscriptions: 50,
        ..Plan::default()
    };
    let world = generate(&plan).unwrap();
    assert_eq!(generate(&plan).unwrap(), world);
    assert_ne!(generate(&Plan { seed: 2, ..plan }).unwrap(), world);
}

#[test]
fn a_stream_that_waits_calls_missed_what_is_missing_and_nothing_else() {
    for plan in plans() {
        let world = generate(&plan).unwrap();
        let mut hold = Hold::default();
        for (at_ms, slot, step) in admitted(&world) {
            hold.offer(at_ms, slot, step);
        }
        hold.run_out();
        let missing: BTreeSet<Slot> = world
            .truth
            .dropped
            .union(&world.truth.late)
            .copied()
            .collect();
        assert_eq!(hold.missed, missing, "{plan:?}");
        assert_eq!(
            (hold.overflows, hold.handled),
            (0, world.truth.in_time),
            "{plan:?}"
        );
        assert_eq!(hold.timeouts, world.truth.missing(), "{plan:?}");
    }
}

#[test]
fn the_truth_is_what_the_trace_says() {
    for plan in plans() {
        let world = generate(&plan).unwrap();
        let mut arrivals: BTreeMap<Slot, u64> = BTreeMap::new();
        for (_, slot, _) in admitted(&world) {
            *arrivals.entry(slot).or_default() += 1;
        }
        let truth = &world.truth;
        assert!(
            truth
                .dropped
                .iter()
                .all(|slot| !arrivals.contains_key(slot)),
            "a lost result arrives"
        );
        assert!(
            truth.late.iter().all(|slot| arrivals[slot] == 1),
            "a late result arrives once"
        );
        let in_time = arrivals
            .keys()
            .filter(|slot| !truth.late.contains(slot))
            .count() as u64;
        assert_eq!(in_time, truth.in_time);
        assert_eq!(
            arrivals.values().map(|n| n - 1).sum::<u64>(),
            truth.duplicates
        );
        let broken = world
            .trace
            .iter()
            .filter(|it| CheckResult::read(&it.bytes).is_err())
            .count() as u64;
        assert_eq!(broken, truth.broken);
    }
}

#[test]
fn a_result_in_time_is_not_awaited_by_many_nor_for_long() {
    for plan in plans() {
        let world = generate(&plan).unwrap();
        let mut arrivals: BTreeMap<_, Vec<(i64, i64)>> = BTreeMap::new();
        for (at_ms, slot, _) in admitted(&world) {
            let of_key = arrivals.entry(slot.key).or_default();
            let is_first = of_key
                .iter()
                .all(|(position, _)| *position != slot.position);
            if !world.truth.late.contains(&slot) && is_first {
                let awaiting = of_key
                    .iter()
                    .filter(|(position, _)| *position > slot.position);
                let first_ms = awaiting
                    .clone()
                    .map(|(_, at_ms)| *at_ms)
                    .min()
                    .unwrap_or(at_ms);
                assert!(
                    awaiting.count() <= 7 && at_ms - first_ms <= 120_000,
                    "{slot:?}, {plan:?}"
                );
            }
            of_key.push((slot.position, at_ms));
        }
    }
}

#[test]
fn the_common_world_has_something_of_everything() {
    let world = generate(&Plan::default()).unwrap();
    let mut counts = Counts::default();
    let mut overtaken = 0;
    let mut newest: BTreeMap<_, i64> = BTreeMap::new();
    for arrival in &world.trace {
        let Ok(result) = CheckResult::read(&arrival.bytes) else {
            counts.broken += 1;
            continue;
        };
        match validate(&result, &world.directory, arrival.at_ms).ending {
            Ending::UnknownSubscription => counts.unknown_subscription += 1,
            Ending::DisallowedByRobots => counts.disallowed_by_robots += 1,
            Ending::ShadowRegion => counts.shadow_region += 1,
            Ending::NoDetector => counts.no_detector += 1,
            Ending::DetectorDisabled => counts.detector_disabled += 1,
            Ending::FeatureOff => counts.feature_off += 1,
            Ending::Admitted(place) => {
                counts.admitted += 1;
                let newest = newest.entry(place.key).or_insert(place.position);
                overtaken += u64::from(place.position < *newest);
                *newest = place.position.max(*newest);
            }
        }
    }
    let truth = &world.truth;
    for (what, count, least) in [
        ("admitted", counts.admitted, 10_000),
        ("overtaken", overtaken, 1_000),
        ("unknown", counts.unknown_subscription, 10),
        ("disallowed by robots", counts.disallowed_by_robots, 10),
        ("from a shadow region", counts.shadow_region, 10),
        ("without a detector", counts.no_detector, 10),
        ("disabled", counts.detector_disabled, 10),
        ("without the feature", counts.feature_off, 10),
        ("broken", counts.broken, 1),
        ("dropped", truth.dropped.len() as u64, 10),
        ("late", truth.late.len() as u64, 3),
        ("duplicates", truth.duplicates, 10),
    ] {
        assert!(count >= least, "{what}: {count}");
    }
}

#[test]
fn a_plan_that_cannot_be_followed_is_refused() {
    let check = |plan: Plan, expected: &str| {
        assert_eq!(generate(&plan).expect_err(expected).to_string(), expected);
    };
    let plan = Plan::default();
    check(
        Plan {
            late: 1.5,
            ..plan.clone()
        },
        "late is a share: it must be between 0 and 1, not 1.5",
    );
    check(
        Plan {
            slow: f64::NAN,
            ..plan.clone()
        },
        "slow is a share: it must be between 0 and 1, not NaN",
    );
    check(
        Plan {
            minutes: 0,
            ..plan.clone()
        },
        "minutes must be between 1 and 1440, not 0",
    );
    check(
        Plan {
            stall_s: 240,
            stall_every_min: 5,
            ..plan
        },
        "stalls of 240 s every 5 min leave no time between them; at least 2 min are needed",
    );
}
