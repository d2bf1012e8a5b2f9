use super::*;

fn check(waiting: usize, under_way: usize, returning: usize, share: usize) {
    let traffic = CallerTraffic::default();
    traffic.waiting.store(waiting, Ordering::Release);
    traffic.under_way.store(under_way, Ordering::Release);
    traffic.returning.store(returning, Ordering::Release);
    assert_eq!(
        traffic.fair_share(),
        share,
        "{waiting} wait, {under_way} under way, {returning} to come back"
    );
}

#[test]
fn few_callers_go_together() {
    check(1, 0, 0, 1);
    check(3, 0, 5, 5);
    check(2, 5, 0, 7);
    check(1, 11, 11, 22);
}

#[test]
fn many_callers_are_two_statements_of_one_size() {
    check(32, 0, 0, 16);
    check(1, 16, 16, 16);
    check(15, 16, 0, 16);
    check(1, 128, 128, 128);
}

#[test]
fn a_caller_counts_once_on_its_way_round() {
    let traffic = CallerTraffic::default();
    assert!(
        traffic.record_arrival(1),
        "nobody else is there to wait for"
    );
    traffic.record_sent(1, 1);
    assert!(
        !traffic.record_arrival(1),
        "it goes with the first when that is back"
    );
    traffic.record_answered(1);
    assert!(!traffic.expects_more(), "as many wait as are to come back");
    assert_eq!(traffic.fair_share(), 1);
    assert!(traffic.record_arrival(1), "both are there");
    traffic.record_sent(2, 2);
    assert_eq!((traffic.fair_share(), traffic.is_idle()), (2, false));
}
