//! A process without a worker follows the store's clock, whatever it asks of the library.

use backstop::core::limits::DELAY_MAX;
use backstop::core::plan::QueueQuota;
use backstop::core::port::{BeatRequest, Claim, EnqueueOutcome, Store};
use backstop::core::stream::Record;
use backstop::core::{LeaseNumber, WorkerName};
use backstop::dead::DeadSelection;
use backstop::schedules::Cron;
use backstop::{
    Backstop, JobId, ManualClock, Payload, RandomSource, RunError, Schedule, ScheduleName, Span,
    StreamKey,
};
use backstop_memory::MemoryStore;
use backstop_testkit::clock::{WrongClock, an_hour_behind, is_near, with_wrong_clock};
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
    let right = Backstop::on(Arc::clone(&store), Arc::new(right), RandomSource::seeded(8));
    let farthest = right.draft("q").after(DELAY_MAX);
    let farthest = farthest.build().await.expect("a job");
    let behind = an_hour_behind(store).await;
    let pushed = behind.push_jobs(vec![farthest]).await;
    assert_eq!(pushed, Ok(vec![EnqueueOutcome::Inserted]));
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
    assert_eq!(first.result, EnqueueOutcome::Inserted);
    let right = ManualClock::at(store.time().await.expect("a time"));
    let right = Backstop::on(store, Arc::new(right), RandomSource::seeded(8));
    let second = draft(&right).push().await.expect("pushed");
    assert_eq!(second.result, EnqueueOutcome::Duplicate(first.id));
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_stream_comes_in_at_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let stream = an_hour_behind(Arc::clone(&store))
        .await
        .stream("s")
        .expect("a name");
    let key = StreamKey::new("k").expect("a key");
    let payload = Payload::from_stored(b"1".to_vec());
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
    assert_eq!(pushed.result, EnqueueOutcome::Inserted);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_job_in_the_users_transaction_comes_in_at_the_files_time() {
    use backstop::rusqlite::{Connection, TransactionBehavior};
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("shop.db");
    let url = format!("sqlite:{}", file.display());
    let opened = Backstop::open(&url).await.expect("opened");
    tokio::time::pause();
    let backstop = an_hour_behind(Arc::clone(opened.store())).await;
    // The file is worked on by threads that the runtime does not know.
    tokio::time::resume();
    let mut db = Connection::open(&file).expect("opened");
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .expect("begun");
    let draft = backstop.draft("q").after(Span::minutes(10));
    let pushed = draft.push_in(&transaction).expect("pushed");
    transaction.commit().expect("committed");
    let job = opened.job(pushed.id).await.expect("an answer");
    let (job, now) = (
        job.expect("a job"),
        opened.store().time().await.expect("a time"),
    );
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

/// The dead letter of an operation during which the clock falls behind.
async fn give_up(backstop: &Backstop, clock: &WrongClock) -> JobId {
    let operation = |_| async {
        clock.fall_behind().await;
        Err::<(), _>(RunError::dead("never"))
    };
    let retried = backstop.with_retry("q", &1).run(operation).await;
    retried.expect("it ran").id
}

#[tokio::test(start_paused = true)]
async fn an_operation_with_retry_dies_at_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (backstop, clock) = with_wrong_clock(Arc::clone(&store)).await;
    let id = give_up(&backstop, &clock).await;
    let letter = backstop.job(id).await.expect("an answer").expect("a job");
    let now = store.time().await.expect("a time");
    let failed_at = letter.history.failures()[0].at;
    for at in [failed_at, letter.finished_at.expect("it is dead")] {
        assert!(is_near(at, now), "{at} at {now}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_requeued_at_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (backstop, clock) = with_wrong_clock(Arc::clone(&store)).await;
    let id = give_up(&backstop, &clock).await;
    clock.fall_behind().await;
    let requeued = backstop.dead().requeue(&DeadSelection::Ids(vec![id])).await;
    assert_eq!(requeued.expect("requeued").count, 1);
    let job = backstop.job(id).await.expect("an answer").expect("a job");
    let now = store.time().await.expect("a time");
    assert!(is_near(job.run_at, now), "{} at {now}", job.run_at);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_triggered_and_paused_at_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (backstop, clock) = with_wrong_clock(Arc::clone(&store)).await;
    let schedule = Schedule::new(
        ScheduleName::new("daily").expect("a name"),
        Cron::new("30 8 * * *").expect("a cron expression"),
        "q".parse().expect("a name"),
    );
    let triggered = backstop.schedules().trigger(&schedule).await;
    let triggered = triggered.expect("triggered").instant;
    clock.fall_behind().await;
    let paused = backstop.schedules().pause(&schedule.name).await;
    assert_eq!(paused, Ok(true));
    let known = backstop.schedules().list_known().await.expect("an answer");
    let paused = known[0].1.paused.expect("it is paused");
    let now = store.time().await.expect("a time");
    for at in [triggered, paused] {
        assert!(is_near(at, now), "{at} at {now}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_silent_by_the_stores_time() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let before = store
        .time()
        .await
        .expect("a time")
        .before(Span::minutes(30));
    let beat = BeatRequest {
        worker: WorkerName::new("silent"),
        queues: Vec::new(),
        leases: Vec::new(),
        until: before.after(Span::secs(15)),
    };
    store.beat(beat, before).await.expect("noted");
    let backstop = an_hour_behind(store).await;
    assert_eq!(backstop.workers(Span::minutes(1)).await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_doctor_says_by_the_stores_time_how_long_ago_a_lease_expired() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let backstop = an_hour_behind(Arc::clone(&store)).await;
    let queue = backstop_testkit::given::queue("q");
    let job = backstop_testkit::given::job("q", "a");
    let until = store.time().await.expect("a time").before(Span::minutes(2));
    let began = until.before(Span::secs(15));
    store.enqueue(vec![job.into()], began).await.expect("in");
    let claim = Claim {
        number: LeaseNumber::draw(1),
        worker: WorkerName::new("doomed"),
        until,
        wants: vec![QueueQuota { queue, max: 1 }],
    };
    assert_eq!(
        store.claim(claim, began).await.expect("claimed").runs.len(),
        1
    );
    let findings = backstop.examine_store(Span::secs(15)).await;
    let findings = findings.expect("examined").findings;
    assert!(
        findings
            .iter()
            .any(|finding| finding.what.contains("the first 12")),
        "{findings:?}"
    );
}
