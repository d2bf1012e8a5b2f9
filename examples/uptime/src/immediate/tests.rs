use super::*;
use crate::given::{KEY, Kept, MINUTE_MS, directory, record};
use std::sync::{Arc, RwLock};

fn immediate(kept: &Kept) -> Immediate {
    Immediate {
        memory: Box::new(kept.open()),
        directory: Arc::new(RwLock::new(directory())),
        thresholds: Thresholds::default(),
        clock: Clock::wall(),
    }
}

/// Offers results of these minutes one after the other, each by a process of its own.
fn check(minutes: &[i64], expected: &str) {
    let kept = Kept::new();
    for minute in minutes {
        immediate(&kept)
            .offer(vec![record(*minute, "success")])
            .unwrap();
    }
    assert_eq!(kept.told(), expected, "{minutes:?}");
}

#[test]
fn results_in_order_are_handled_in_order() {
    check(&[1, 2, 3], "handled 1, handled 2, handled 3");
}

#[test]
fn the_first_result_is_a_baseline() {
    check(&[500], "handled 500");
}

#[test]
fn a_result_that_is_overtaken_is_a_miss_and_then_a_duplicate() {
    check(&[1, 3, 2, 4], "handled 1, miss 2, handled 3, handled 4");
}

#[test]
fn a_second_copy_is_dropped() {
    check(&[1, 1, 2, 1, 2], "handled 1, handled 2");
}

#[test]
fn the_oldest_hundred_of_a_long_gap_are_misses_and_the_rest_stay_holes() {
    let first = record(0, "success");
    let next = record(250, "success");
    let missed = missed(first.position, &next);
    assert_eq!(
        (missed.len(), missed[0], missed[99]),
        (100, MINUTE_MS, 100 * MINUTE_MS)
    );
}

#[test]
fn a_gap_of_a_step_and_a_half_has_no_miss_and_one_of_two_and_a_half_has_one() {
    let at = |steps_tenths: i64| Record {
        position: MINUTE_MS * steps_tenths / 10,
        ..record(0, "success")
    };
    let misses = [10, 15, 20, 25, 30].map(|steps_tenths| missed(0, &at(steps_tenths)).len());
    assert_eq!(misses, [0, 0, 1, 1, 2]);
    assert_eq!(missed(0, &at(25)), [MINUTE_MS]);
}

#[test]
fn a_gap_that_spans_a_change_of_the_interval_has_no_misses() {
    let kept = Kept::new();
    immediate(&kept).offer(vec![record(0, "success")]).unwrap();
    let changed = Record {
        step: 5 * MINUTE_MS,
        ..record(20, "success")
    };
    immediate(&kept).offer(vec![changed]).unwrap();
    assert_eq!(kept.told(), "handled 0, handled 20");
}

#[test]
fn a_subscription_that_is_forgotten_begins_anew() {
    let kept = Kept::new();
    immediate(&kept).offer(vec![record(1, "success")]).unwrap();
    immediate(&kept).forget(KEY).unwrap();
    immediate(&kept).offer(vec![record(9, "success")]).unwrap();
    assert_eq!(kept.told(), "handled 1, handled 9");
}
