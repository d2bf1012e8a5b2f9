use super::*;

fn at(seconds: i64) -> Time {
    Time::from_micros(seconds * 1_000_000)
}

fn from(floors: &ScanHints, of: &ScanTarget, seconds: i64) -> Option<Time> {
    floors.begin_scan(of, at(seconds)).from
}

fn seen(floors: &ScanHints, of: &ScanTarget, seconds: i64, to: i64) {
    let look = floors.begin_scan(of, at(seconds));
    floors.record_cleared(of.clone(), look, at(to));
}

#[test]
fn looks_begin_a_little_before_what_was_left_with_nothing() {
    let floors = ScanHints::default();
    assert_eq!(
        floors
            .begin_scan(&ScanTarget::WaitingJobs, at(100))
            .begins_at(),
        i64::MIN
    );
    seen(&floors, &ScanTarget::WaitingJobs, 100, 100);
    assert_eq!(from(&floors, &ScanTarget::WaitingJobs, 101), Some(at(90)));
    seen(&floors, &ScanTarget::WaitingJobs, 150, 150);
    assert_eq!(from(&floors, &ScanTarget::WaitingJobs, 151), Some(at(140)));
    assert_eq!(
        from(&floors, &ScanTarget::ExpiredLeases, 151),
        None,
        "each thing has its own"
    );
}

#[test]
fn a_look_from_the_beginning_comes_in_time_and_however_many_others_there_were() {
    let floors = ScanHints::default();
    for second in 100..160 {
        seen(&floors, &ScanTarget::WaitingJobs, second, second);
        assert!(from(&floors, &ScanTarget::WaitingJobs, second).is_some());
    }
    assert_eq!(from(&floors, &ScanTarget::WaitingJobs, 160), None);
    seen(&floors, &ScanTarget::WaitingJobs, 160, 160);
    assert_eq!(from(&floors, &ScanTarget::WaitingJobs, 219), Some(at(150)));
}

#[test]
fn a_clock_that_was_set_back_looks_from_the_beginning() {
    let floors = ScanHints::default();
    seen(&floors, &ScanTarget::ExpiredUniqueKeys, 100, 100);
    assert_eq!(from(&floors, &ScanTarget::ExpiredUniqueKeys, 99), None);
    seen(&floors, &ScanTarget::ExpiredUniqueKeys, 99, 99);
    assert_eq!(
        from(&floors, &ScanTarget::ExpiredUniqueKeys, 99),
        Some(at(89))
    );
}

#[test]
fn nothing_is_remembered_of_a_look_that_followed_what_was_forgotten() {
    let floors = ScanHints::default();
    seen(&floors, &ScanTarget::ExpiredUniqueKeys, 100, 100);
    let look = floors.begin_scan(&ScanTarget::ExpiredUniqueKeys, at(101));
    floors.forget();
    floors.record_cleared(ScanTarget::ExpiredUniqueKeys, look, at(101));
    assert_eq!(from(&floors, &ScanTarget::ExpiredUniqueKeys, 102), None);
}
