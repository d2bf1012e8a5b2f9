//! The history on virtual time: two servers, a store, a clock that is moved.

use super::block::HistoryResolution;
use super::*;
use backstop::core::port::ListCellsRequest;
use backstop::testing::{self, TestBackstop};
use backstop::{JobDraft, Run, RunError};

async fn push(test: &TestBackstop, queue: &str, jobs: usize) {
    for _ in 0..jobs {
        let draft: JobDraft = test.backstop.draft(queue);
        draft.push().await.unwrap();
    }
}

async fn work(test: &TestBackstop, queue: &str) {
    let done = |_: Run| async { Ok::<(), RunError>(()) };
    test.backstop
        .worker()
        .handle_raw(queue, done)
        .drain()
        .await
        .unwrap();
}

async fn cells(test: &TestBackstop) -> Vec<String> {
    let query = ListCellsRequest {
        prefix: "history/".to_owned(),
        after: None,
        limit: 1_000,
    };
    test.backstop
        .store()
        .list_cells(query)
        .await
        .unwrap()
        .into_iter()
        .map(|cell| cell.name)
        .collect()
}

fn values(series: &TimeSeries, n: usize) -> Vec<Option<f64>> {
    series
        .points
        .iter()
        .rev()
        .take(n)
        .rev()
        .map(|point| point.value)
        .collect()
}

