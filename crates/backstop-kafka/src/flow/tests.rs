use super::{KafkaBounds, KafkaFlow, KafkaLoad, decide};

const BOUNDS: KafkaBounds = KafkaBounds {
    partition_waiting: 10,
    records: 100,
    bytes: 1_000,
};

#[track_caller]
fn check(
    was: KafkaFlow,
    (failing, partition_waiting, records, bytes): (usize, usize, usize, usize),
    becomes: KafkaFlow,
) {
    let load = KafkaLoad {
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
    check(KafkaFlow::Flowing, (0, 0, 0, 0), KafkaFlow::Flowing);
    check(KafkaFlow::Flowing, (0, 9, 99, 999), KafkaFlow::Flowing);
    check(KafkaFlow::Flowing, (0, 10, 10, 10), KafkaFlow::Full);
    check(KafkaFlow::Flowing, (0, 1, 100, 10), KafkaFlow::Full);
    check(KafkaFlow::Flowing, (0, 1, 1, 1_000), KafkaFlow::Full);
}

#[test]
fn a_full_partition_waits_for_half_of_the_room() {
    check(KafkaFlow::Full, (0, 9, 9, 9), KafkaFlow::Full);
    check(KafkaFlow::Full, (0, 5, 5, 5), KafkaFlow::Full);
    check(KafkaFlow::Full, (0, 4, 4, 4), KafkaFlow::Flowing);
    check(KafkaFlow::Full, (0, 4, 50, 4), KafkaFlow::Full);
    check(KafkaFlow::Full, (0, 4, 49, 500), KafkaFlow::Full);
    check(KafkaFlow::Full, (0, 4, 49, 499), KafkaFlow::Flowing);
}

#[test]
fn a_refused_batch_stops_its_partition_whatever_the_load() {
    for was in [KafkaFlow::Flowing, KafkaFlow::Full, KafkaFlow::Failing] {
        check(was, (1, 0, 0, 0), KafkaFlow::Failing);
        check(was, (2, 10, 100, 1_000), KafkaFlow::Failing);
    }
}

#[test]
fn a_partition_that_has_recovered_goes_on_when_there_is_room() {
    check(KafkaFlow::Failing, (0, 0, 0, 0), KafkaFlow::Flowing);
    check(KafkaFlow::Failing, (0, 6, 6, 6), KafkaFlow::Full);
}

#[test]
fn bounds_of_one_still_let_one_through() {
    let bounds = KafkaBounds {
        partition_waiting: 1,
        records: 1,
        bytes: 1,
    };
    let load = |records| KafkaLoad {
        failing: 0,
        partition_waiting: records,
        records,
        bytes: records,
    };
    assert_eq!(
        decide(KafkaFlow::Flowing, &load(1), &bounds),
        KafkaFlow::Full
    );
    assert_eq!(
        decide(KafkaFlow::Full, &load(0), &bounds),
        KafkaFlow::Flowing
    );
}
