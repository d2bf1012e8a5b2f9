use super::*;
use crate::dead::letter::tests::{at, failure, job};

fn check(filter: &DeadFilter, expected: bool) {
    let job = job(
        r#"{"to":"Ada","password":"hunter2"}"#,
        &[failure(20, 1, "Connection REFUSED, token=abc", None)],
    );
    assert_eq!(
        filter.fits(&job, &Redaction::default()),
        expected,
        "{filter:?}"
    );
}

fn none() -> DeadFilter {
    DeadFilter::default()
}

#[test]
fn a_letter_fits_where_everything_does() {
    let queue = |name: &str| Some(QueueName::new(name).unwrap());
    check(&none(), true);
    check(
        &DeadFilter {
            queue: queue("q"),
            ..none()
        },
        true,
    );
    check(
        &DeadFilter {
            queue: queue("p"),
            ..none()
        },
        false,
    );
    check(
        &DeadFilter {
            kind: Some(Kind::new("k").unwrap()),
            ..none()
        },
        true,
    );
    check(
        &DeadFilter {
            kind: Some(Kind::default()),
            ..none()
        },
        false,
    );
    check(
        &DeadFilter {
            error_type: Some("Timeout".to_owned()),
            ..none()
        },
        true,
    );
    check(
        &DeadFilter {
            error_type: Some("timeout".to_owned()),
            ..none()
        },
        false,
    );
    check(
        &DeadFilter {
            fingerprint: Some(Fingerprint::of_overflow()),
            ..none()
        },
        false,
    );
    check(
        &DeadFilter {
            since: Some(at(20)),
            until: Some(at(20)),
            ..none()
        },
        true,
    );
    check(
        &DeadFilter {
            since: Some(at(21)),
            ..none()
        },
        false,
    );
    check(
        &DeadFilter {
            until: Some(at(19)),
            ..none()
        },
        false,
    );
    check(
        &DeadFilter {
            queue: queue("q"),
            until: Some(at(19)),
            ..none()
        },
        false,
    );
}

#[test]
fn text_is_looked_for_where_it_is_shown() {
    let text = |text: &str| DeadFilter {
        text: Some(text.to_owned()),
        ..none()
    };
    for shown in ["connection refused", "ADA", " timeout\n", "[redacted]"] {
        check(&text(shown), true);
    }
    for hidden in ["hunter2", "abc", "nowhere"] {
        check(&text(hidden), false);
    }
}

#[test]
fn a_job_that_is_not_dead_does_not_fit() {
    let job = Job {
        state: JobState::Ready,
        ..job("1", &[])
    };
    assert!(!none().fits(&job, &Redaction::default()));
}

#[test]
fn a_list_in_order_of_time_ends_where_nothing_more_can_fit() {
    let job = job("1", &[]);
    let check = |filter: DeadFilter, order, expected| {
        assert_eq!(filter.is_passed_at(&job, order), expected);
    };
    check(
        DeadFilter {
            since: Some(at(21)),
            ..none()
        },
        ListOrder::Newest,
        true,
    );
    check(
        DeadFilter {
            since: Some(at(20)),
            ..none()
        },
        ListOrder::Newest,
        false,
    );
    check(
        DeadFilter {
            since: Some(at(21)),
            ..none()
        },
        ListOrder::Oldest,
        false,
    );
    check(
        DeadFilter {
            until: Some(at(19)),
            ..none()
        },
        ListOrder::Oldest,
        true,
    );
    check(
        DeadFilter {
            until: Some(at(20)),
            ..none()
        },
        ListOrder::Oldest,
        false,
    );
    check(
        DeadFilter {
            until: Some(at(19)),
            ..none()
        },
        ListOrder::Newest,
        false,
    );
}

#[test]
fn as_of_a_time_never_means_later_than_asked_for() {
    assert_eq!(none().as_of(at(5)).until, Some(at(5)));
    assert_eq!(
        DeadFilter {
            until: Some(at(3)),
            ..none()
        }
        .as_of(at(5))
        .until,
        Some(at(3))
    );
    assert_eq!(
        DeadFilter {
            until: Some(at(9)),
            ..none()
        }
        .as_of(at(5))
        .until,
        Some(at(5))
    );
}

#[test]
fn a_filter_reads_back_and_knows_no_other_words() {
    let filter = DeadFilter {
        since: Some(at(1)),
        text: Some("x".to_owned()),
        ..none()
    };
    let text = serde_json::to_string(&filter).unwrap();
    assert_eq!(text, r#"{"since":"1970-01-01T00:00:01Z","text":"x"}"#);
    assert_eq!(serde_json::from_str::<DeadFilter>(&text).unwrap(), filter);
    assert!(serde_json::from_str::<DeadFilter>(r#"{"qeue":"q"}"#).is_err());
}