async fn total(test: &TestBackstop, window: TimeWindow) -> QueueSeries {
    History::default()
        .queue(&test.backstop, &HistorySubject::Total, window)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_happened_in_a_minute_is_there_for_a_server_that_starts_later() {
    let test = testing::start();
    let mut recorder = HistoryRecorder::new(test.backstop.clone(), History::default());
    recorder.take_snapshot().await.unwrap();
    push(&test, "mail", 120).await;
    test.clock.advance(Span::minutes(1));
    recorder.take_snapshot().await.unwrap();
    work(&test, "mail").await;
    test.clock.advance(Span::minutes(1));
    recorder.take_snapshot().await.unwrap();
    let series = total(&test, TimeWindow::Hour).await;
    assert_eq!(values(&series.enqueued, 3), [None, Some(2.0), Some(0.0)]);
    assert_eq!(values(&series.done, 3), [None, Some(0.0), Some(2.0)]);
    assert_eq!(
        values(&series.ready, 3),
        [Some(0.0), Some(120.0), Some(0.0)]
    );
    assert_eq!(values(&series.oldest_ready, 2), [Some(60.0), Some(0.0)]);
    let mail = HistorySubject::Queue(QueueName::new("mail").unwrap());
    let series = History::default()
        .queue(&test.backstop, &mail, TimeWindow::Hour)
        .await
        .unwrap();
    assert_eq!(values(&series.done, 1), [Some(2.0)]);
}

#[tokio::test]
async fn of_two_servers_the_first_writes_a_minute_and_nothing_counts_twice() {
    let test = testing::start();
    let mut servers =
        [0, 1].map(|_| HistoryRecorder::new(test.backstop.clone(), History::default()));
    for _ in 0..5 {
        push(&test, "mail", 60).await;
        for server in &mut servers {
            server.take_snapshot().await.unwrap();
            // What comes between the two looks belongs to the next minute, whoever sees it first.
            push(&test, "mail", 30).await;
        }
        test.clock.advance(Span::minutes(1));
    }
    let series = total(&test, TimeWindow::Hour).await;
    assert_eq!(
        values(&series.enqueued, 5),
        [Some(2.0), Some(2.0), Some(2.0), Some(2.0), None]
    );
}

#[tokio::test]
async fn a_server_that_was_away_leaves_a_gap() {
    let test = testing::start();
    let mut recorder = HistoryRecorder::new(test.backstop.clone(), History::default());
    for pause in [1, 1, 7, 1] {
        recorder.take_snapshot().await.unwrap();
        push(&test, "mail", 60).await;
        test.clock.advance(Span::minutes(pause));
    }
    recorder.take_snapshot().await.unwrap();
    let series = total(&test, TimeWindow::Hour).await;
    let mut expected = vec![Some(1.0), Some(1.0)];
    expected.extend([None; 7]);
    expected.push(Some(1.0));
    assert_eq!(values(&series.enqueued, 10), expected);
}

#[tokio::test]
async fn a_look_late_in_a_minute_is_remembered_and_not_written() {
    let test = testing::start();
    let history = History::default();
    let mut recorder = HistoryRecorder::new(test.backstop.clone(), history.clone());
    test.clock.advance(Span::secs(30));
    recorder.take_snapshot().await.unwrap();
    push(&test, "mail", 10).await;
    test.clock.advance(SNAPSHOT_EVERY);
    recorder.take_snapshot().await.unwrap();
    assert_eq!(cells(&test).await, Vec::<String>::new());
    let series = history
        .queue(
            &test.backstop,
            &HistorySubject::Total,
            TimeWindow::FiveMinutes,
        )
        .await
        .unwrap();
    assert_eq!(values(&series.enqueued, 2), [None, Some(2.0)]);
    let mail = QueueName::new("mail").unwrap();
    assert_eq!(
        history
            .recent_queue(&mail, test.backstop.now())
            .ready
            .last(),
        None,
        "first seen at a minute"
    );
}

#[tokio::test]
async fn a_week_is_drawn_from_ten_minutes_and_what_is_older_goes() {
    let test = testing::start();
    let mut recorder = HistoryRecorder::new(test.backstop.clone(), History::default());
    let hours = 24 * 8 + 2;
    for _ in 0..hours * 6 {
        push(&test, "mail", 1).await;
        recorder.take_snapshot().await.unwrap();
        test.clock.advance(Span::minutes(10));
    }
    let series = total(&test, TimeWindow::Week).await;
    assert!(
        series
            .enqueued
            .points
            .iter()
            .all(|point| point.value == Some(1.0 / 600.0)),
        "{:?}",
        series.enqueued
    );
    let names = cells(&test).await;
    let oldest = |grain: HistoryResolution| {
        let name = names
            .iter()
            .find(|name| name.starts_with(grain.prefix()))
            .unwrap();
        let block: i64 = name
            .trim_start_matches(grain.prefix())
            .split('/')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        test.backstop.now().since(grain.time_of(block, 0))
    };
    assert!(
        oldest(HistoryResolution::Minute) <= Span::hours(27),
        "{}",
        oldest(HistoryResolution::Minute)
    );
    assert!(
        oldest(HistoryResolution::TenMinutes) <= Span::days(8).plus(Span::hours(1)),
        "{}",
        oldest(HistoryResolution::TenMinutes)
    );
    assert!(names.len() < 2 * (28 + 9) + 1, "{}", names.len());
}

#[tokio::test]
async fn a_server_that_starts_makes_ten_minutes_of_what_others_left() {
    let test = testing::start();
    let mut gone = HistoryRecorder::new(test.backstop.clone(), History::default());
    for _ in 0..9 {
        push(&test, "mail", 60).await;
        gone.take_snapshot().await.unwrap();
        test.clock.advance(Span::minutes(1));
    }
    // It was killed before ten minutes were over; another one comes at a quarter past.
    test.clock.advance(Span::minutes(6));
    HistoryRecorder::new(test.backstop.clone(), History::default())
        .take_snapshot()
        .await
        .unwrap();
    let rows = cells::read_rows(
        &test.backstop,
        HistoryResolution::TenMinutes,
        &HistorySubject::Total,
        test.backstop.now().before(Span::hours(1)),
        test.backstop.now(),
    );
    let enqueued: Vec<u64> = rows
        .await
        .unwrap()
        .into_iter()
        .map(|(_, row)| row[0])
        .collect();
    assert_eq!(enqueued, [60, 540]);
}

#[tokio::test]
async fn queues_past_the_bound_are_summed() {
    let test = testing::start();
    for number in 0..QUEUES_MAX + 3 {
        push(
            &test,
            &format!("q{number:03}"),
            if number < 2 { 1 } else { 2 },
        )
        .await;
    }
    let mut recorder = HistoryRecorder::new(test.backstop.clone(), History::default());
    recorder.take_snapshot().await.unwrap();
    test.clock.advance(Span::minutes(1));
    recorder.take_snapshot().await.unwrap();
    let history = History::default();
    let others = history
        .queue(&test.backstop, &HistorySubject::Others, TimeWindow::Hour)
        .await
        .unwrap();
    // The two least busy ones, and the last by name of all others.
    assert_eq!(others.ready.last(), Some(4.0));
    let all = history
        .queue(&test.backstop, &HistorySubject::Total, TimeWindow::Hour)
        .await
        .unwrap();
    assert_eq!(all.ready.last(), Some(132.0));
}

#[tokio::test]
async fn a_part_that_cannot_be_read_is_written_anew() {
    let test = testing::start();
    let mut recorder = HistoryRecorder::new(test.backstop.clone(), History::default());
    recorder.take_snapshot().await.unwrap();
    let hour = HistoryResolution::Minute.block_of(test.backstop.now());
    let name = cells::cell_name(HistoryResolution::Minute, hour, &HistorySubject::Total);
    let standing = test
        .backstop
        .store()
        .cells(vec![name.clone()])
        .await
        .unwrap()
        .pop()
        .flatten()
        .unwrap();
    let broken = backstop::core::port::CellSwap {
        name,
        seen: Some(standing.version),
        version: 1,
        value: Some(b"{not json".to_vec()),
    };
    test.backstop.store().swap(vec![broken]).await.unwrap();
    test.clock.advance(Span::minutes(1));
    recorder.take_snapshot().await.unwrap();
    assert_eq!(
        values(&total(&test, TimeWindow::Hour).await.ready, 2),
        [None, Some(0.0)]
    );
}

/// What rings of a stream, for whoever asks now.
async fn alarms_of(test: &TestBackstop, stream: &str) -> Vec<backstop::core::stream::StreamAlarm> {
    let streams = test.backstop.store().streams().await.unwrap();
    let alarms = StreamAlarms::read(&test.backstop, &streams).await.unwrap();
    alarms.of(&stream.parse().unwrap()).to_vec()
}

#[tokio::test]
async fn a_stream_rings_by_its_last_ten_minutes_and_for_a_server_that_starts_later() {
    use backstop::core::stream::StreamAlarm;
    use backstop::streams::Record;
    let test = testing::start();
    let stream = test.backstop.stream("uptime").unwrap();
    let mut recorder = HistoryRecorder::new(test.backstop.clone(), History::default());
    for minute in 0..11 {
        let record = Record {
            key: "site".parse().unwrap(),
            position: (minute + 5) * 60_000,
            step: 60_000,
            tenant: None,
            payload: backstop::Payload::default(),
        };
        stream.offer(vec![record]).await.unwrap();
        recorder.take_snapshot().await.unwrap();
        if minute < 10 {
            assert_eq!(alarms_of(&test, "uptime").await, [], "minute {minute}");
        }
        test.clock.advance(Span::minutes(1));
    }
    assert_eq!(alarms_of(&test, "uptime").await, [StreamAlarm::HeldGrowing]);
    for _ in 0..2 {
        recorder.take_snapshot().await.unwrap();
        test.clock.advance(Span::minutes(1));
    }
    assert_eq!(alarms_of(&test, "uptime").await, [], "it stopped growing");
}

#[tokio::test]
async fn a_series_ends_with_what_a_page_sees_and_gaps_stay_gaps() {
    let test = testing::start();
    let mut recorder = HistoryRecorder::new(test.backstop.clone(), History::default());
    recorder.take_snapshot().await.unwrap();
    push(&test, "mail", 3).await;
    test.clock.advance(Span::minutes(1));
    recorder.take_snapshot().await.unwrap();
    push(&test, "mail", 2).await;
    let now = test.backstop.now();
    let seen = QueueSample::of_all(&test.backstop.store().queues(now).await.unwrap(), now);
    let series = total(&test, TimeWindow::Hour).await.ending_with(seen, now);
    assert_eq!(
        (series.ready.last(), series.ready.points.last().unwrap().at),
        (Some(5.0), now)
    );
    assert_eq!(
        values(&series.enqueued, 1),
        [Some(0.05)],
        "a rate is of a step, not of a moment"
    );
    assert!(
        QueueSeries::default()
            .ending_with(seen, now)
            .ready
            .is_empty()
    );
}
