//! Pushes of ids that were made a moment ago: they take a shorter way in, and mean the same.

use super::{fresh_store, user};
use backstop_core::port::EnqueueOutcome::{self, Inserted, Same};
use backstop_core::verdict::DoneRetention;
use backstop_core::{JobId, JobState, NewJob, Outcome, Span};
use backstop_postgres::enqueue_in;
use backstop_testkit::given::{START, Scene, job};
use futures_util::future::join_all;
use tokio_postgres::Transaction;

/// The job of a number: its id sorts by it, and was made within moments of the others'.
fn numbered(number: u8) -> NewJob {
    let id = JobId::at(START.after(Span::millis(i64::from(number))), [number; 10]);
    NewJob {
        id,
        ..job("q", &number.to_string()).into()
    }
}

async fn push(scene: &Scene, jobs: Vec<NewJob>) -> Vec<EnqueueOutcome> {
    scene
        .store
        .enqueue(jobs, scene.now)
        .await
        .expect("the store answers")
}

async fn push_numbered(scene: &Scene, numbers: &[u8]) -> Vec<EnqueueOutcome> {
    push(scene, numbers.iter().copied().map(numbered).collect()).await
}

/// A queue that is there already: the first push to a new one goes another way.
async fn scene() -> (Scene, String) {
    let (store, schema) = fresh_store().await;
    let scene = Scene::new(store);
    push_numbered(&scene, &[0]).await;
    (scene, schema)
}

async fn check_counts(scene: &Scene, counts: &[(JobState, u64)], enqueued: u64) {
    let queue = scene.queue("q").await;
    for (state, count) in counts {
        assert_eq!(queue.counts.of(*state), *count, "{state:?}");
    }
    assert_eq!(queue.totals.enqueued, enqueued);
}

#[tokio::test]
async fn they_are_taken_in_once_and_in_order() {
    let (mut scene, _) = scene().await;
    assert_eq!(push_numbered(&scene, &[1, 3, 2]).await, [Inserted; 3]);
    assert_eq!(push_numbered(&scene, &[1, 3, 2]).await, [Same; 3]);
    assert_eq!(
        push_numbered(&scene, &[4, 2, 5]).await,
        [Inserted, Same, Inserted],
        "one is ready already"
    );
    check_counts(&scene, &[(JobState::Ready, 6)], 6).await;
    let claimed: Vec<JobId> = scene
        .claim("q", 10)
        .await
        .iter()
        .map(|run| run.lease.job)
        .collect();
    assert_eq!(
        claimed,
        [0, 1, 3, 2, 4, 5].map(|number| numbered(number).id)
    );
}

#[tokio::test]
async fn one_that_waits_for_its_time_is_known() {
    let (scene, _) = scene().await;
    let later = NewJob {
        run_at: Some(scene.now.after(Span::hours(1))),
        ..numbered(2)
    };
    assert_eq!(push(&scene, vec![later]).await, [Inserted]);
    assert_eq!(
        push_numbered(&scene, &[1, 2, 3]).await,
        [Inserted, Same, Inserted]
    );
    check_counts(&scene, &[(JobState::Ready, 3), (JobState::Scheduled, 1)], 4).await;
}

#[tokio::test]
async fn one_that_has_ended_is_known() {
    let (mut scene, _) = scene().await;
    assert_eq!(push_numbered(&scene, &[2]).await, [Inserted]);
    for run in scene.claim("q", 10).await {
        scene
            .settle(&run.lease, Outcome::Done(DoneRetention::Listed))
            .await;
    }
    assert_eq!(
        push_numbered(&scene, &[1, 2, 3]).await,
        [Inserted, Same, Inserted]
    );
    check_counts(&scene, &[(JobState::Ready, 2), (JobState::Done, 2)], 4).await;
}

#[tokio::test]
async fn another_id_between_them_is_not_one_of_them() {
    let (mut scene, _) = scene().await;
    assert_eq!(push_numbered(&scene, &[2]).await, [Inserted]);
    for run in scene.claim("q", 10).await {
        scene
            .settle(&run.lease, Outcome::Done(DoneRetention::Listed))
            .await;
    }
    assert_eq!(push_numbered(&scene, &[1, 3]).await, [Inserted; 2]);
    check_counts(&scene, &[(JobState::Ready, 2), (JobState::Done, 2)], 4).await;
}

#[tokio::test]
async fn many_who_push_the_same_at_once_take_each_in_once() {
    let (scene, schema) = scene().await;
    let address = format!(
        "{}?schema={schema}",
        backstop_testkit::servers::postgres().url()
    );
    let others = join_all((0..4).map(|_| super::open(&address))).await;
    for round in 0..10_u8 {
        let numbers: Vec<u8> = (1..=20).map(|number| round * 20 + number).collect();
        let pushes = others.iter().map(|store| {
            let jobs = numbers.iter().copied().map(numbered).collect();
            store.enqueue(jobs, scene.now)
        });
        let answers: Vec<_> = join_all(pushes)
            .await
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        assert_eq!(answers.len(), 80, "everybody is answered");
        assert_eq!(
            answers.iter().filter(|answer| **answer == Inserted).count(),
            20
        );
    }
    check_counts(&scene, &[(JobState::Ready, 201)], 201).await;
}

#[tokio::test]
async fn one_that_a_transaction_pushed_is_known_once_it_commits() {
    let (scene, schema) = scene().await;
    for (number, commits, answer) in [(1, true, Same), (3, false, Inserted)] {
        let mut client = user().await;
        let transaction = client.transaction().await.expect("a transaction");
        enqueue_in(&transaction, &schema, &[numbered(number)], scene.now)
            .await
            .expect("a job");
        let pushing = async { push_numbered(&scene, &[number, number + 1]).await };
        let (pushed, ()) = tokio::join!(pushing, async {
            until_somebody_waits(&transaction, &schema).await;
            let ended = if commits {
                transaction.commit().await
            } else {
                transaction.rollback().await
            };
            ended.expect("it ends");
        });
        assert_eq!(pushed, [answer, Inserted]);
    }
}

async fn until_somebody_waits(transaction: &Transaction<'_>, schema: &str) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";
    while transaction
        .query_one(waits, &[&schema])
        .await
        .expect("a count")
        .get::<_, i64>(0)
        == 0
    {
        // What it shows is read once a transaction.
        transaction
            .batch_execute("SELECT pg_stat_clear_snapshot()")
            .await
            .expect("it is read anew");
    }
}
