//! A process that only pushes follows the store's clock.

use backstop::core::limits::DELAY_MAX;
use backstop::core::port::{Enqueued, Store};
use backstop::core::stream::Record;
use backstop::{Backstop, ManualClock, Payload, Random, Span, StreamKey};
use backstop_memory::MemoryStore;
use backstop_testkit::clock::{an_hour_behind, is_near};
use backstop_testkit::counted::Counted;
use backstop_testkit::flaky::{Flaky, Odds};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_delay_counts_from_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let backstop = an_hour_behind(Arc::clone(&store)).await;
    let draft = backstop.draft("q").after(Span::minutes(10));
    let pushed = draft.push().await.expect("pushed");
    let job = backstop
        .job(pushed.id)
        .await
        .expect("an answer")
        .expect("a job");
    let now = store.time().await.expect("a time");
    assert!(
        is_near(job.run_at, now.after(Span::minutes(10))),
        "{} at {now}",
        job.run_at
    );
    assert!(
        is_near(job.inserted_at, now),
        "{} at {now}",
        job.inserted_at
    );
}

#[tokio::test(start_paused = true)]
async fn drafts_that_are_pushed_together_count_their_delays_from_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let backstop = an_hour_behind(Arc::clone(&store)).await;
    let draft = backstop.draft("q").after(Span::minutes(10));
    let job = draft.build().await.expect("a job");
    let (run_at, now) = (job.run_at, store.time().await.expect("a time"));
    assert!(
        run_at.is_some_and(|at| is_near(at, now.after(Span::minutes(10)))),
        "{run_at:?} at {now}"
    );
}

#[tokio::test(start_paused = true)]
async fn how_far_ahead_a_job_may_be_pushed_counts_from_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let right = ManualClock::at(store.time().await.expect("a time"));
    let right = Backstop::on(Arc::clone(&store), Arc::new(right), Random::seeded(8));
    let farthest = right.draft("q").after(DELAY_MAX);
    let farthest = farthest.build().await.expect("a job");
    let behind = an_hour_behind(store).await;
    let pushed = behind.push_jobs(vec![farthest]).await;
    assert_eq!(pushed, Ok(vec![Enqueued::Inserted]));
}

#[tokio::test(start_paused = true)]
async fn a_unique_key_is_held_for_its_period_by_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let behind = an_hour_behind(Arc::clone(&store)).await;
    let draft = |backstop: &Backstop| {
        backstop
            .draft("q")
            .unique_key("k")
            .unique_for(Span::minutes(30))
    };
    let first = draft(&behind).push().await.expect("pushed");
    assert_eq!(first.result, Enqueued::Inserted);
    let right = ManualClock::at(store.time().await.expect("a time"));
    let right = Backstop::on(store, Arc::new(right), Random::seeded(8));
    let second = draft(&right).push().await.expect("pushed");
    assert_eq!(second.result, Enqueued::Duplicate(first.id));
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_stream_comes_in_at_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let stream = an_hour_behind(Arc::clone(&store))
        .await
        .stream("s")
        .expect("a name");
    let key = StreamKey::new("k").expect("a key");
    let payload = Payload::stored(b"1".to_vec());
    let record = Record {
        key: key.clone(),
        position: 1,
        step: 1,
        tenant: None,
        payload,
    };
    stream.offer(vec![record]).await.expect("offered");
    let stored = stream.key(&key).await.expect("an answer").expect("a key");
    let now = store.time().await.expect("a time");
    assert!(
        is_near(stored.records[0].at, now),
        "{} at {now}",
        stored.records[0].at
    );
}

#[tokio::test(start_paused = true)]
async fn the_clock_is_read_once_in_ten_seconds_however_much_is_pushed() {
    let store = Arc::new(Counted::new(Arc::new(MemoryStore::new())));
    let backstop = an_hour_behind(Arc::clone(&store) as Arc<dyn Store>).await;
    store.take_calls();
    for _ in 0..100 {
        backstop.draft("q").push().await.expect("pushed");
    }
    let calls = store.take_calls();
    assert_eq!(
        (calls.get("enqueue"), calls.get("time")),
        (Some(&100), Some(&1)),
        "{calls:?}"
    );
    tokio::time::advance(Duration::from_secs(9)).await;
    backstop.draft("q").push().await.expect("pushed");
    assert_eq!(store.take_calls().get("time"), None);
    tokio::time::advance(Duration::from_secs(1)).await;
    backstop.draft("q").push().await.expect("pushed");
    assert_eq!(store.take_calls().get("time"), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_tell_its_time_still_takes_pushes() {
    let flaky = Arc::new(Flaky::with_odds(
        Arc::new(MemoryStore::new()),
        1,
        Odds::default(),
    ));
    let backstop = an_hour_behind(Arc::clone(&flaky) as Arc<dyn Store>).await;
    flaky.forbid("time");
    let pushed = backstop.draft("q").push().await.expect("pushed");
    assert_eq!(pushed.result, Enqueued::Inserted);
}
