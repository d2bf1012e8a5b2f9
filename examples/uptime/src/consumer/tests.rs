use super::*;
use crate::clock::Clock;
use crate::given::{Kept, directory, result};
use crate::immediate::Immediate;
use crate::standing::Thresholds;
use std::sync::{Arc, RwLock};

/// A consumer as a process of its own would have it.
fn consumer(kept: &Kept) -> Consumer {
    let directory = Arc::new(RwLock::new(directory()));
    let immediate = Immediate {
        memory: Box::new(kept.open()),
        directory: Arc::clone(&directory),
        thresholds: Thresholds::default(),
        clock: Clock::wall(),
    };
    Consumer::new(Box::new(kept.open()), directory, Box::new(immediate))
}

#[test]
fn a_broken_result_is_counted_and_named_and_does_not_stop_its_neighbours() {
    let kept = Kept::new();
    let batch = vec![
        result(1, "success", "us"),
        Bytes::from_static(b"{\"guid\":"),
        result(2, "success", "us"),
        result(3, "splendid", "us"),
        result(4, "success", "us"),
    ];
    let taken = consumer(&kept).take(batch, 0).unwrap();
    assert_eq!(kept.told(), "handled 1, handled 2, miss 3, handled 4");
    assert_eq!(
        (
            taken.counts.received,
            taken.counts.broken,
            taken.counts.admitted
        ),
        (5, 2, 3)
    );
    let places: Vec<usize> = taken.broken.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [1, 3]);
    assert!(
        taken.broken[1]
            .1
            .to_string()
            .starts_with("`status` is \"splendid\""),
        "{:?}",
        taken.broken
    );
}

#[test]
fn nothing_from_a_shadow_region_goes_on() {
    let kept = Kept::new();
    let batch = vec![
        result(1, "success", "us"),
        result(2, "success", "eu"),
        result(2, "success", "us"),
    ];
    let taken = consumer(&kept).take(batch, 0).unwrap();
    assert_eq!(
        (taken.counts.shadow_region, kept.told().as_str()),
        (1, "handled 1, handled 2")
    );
    let regions: Vec<_> = taken
        .by_tags
        .iter()
        .map(|(tags, n)| (tags.uptime_region.as_str(), *n))
        .collect();
    assert_eq!(regions, [("eu", 1), ("us", 2)]);
}

#[test]
fn robots_count_for_the_results_behind_them_in_every_process() {
    let kept = Kept::new();
    let (mut first, mut second) = (consumer(&kept), consumer(&kept));
    second.take(vec![result(1, "success", "us")], 0).unwrap();
    let batch = vec![
        result(2, "success", "us"),
        result(3, "disallowed_by_robots", "us"),
        result(4, "success", "us"),
    ];
    let taken = first.take(batch, 7).unwrap();
    assert_eq!(
        (
            taken.counts.disallowed_by_robots,
            taken.counts.detector_disabled
        ),
        (1, 1)
    );
    let taken = second.take(vec![result(5, "success", "us")], 8).unwrap();
    assert_eq!(taken.counts.detector_disabled, 1);
    assert_eq!(kept.told(), "handled 1, handled 2");
}

#[test]
fn a_process_that_starts_later_knows_what_was_changed_before() {
    let kept = Kept::new();
    consumer(&kept)
        .take(vec![result(1, "disallowed_by_robots", "us")], 0)
        .unwrap();
    let taken = consumer(&kept)
        .take(vec![result(2, "success", "us")], 0)
        .unwrap();
    assert_eq!(taken.counts.detector_disabled, 1);
    assert_eq!(kept.open().changes(0).unwrap().len(), 1);
}

#[test]
fn a_batch_that_comes_again_changes_nothing() {
    let kept = Kept::new();
    let batch = vec![result(1, "success", "us"), result(3, "success", "us")];
    consumer(&kept).take(batch.clone(), 0).unwrap();
    let before = kept.open().lines(0).unwrap();
    let taken = consumer(&kept).take(batch, 0).unwrap();
    assert_eq!(
        (
            taken.counts.offered.handled,
            taken.counts.offered.duplicates
        ),
        (0, 2)
    );
    assert_eq!(kept.open().lines(0).unwrap(), before);
}
