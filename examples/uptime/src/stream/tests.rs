use super::*;
use crate::given::{KEY, Kept, directory, record};
use std::sync::RwLock;

/// A process of its own, on a clock so fast that what is missing is given up at once.
fn streamed(kept: &Kept, speed: f64) -> Box<Streamed> {
    let judge = Judge {
        memory: Mutex::new(Box::new(kept.open())),
        directory: Arc::new(RwLock::new(directory())),
        thresholds: Thresholds::default(),
        clock: Clock::starting(0, speed),
    };
    let store = format!("sqlite:{}", kept.folder().join("stream.db").display());
    let place = Place {
        store: &store,
        stream: "uptime",
        durability: Durability::Relaxed,
    };
    Box::new(Streamed::start(&place, judge).unwrap())
}

/// Offers results of these minutes one after the other, in turn to two processes, and waits until
/// nothing is held.
fn check(minutes: &[i64], speed: f64, expected: &str) -> Hold {
    let kept = Kept::new();
    let mut processes = [streamed(&kept, speed), streamed(&kept, speed)];
    for (nth, minute) in minutes.iter().enumerate() {
        processes[nth % 2]
            .offer(vec![record(*minute, "success")])
            .unwrap();
    }
    let [mut first, second] = processes;
    second.finish().unwrap();
    first.drain().unwrap();
    let hold = first.finish().unwrap().unwrap();
    assert_eq!(kept.told(), expected, "{minutes:?}");
    assert_eq!(hold.added, hold.removed);
    hold
}

#[test]
fn a_result_that_is_overtaken_is_waited_for() {
    let hold = check(
        &[1, 3, 4, 2, 5],
        1.0,
        "handled 1, handled 2, handled 3, handled 4, handled 5",
    );
    // The one that was waited for came in behind others that waited, and so counts too.
    assert_eq!((hold.added, hold.timeouts, hold.overflows), (3, 0, 0));
}

#[test]
fn what_never_comes_is_missed_when_it_was_waited_for() {
    let hold = check(
        &[1, 3, 4],
        1_000.0,
        "handled 1, miss 2, handled 3, handled 4",
    );
    assert_eq!((hold.timeouts, hold.overflows), (1, 0));
}

#[test]
fn a_key_that_holds_too_much_waits_no_longer() {
    let hold = check(
        &[1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        1.0,
        "handled 1, miss 2, handled 3, handled 4, handled 5, handled 6, handled 7, handled 8, handled 9, handled 10, handled 11, handled 12",
    );
    assert_eq!((hold.timeouts, hold.overflows), (0, 1));
}

#[test]
fn each_result_is_told_what_became_of_it() {
    let kept = Kept::new();
    let mut streamed = streamed(&kept, 1.0);
    let mut offer = |minutes: &[i64]| {
        let records = minutes
            .iter()
            .map(|minute| record(*minute, "success"))
            .collect();
        let became = streamed.offer(records).unwrap();
        became
            .into_iter()
            .map(Became::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(offer(&[1, 2]), "handled handled");
    assert_eq!(offer(&[4, 2]), "held duplicate");
    assert_eq!(offer(&[4]), "duplicate");
    assert_eq!(offer(&[3]), "handled");
    assert_eq!(kept.told(), "handled 1, handled 2, handled 3, handled 4");
}

#[test]
fn a_subscription_that_is_forgotten_begins_anew() {
    let kept = Kept::new();
    let mut streamed = streamed(&kept, 1.0);
    streamed
        .offer(vec![record(1, "success"), record(3, "success")])
        .unwrap();
    streamed.forget(KEY).unwrap();
    streamed.drain().unwrap();
    streamed.offer(vec![record(9, "success")]).unwrap();
    assert_eq!(kept.told(), "handled 1, handled 9");
}

#[test]
fn what_is_held_survives_the_process() {
    let kept = Kept::new();
    let mut first = streamed(&kept, 1.0);
    first
        .offer(vec![record(1, "success"), record(3, "success")])
        .unwrap();
    first.finish().unwrap();
    streamed(&kept, 1.0)
        .offer(vec![record(2, "success")])
        .unwrap();
    assert_eq!(kept.told(), "handled 1, handled 2, handled 3");
}

#[test]
fn waits_are_on_the_clock_of_the_run_and_leases_are_not() {
    let fast = settings(&Clock::starting(0, 100.0));
    assert_eq!(
        fast.rules.steps,
        [100, 200, 300, 600, 600].map(Span::millis)
    );
    assert_eq!(
        (fast.rules.hold_for, fast.lease),
        (Span::secs(36), StreamSettings::default().lease)
    );
    assert_eq!(settings(&Clock::wall()).rules, StreamRules::default());
}
