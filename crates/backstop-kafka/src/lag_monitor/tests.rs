use super::lag;
use crate::settings::StartOffset;

#[test]
fn the_lag_is_what_is_not_committed() {
    assert_eq!(lag(100, Some(0), Some(40), StartOffset::Earliest), 60);
    assert_eq!(lag(100, None, Some(100), StartOffset::Earliest), 0);
}

#[test]
fn a_group_that_never_committed_is_behind_by_what_it_will_read() {
    assert_eq!(lag(100, Some(30), None, StartOffset::Earliest), 70);
    assert_eq!(lag(100, Some(30), None, StartOffset::Latest), 0);
    assert_eq!(lag(0, Some(0), None, StartOffset::Earliest), 0);
}

#[test]
fn a_topic_that_was_cut_off_has_no_negative_lag() {
    assert_eq!(lag(10, Some(0), Some(40), StartOffset::Earliest), 0);
}
