//! What the article promises, to the minute, on a real table with the real engine.

use backlog_table::{ARTICLE, FRESH, Played, Sample, Strategy, first_run, play};
use backstop::Span;

const YEAR: Span = Span::days(360);

fn samples() -> Vec<Sample> {
    [FRESH].into_iter().chain(ARTICLE).collect()
}

async fn played(strategy: Strategy) -> Played {
    play(&samples(), strategy, YEAR, |_| {})
        .await
        .expect("it plays")
}

fn minutes(tries: &[Span]) -> Vec<i64> {
    tries
        .iter()
        .map(|after| after.as_millis() / 60_000)
        .collect()
}

#[tokio::test]
async fn after_one_run_two_rows_failed_and_are_due_again() {
    let (rows, due) = first_run().await.unwrap();
    let became: Vec<(i64, &str)> = rows
        .iter()
        .map(|(id, status)| (*id, status.as_str()))
        .collect();
    assert_eq!(
        became,
        [(4, "ERROR"), (3, "SUCCESS"), (2, "SUCCESS"), (1, "ERROR")]
    );
    assert_eq!(due, [4, 1]);
}

#[tokio::test]
async fn fibonacci_tries_after_so_many_minutes() {
    let played = played(Strategy::Fibonacci).await;
    let fresh = minutes(&played.of(FRESH.id));
    assert_eq!(
        fresh[..13],
        [0, 1, 2, 4, 7, 12, 20, 33, 54, 88, 143, 232, 376]
    );
    // Each is as far from the one before as the two before that together; the last is on day 357.
    let (mut wait, mut next, mut at, mut all) = (1, 1, 0, vec![0]);
    while at + wait <= 360 * 1_440 {
        at += wait;
        (wait, next) = (next, wait + next);
        all.push(at);
    }
    assert_eq!(fresh, all);
    for row in ARTICLE {
        let left = YEAR.as_millis() / 60_000 - row.age.as_millis() / 60_000;
        let young: Vec<i64> = all.iter().copied().filter(|at| *at <= left).collect();
        assert_eq!(
            minutes(&played.of(row.id)),
            young,
            "row {} ends with its own 360 days",
            row.id
        );
    }
    assert_eq!(played.expired, 5, "expired rows are counted");
}

#[tokio::test]
async fn progressive_tries_522_times_in_360_days() {
    let played = played(Strategy::Progressive).await;
    assert_eq!(played.of(FRESH.id).len(), 522);
    for row in samples() {
        assert_eq!(minutes(&played.of(row.id)), by_hand(row), "row {}", row.id);
    }
    assert_eq!(played.expired, 5);
}

/// A job that comes every five minutes and counts on its fingers.
fn by_hand(row: Sample) -> Vec<i64> {
    const BANDS: [(i64, i64); 6] = [
        (1, 5),
        (7, 60),
        (14, 12 * 60),
        (30, 24 * 60),
        (180, 96 * 60),
        (360, 192 * 60),
    ];
    let (began, age) = (
        backlog_table::moment().as_millis() / 60_000,
        row.age.as_millis() / 60_000,
    );
    let is_tried = |at: &i64| {
        let band = BANDS.iter().find(|(days, _)| age + at <= days * 1_440);
        // Whoever comes for the first time finds everything due.
        band.is_some_and(|(_, every)| *at == 0 || (began + at) % every == 0)
    };
    (0..=360 * 1_440).step_by(5).filter(is_tried).collect()
}
