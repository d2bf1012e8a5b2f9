//! Jobs whose transaction commits after claims have passed their places.

use super::{fresh_store, user};
use backstop_core::NewJob;
use backstop_postgres::enqueue_in;
use backstop_testkit::given::{Scene, at, job, names};
use tokio_postgres::{Client, Transaction};

async fn enqueue(transaction: &Transaction<'_>, schema: &str, names: &[&str]) {
    let jobs: Vec<NewJob> = names.iter().map(|name| job("q", name).into()).collect();
    enqueue_in(transaction, schema, &jobs, at(0))
        .await
        .expect("the jobs are taken in");
}

async fn begin(client: &mut Client) -> Transaction<'_> {
    client.transaction().await.expect("a transaction begins")
}

#[tokio::test]
async fn a_job_that_commits_late_is_claimed_next() {
    let (store, schema) = fresh_store().await;
    let (mut scene, mut slow) = (Scene::new(store), user().await);
    scene.insert([job("q", "first")]).await;
    let transaction = begin(&mut slow).await;
    enqueue(&transaction, &schema, &["late"]).await;
    scene.insert([job("q", "second")]).await;
    assert_eq!(names(&scene.claim("q", 10).await), ["first", "second"]);
    assert_eq!(
        names(&scene.claim("q", 10).await),
        [""; 0],
        "nobody sees what is not committed"
    );
    transaction.commit().await.expect("it commits");
    assert_eq!(names(&scene.claim("q", 10).await), ["late"]);
    assert_eq!(names(&scene.claim("q", 10).await), [""; 0]);
}

#[tokio::test]
async fn a_job_that_commits_late_comes_before_those_that_came_after_it() {
    let (store, schema) = fresh_store().await;
    let (mut scene, mut slow) = (Scene::new(store), user().await);
    scene.insert([job("q", "first")]).await;
    let transaction = begin(&mut slow).await;
    enqueue(&transaction, &schema, &["late"]).await;
    scene
        .insert([job("q", "second"), job("q", "third"), job("q", "fourth")])
        .await;
    assert_eq!(names(&scene.claim("q", 2).await), ["first", "second"]);
    transaction.commit().await.expect("it commits");
    // A queue that has enough without it is swept by the clock.
    scene.now = at(10);
    assert_eq!(names(&scene.claim("q", 2).await), ["late", "third"]);
}

#[tokio::test]
async fn a_transaction_that_takes_for_ever_hides_nothing_of_the_others() {
    let (store, schema) = fresh_store().await;
    let mut scene = Scene::new(store);
    let (mut slow, mut slower) = (user().await, user().await);
    scene.insert([job("q", "first")]).await;
    let slowest = begin(&mut slower).await;
    enqueue(&slowest, &schema, &["slowest"]).await;
    for round in 0..5 {
        let transaction = begin(&mut slow).await;
        let (late, quick) = (format!("late-{round}"), format!("quick-{round}"));
        enqueue(&transaction, &schema, &[&late]).await;
        scene.insert([job("q", &quick)]).await;
        let seen = names(&scene.claim("q", 10).await);
        assert!(seen.contains(&quick) && !seen.contains(&late), "{seen:?}");
        transaction.commit().await.expect("it commits");
        assert_eq!(names(&scene.claim("q", 10).await), [late]);
    }
    slowest.commit().await.expect("it commits");
    assert_eq!(names(&scene.claim("q", 10).await), ["slowest"]);
}

#[tokio::test]
async fn a_late_job_beside_a_lease_with_holes_is_nobodys_but_its_own() {
    let (store, schema) = fresh_store().await;
    let (mut scene, mut slow) = (Scene::new(store), user().await);
    scene.insert([job("q", "before")]).await;
    let transaction = begin(&mut slow).await;
    enqueue(&transaction, &schema, &["late"]).await;
    scene.insert([job("q", "after")]).await;
    let claim = scene.claim_of(&[("q", 10)]);
    let held = scene.claim_as(&claim).await;
    assert_eq!(names(&held), ["before", "after"]);
    transaction.commit().await.expect("it commits");
    assert_eq!(
        names(&scene.claim_as(&claim).await),
        ["before", "after"],
        "a repeated claim gets what it had"
    );
    let late = scene.claim("q", 10).await;
    assert_eq!(names(&late), ["late"]);
    for run in held.iter().chain(&late) {
        assert_eq!(
            scene
                .settle(
                    &run.lease,
                    backstop_core::Outcome::Done(backstop_core::verdict::DoneRetention::Listed)
                )
                .await,
            backstop_core::port::SettleOutcome::Applied
        );
    }
}

#[tokio::test]
async fn what_is_rolled_back_was_never_there() {
    let (store, schema) = fresh_store().await;
    let (mut scene, mut slow) = (Scene::new(store), user().await);
    let transaction = begin(&mut slow).await;
    enqueue(&transaction, &schema, &["undone"]).await;
    transaction.rollback().await.expect("it rolls back");
    scene.insert([job("q", "other")]).await;
    assert_eq!(names(&scene.claim("q", 10).await), ["other"]);
    assert_eq!(scene.find("undone").await, None);
    assert_eq!(scene.queue("q").await.totals.enqueued, 1);
}
