use super::wait;
use crate::limits::{RETRY_WAIT_MAX, RETRY_WAIT_MIN};

#[track_caller]
fn check(failures: u32, draw: f64, millis: u128) {
    assert_eq!(
        wait(failures, draw).as_millis(),
        millis,
        "after {failures} failures, with {draw}"
    );
}

#[test]
fn a_wait_doubles_and_half_of_it_is_drawn() {
    check(1, 0.0, 50);
    check(1, 1.0, 100);
    check(2, 1.0, 200);
    check(3, 0.5, 300);
    check(6, 1.0, 3_200);
}

#[test]
fn a_wait_has_a_bound_however_often_it_failed() {
    for failures in [7, 8, 31, 32, 33, 1_000, u32::MAX] {
        check(failures, 0.0, 2_500);
        check(failures, 1.0, 5_000);
    }
    assert!(RETRY_WAIT_MIN < RETRY_WAIT_MAX);
}

#[test]
fn no_failures_wait_as_one() {
    check(0, 1.0, 100);
}
