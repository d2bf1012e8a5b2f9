//! What processes count, on virtual time and one store.

use super::*;
use crate::shared_cells;
use crate::testing::{self, TestBackstop};
use crate::{Run, RunError};

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// Counts runs of a kind that ended now, each after a second.
fn count(test: &TestBackstop, name: &str, kind: &str, runs: usize) {
    let (queue, kind) = (queue(name), Kind::new(kind).unwrap());
    for _ in 0..runs {
        let ran = RunSample {
            queue: &queue,
            kind: Some(&kind),
            wait: Some(Span::millis(40)),
            took: Span::secs(1),
            failed: false,
        };
        test.backstop
            .run_times_counter()
            .note(&ran, test.backstop.now());
    }
}

async fn runs_of(test: &TestBackstop, subject: &RunTimeSubject, grain: RunTimeResolution) -> u64 {
    let now = test.backstop.now();
    let rows = test
        .backstop
        .run_times()
        .of(subject, grain, now.before(Span::days(7)), now)
        .await
        .unwrap();
    rows.iter().map(|(_, spread)| spread.runs()).sum()
}

#[tokio::test]
async fn runs_of_a_worker_are_counted_by_queue_and_kind_with_their_failures() {
    let test = testing::start();
    for kind in ["good", "good", "bad"] {
        test.backstop.draft("mail").kind(kind).push().await.unwrap();
    }
    let handler = |run: Run| async move {
        if run.kind().as_str() == "bad" {
            Err(RunError::retry("boom"))
        } else {
            Ok(())
        }
    };
    test.backstop
        .worker()
        .handle_raw("mail", handler)
        .drain()
        .await
        .unwrap();
    test.backstop.run_times().write().await.unwrap();
    for subject in [RunTimeSubject::Total, RunTimeSubject::Queue(queue("mail"))] {
        for grain in [RunTimeResolution::Minute, RunTimeResolution::HalfHour] {
            assert_eq!(runs_of(&test, &subject, grain).await, 3, "{subject:?}");
        }
    }
    let now = test.backstop.now();
    let kinds = test
        .backstop
        .run_times()
        .kinds(RunTimeResolution::Minute, now.before(Span::hours(1)), now)
        .await
        .unwrap();
    let told: Vec<(&str, u64, u64)> = kinds
        .iter()
        .map(|(_, kind, spread)| (kind.as_str(), spread.runs(), spread.failed))
        .collect();
    assert_eq!(told, [("bad", 1, 1), ("good", 2, 0)]);
    assert!(
        kinds
            .iter()
            .all(|(_, _, spread)| spread.wait.count() == spread.runs())
    );
    test.backstop.run_times().write().await.unwrap();
    assert_eq!(
        runs_of(&test, &RunTimeSubject::Total, RunTimeResolution::Minute).await,
        3,
        "nothing counts twice"
    );
}

#[tokio::test]
async fn what_several_processes_add_to_one_minute_is_added_up() {
    let test = testing::start();
    for _ in 0..5 {
        // A process of its own: all it shares with the others is the store.
        count(&test, "mail", "k", 2);
        test.backstop.run_times().write().await.unwrap();
    }
    let now = test.backstop.now();
    let subject = RunTimeSubject::Queue(queue("mail"));
    let rows = test.backstop.run_times().of(
        &subject,
        RunTimeResolution::Minute,
        now.before(Span::hours(1)),
        now,
    );
    let rows = rows.await.unwrap();
    assert_eq!(rows.len(), 1, "one minute");
    assert_eq!((rows[0].1.runs(), rows[0].1.wait.count()), (10, 10));
}

#[tokio::test]
async fn what_finds_no_room_is_in_the_sums_and_whoever_is_silent_for_a_week_makes_room() {
    let test = testing::start();
    for number in 0..KINDS_MAX + 5 {
        count(&test, "mail", &format!("k{number:03}"), 1);
    }
    test.backstop.run_times().write().await.unwrap();
    let kinds = async || {
        let now = test.backstop.now();
        let kinds = test
            .backstop
            .run_times()
            .kinds(RunTimeResolution::HalfHour, now.before(Span::hours(1)), now)
            .await
            .unwrap();
        kinds
            .into_iter()
            .map(|(_, kind, _)| kind.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds().await.len(), KINDS_MAX);
    assert_eq!(
        runs_of(
            &test,
            &RunTimeSubject::Queue(queue("mail")),
            RunTimeResolution::Minute
        )
        .await,
        KINDS_MAX as u64 + 5
    );
    test.clock.advance(Span::days(9));
    count(&test, "mail", "late", 1);
    test.backstop.run_times().write().await.unwrap();
    assert_eq!(kinds().await, ["late"]);
}

#[tokio::test]
async fn what_is_too_old_goes() {
    let test = testing::start();
    for hour in 0..24 * 9 {
        count(&test, "mail", "k", 1);
        // As many as are followed, for as long that more than a day of them is too old.
        if hour >= 24 * 7 {
            for number in 1..QUEUES_MAX {
                count(&test, &format!("q{number}"), "k", 1);
            }
        }
        test.backstop.run_times().write().await.unwrap();
        test.clock.advance(Span::hours(1));
    }
    let cells = async |prefix: &str| {
        shared_cells::cells(&test.backstop, prefix)
            .await
            .unwrap()
            .len()
    };
    // The total, the queues and the kinds: a cell an hour for a day and a cell a day for a week.
    let subjects = 1 + QUEUES_MAX + KINDS_MAX;
    let (minutes, half_hours) = (cells("spreads/m/").await, cells("spreads/h/").await);
    assert!(
        (subjects * 25..=subjects * 26).contains(&minutes),
        "{minutes}"
    );
    assert!(half_hours <= 3 * 9 + subjects * 3, "{half_hours}");
    assert!(runs_of(&test, &RunTimeSubject::Total, RunTimeResolution::HalfHour).await >= 24 * 7);
}

#[tokio::test]
async fn more_queues_than_are_told_apart_are_counted_in_the_sum() {
    let test = testing::start();
    let all = APART_MAX + 500;
    for number in 0..all {
        count(&test, &format!("tenant-{number}"), "k", 1);
    }
    let apart: Vec<usize> = test
        .backstop
        .run_times_counter()
        .lock_counts()
        .minutes
        .values()
        .map(|minute| minute.apart.len())
        .collect();
    assert_eq!(apart, [APART_MAX]);
    test.backstop.run_times().write().await.unwrap();
    assert_eq!(
        runs_of(&test, &RunTimeSubject::Total, RunTimeResolution::Minute).await,
        all as u64
    );
}

#[test]
fn what_was_handed_out_is_remembered_within_bounds_and_told_once() {
    let tally = RunTimeCounter::default();
    let (number, kind) = (LeaseNumber::from_i64(1), Kind::new("k").unwrap());
    let job = |n: u32| JobId::named(&n.to_string());
    for n in 0..25_000 {
        tally.note_leased(job(n), number, kind.clone(), Span::secs(1));
    }
    assert_eq!(
        tally.take_leased(job(1), number),
        HttpRunLookup::Unknown,
        "the oldest are forgotten"
    );
    assert_eq!(
        tally.take_leased(job(24_999), number),
        HttpRunLookup::First(kind, Span::secs(1))
    );
    assert_eq!(tally.take_leased(job(24_999), number), HttpRunLookup::Again);
}
