use super::{Bounds, Flow, Load, decide};

const BOUNDS: Bounds = Bounds {
    partition_waiting: 10,
    records: 100,
    bytes: 1_000,
};

#[track_caller]
fn check(
    was: Flow,
    (failing, partition_waiting, records, bytes): (usize, usize, usize, usize),
    becomes: Flow,
) {
    let load = Load {
        failing,
        partition_waiting,
        records,
        bytes,
    };
    assert_eq!(
        decide(was, &load, &BOUNDS),
        becomes,
        "{was:?} with {load:?}"
    );
}

#[test]
fn a_partition_flows_up_to_its_bounds() {
    check(Flow::Flowing, (0, 0, 0, 0), Flow::Flowing);
    check(Flow::Flowing, (0, 9, 99, 999), Flow::Flowing);
    check(Flow::Flowing, (0, 10, 10, 10), Flow::Full);
    check(Flow::Flowing, (0, 1, 100, 10), Flow::Full);
    check(Flow::Flowing, (0, 1, 1, 1_000), Flow::Full);
}

#[test]
fn a_full_partition_waits_for_half_of_the_room() {
    check(Flow::Full, (0, 9, 9, 9), Flow::Full);
    check(Flow::Full, (0, 5, 5, 5), Flow::Full);
    check(Flow::Full, (0, 4, 4, 4), Flow::Flowing);
    check(Flow::Full, (0, 4, 50, 4), Flow::Full);
    check(Flow::Full, (0, 4, 49, 500), Flow::Full);
    check(Flow::Full, (0, 4, 49, 499), Flow::Flowing);
}

#[test]
fn a_refused_batch_stops_its_partition_whatever_the_load() {
    for was in [Flow::Flowing, Flow::Full, Flow::Failing] {
        check(was, (1, 0, 0, 0), Flow::Failing);
        check(was, (2, 10, 100, 1_000), Flow::Failing);
    }
}

#[test]
fn a_partition_that_has_recovered_goes_on_when_there_is_room() {
    check(Flow::Failing, (0, 0, 0, 0), Flow::Flowing);
    check(Flow::Failing, (0, 6, 6, 6), Flow::Full);
}

#[test]
fn bounds_of_one_still_let_one_through() {
    let bounds = Bounds {
        partition_waiting: 1,
        records: 1,
        bytes: 1,
    };
    let load = |records| Load {
        failing: 0,
        partition_waiting: records,
        records,
        bytes: records,
    };
    assert_eq!(decide(Flow::Flowing, &load(1), &bounds), Flow::Full);
    assert_eq!(decide(Flow::Full, &load(0), &bounds), Flow::Flowing);
}
