use super::*;
use crate::directory::Change;
use crate::given::{DETECTOR, KEY, Kept, MINUTE_MS, directory, event, event_of};
use crate::memory::Incident;

fn apply(kept: &Kept, event: &Event) -> Processed {
    process(
        &mut kept.open(),
        event,
        &directory(),
        &Thresholds::default(),
        99,
    )
    .unwrap()
}

/// Handles results (`s`uccess, `f`ailure) and misses (`-`) from minute 1 on, each by a process of
/// its own.
fn play(kept: &Kept, results: &str) {
    for (minute, letter) in (1..).zip(results.chars()) {
        let event = match letter {
            's' => event(minute, Effect::Handled),
            'f' => event_of(minute, Effect::Handled, "failure"),
            _ => event(minute, Effect::Miss),
        };
        assert!(
            matches!(apply(kept, &event), Processed::Applied(_)),
            "{minute}"
        );
    }
}

fn incidents(kept: &Kept) -> Vec<(i64, Option<i64>)> {
    let minutes = |incident: Incident| {
        assert_eq!(incident.detector, DETECTOR);
        (
            incident.opened_ms / MINUTE_MS,
            incident.closed_ms.map(|ms| ms / MINUTE_MS),
        )
    };
    kept.open()
        .incidents()
        .unwrap()
        .into_iter()
        .map(minutes)
        .collect()
}

#[test]
fn incidents_open_and_close_across_processes() {
    let kept = Kept::new();
    play(&kept, "sfffssff");
    assert_eq!(incidents(&kept), [(3, Some(6)), (8, None)]);
}

#[test]
fn a_miss_passes_no_detector() {
    let kept = Kept::new();
    play(&kept, "f-f--ss");
    assert_eq!(incidents(&kept), [(3, Some(7))]);
    assert_eq!(
        kept.told(),
        "handled 1, miss 2, handled 3, miss 4, miss 5, handled 6, handled 7"
    );
}

#[test]
fn a_repeat_changes_nothing() {
    let kept = Kept::new();
    play(&kept, "sf");
    let before = kept.open().lines(0).unwrap();
    for _ in 0..3 {
        assert_eq!(
            apply(&kept, &event_of(2, Effect::Handled, "failure")),
            Processed::Repeated
        );
    }
    assert_eq!(kept.open().lines(0).unwrap(), before);
    assert_eq!(
        incidents(&kept),
        [],
        "one failure is no incident, however often it is told"
    );
    let opened = apply(&kept, &event_of(3, Effect::Handled, "failure"));
    assert_eq!(
        opened,
        Processed::Applied(Some(Notice::Opened {
            at_ms: 3 * MINUTE_MS
        }))
    );
}

#[test]
fn a_crash_before_the_commit_leaves_nothing() {
    let kept = Kept::new();
    play(&kept, "sf");
    let fatal = event_of(3, Effect::Handled, "failure");
    let mut memory = kept.open();
    let mut transaction = memory.begin().unwrap();
    process_in(
        &mut *transaction,
        &fatal,
        &directory(),
        &Thresholds::default(),
        99,
    )
    .unwrap();
    drop(transaction);
    assert_eq!(
        (kept.told().as_str(), incidents(&kept).len()),
        ("handled 1, handled 2", 0)
    );
    apply(&kept, &fatal);
    assert_eq!(incidents(&kept), [(3, None)]);
}

#[test]
fn an_amendment_is_told_beside_its_miss_and_passes_no_detector() {
    let kept = Kept::new();
    play(&kept, "f-");
    apply(&kept, &event_of(2, Effect::Amended, "failure"));
    assert_eq!(
        apply(&kept, &event_of(2, Effect::Amended, "failure")),
        Processed::Repeated
    );
    assert_eq!(kept.told(), "handled 1, miss 2, amended 2");
    assert_eq!(incidents(&kept), []);
}

#[test]
fn what_nobody_wants_any_more_is_not_handled() {
    let kept = Kept::new();
    let mut disabled = directory();
    disabled.apply(&Change::DetectorDisabled {
        detector: DETECTOR,
        at_ms: 0,
    });
    let mut deleted = directory();
    deleted.subscriptions.remove(&KEY);
    let mut without_feature = directory();
    without_feature
        .organizations
        .values_mut()
        .for_each(|organization| organization.has_uptime = false);
    for directory in [disabled, deleted, without_feature] {
        let event = event(1, Effect::Handled);
        let processed = process(
            &mut kept.open(),
            &event,
            &directory,
            &Thresholds::default(),
            99,
        )
        .unwrap();
        assert_eq!(processed, Processed::Unwanted);
    }
    assert_eq!(kept.told(), "");
}

#[test]
fn an_event_that_no_try_can_mend_says_so() {
    let kept = Kept::new();
    let check = |event: &Event, expected: &str| {
        let error = process(
            &mut kept.open(),
            event,
            &directory(),
            &Thresholds::default(),
            99,
        );
        assert_eq!(error.expect_err(expected).to_string(), expected);
    };
    check(
        &Event {
            payload: None,
            ..event(1, Effect::Handled)
        },
        "a handled event without its result",
    );
    check(
        &Event {
            payload: Some(bytes::Bytes::from_static(b"{}")),
            ..event(1, Effect::Handled)
        },
        "the result of a handled event is broken: `guid` is missing",
    );
    assert_eq!(kept.told(), "");
}
