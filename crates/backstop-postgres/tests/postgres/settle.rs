//! Runs of several claims that end together: each claim by the way that is shortest for it.

use super::{fresh_store, user};
use backstop_core::port::SettleOutcome::{Applied, Stale};
use backstop_core::port::{SeizeRequest, Store};
use backstop_core::verdict::DoneRetention;
use backstop_core::{JobState, Lease, LeaseNumber, Outcome, Priority, Span};
use backstop_testkit::given::{LEASE, Scene, WORKER, job, names, retry_at};
use futures_util::future::join_all;
use std::sync::Arc;

/// How many leases there are.
async fn leases(schema: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {schema}.lease");
    user()
        .await
        .query_one(&count, &[])
        .await
        .expect("the owner reads")
        .get(0)
}

const DONE: Outcome = Outcome::Done(DoneRetention::Listed);

#[tokio::test]
async fn claims_that_are_one_lease_or_several_end_in_one_call() {
    let (store, _) = fresh_store().await;
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let whole = scene.claim("q", 3).await;
    let low = |name| job("q", name).priority(Priority::Low);
    scene
        .insert([job("q", "d"), low("e"), job("p", "f"), job("q", "g")])
        .await;
    let claim = scene.claim_of(&[("q", 3), ("p", 1)]);
    let spread = scene.claim_as(&claim).await;
    let leases: Vec<Lease> = whole
        .iter()
        .chain(&spread)
        .map(|run| run.lease.clone())
        .collect();
    assert_eq!(leases.len(), 7);

    // Those of one claim are not beside each other, and some have no right to end what they name.
    let foreign = Lease {
        number: LeaseNumber::draw(99),
        ..leases[1].clone()
    };
    let elsewhere = Lease {
        queue: leases[6].queue.clone(),
        ..leases[2].clone()
    };
    let others = Lease {
        number: leases[3].number,
        ..leases[2].clone()
    };
    let order = [
        &leases[3], &foreign, &leases[0], &leases[6], &elsewhere, &leases[1], &leases[4],
        &leases[5],
    ];
    let answers = scene.settle_all(order.map(|lease| (lease, DONE))).await;
    assert_eq!(
        answers,
        [
            Applied, Stale, Applied, Applied, Stale, Applied, Applied, Applied
        ]
    );
    assert_eq!(
        scene
            .settle_all([(&others, DONE), (&leases[0], DONE)])
            .await,
        [Stale, Applied],
        "a repetition"
    );
    assert_eq!(scene.settle(&leases[2], DONE).await, Applied);

    for (queue, done) in [("q", 6), ("p", 1)] {
        let status = scene.queue(queue).await;
        let count = |state| status.counts.of(state);
        assert_eq!(
            (
                count(JobState::Running),
                count(JobState::Done),
                status.totals.done
            ),
            (0, done, done),
            "{queue}"
        );
    }
}

#[tokio::test]
async fn a_job_that_was_given_back_is_no_longer_ended_by_its_claim() {
    let (store, _) = fresh_store().await;
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 3).await;
    assert_eq!(
        scene
            .settle(&runs[1].lease, Outcome::Released { at: scene.now })
            .await,
        Applied
    );
    let answers = scene
        .settle_all(runs.iter().map(|run| (&run.lease, DONE)))
        .await;
    assert_eq!(answers, [Applied, Stale, Applied]);
    assert_eq!(scene.claim("q", 3).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn settlements_of_one_lease_that_overlap_leave_no_emptied_lease() {
    let (store, schema) = fresh_store().await;
    settle_overlapping(store, 60).await;
    assert_eq!(leases(&schema).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn advisory_locks_of_an_application_leave_no_emptied_lease() {
    let (store, schema) = fresh_store().await;
    let application = user().await;
    let locks = "SELECT pg_advisory_lock(n), pg_advisory_lock(0, n) FROM generate_series(1, 100) n";
    application
        .batch_execute(locks)
        .await
        .expect("anybody takes advisory locks");
    settle_overlapping(store, 60).await;
    assert_eq!(leases(&schema).await, 0);
    drop(application);
}

/// Claims eight jobs together and settles each by itself, all at once, so many times.
async fn settle_overlapping(store: Arc<dyn Store>, rounds: usize) {
    let other = Arc::clone(&store);
    let mut scene = Scene::new(store);
    for round in 0..rounds {
        scene
            .insert((0..8).map(|n| job("q", &format!("{round}-{n}"))))
            .await;
        let runs = scene.claim("q", 8).await;
        let now = scene.now;
        let ends = runs.iter().enumerate().map(|(n, run)| {
            let outcome = if n % 3 == 2 { retry_at(now) } else { DONE };
            let settlement = backstop_core::verdict::Settlement {
                lease: run.lease.clone(),
                outcome,
            };
            let store = Arc::clone(&other);
            tokio::spawn(async move { store.settle(vec![settlement], now).await })
        });
        // A beat locks the lease, too.
        let kept: Vec<Lease> = runs.iter().map(|run| run.lease.clone()).collect();
        let (answers, _) = tokio::join!(
            join_all(ends),
            scene.beat_as(WORKER, &kept, now.after(LEASE))
        );
        for answer in answers {
            assert_eq!(answer.expect("it does not panic"), Ok(vec![Applied]));
        }
    }
}

#[tokio::test]
async fn a_lease_that_stays_locked_keeps_no_other_emptied_one_from_being_removed() {
    let (store, schema) = fresh_store().await;
    let mut scene = Scene::new(store);
    scene.insert([job("q", "other")]).await;
    scene.claim_one("q").await;
    // As settlements that overlap leave them.
    let emptied = format!(
        "SET search_path = {schema};
         INSERT INTO lease (number, lo, hi, since, until, queue, level, worker)
         SELECT n, 1000000 + n, 1000000 + n, 0, l.until, l.queue, l.level, 'gone'
         FROM lease l, generate_series(1, 5) n"
    );
    let (mut locker, closer) = (user().await, user().await);
    closer
        .batch_execute(&emptied)
        .await
        .expect("the owner writes");
    let transaction = locker
        .transaction()
        .await
        .expect("the server takes transactions");
    let lock = format!("SELECT no FROM {schema}.lease WHERE number = 2 FOR UPDATE");
    transaction
        .batch_execute(&lock)
        .await
        .expect("the owner locks");
    let close = "SELECT close_emptied(ARRAY(SELECT no FROM lease))";
    let closed = closer.query(close, &[]).await;
    assert_eq!(
        closed.expect("it gives up on the locked one alone").len(),
        4
    );
    transaction
        .rollback()
        .await
        .expect("the server ends transactions");
    assert_eq!(
        leases(&schema).await,
        2,
        "the locked one, and one that has a job"
    );
}

#[tokio::test]
async fn a_seizure_goes_on_behind_emptied_leases_and_removes_them() {
    let (store, schema) = fresh_store().await;
    let mut scene = Scene::new(store);
    scene.insert([job("q", "left")]).await;
    scene.claim_one("q").await;
    // As a crash between a settlement and the removal leaves them, only many more: all end before
    // the other, half of them at one time.
    let emptied = format!(
        "INSERT INTO {schema}.lease (number, lo, hi, since, until, queue, level, worker)
         SELECT 1000000 + n, 1000000 + n, 1000000 + n, 0, l.until - greatest(n, 5000), l.queue, l.level, 'gone'
         FROM {schema}.lease l, generate_series(1, 10000) n"
    );
    user()
        .await
        .batch_execute(&emptied)
        .await
        .expect("the owner writes");
    assert_eq!(leases(&schema).await, 10_001);
    scene.now = scene.now.after(LEASE).after(Span::secs(1));
    let seize = SeizeRequest {
        max: 20,
        ..scene.seize_of("rescuer")
    };
    let seizure = scene.seize_some(&seize).await;
    assert_eq!(
        (
            names(seizure.runs.iter().map(|seized| &seized.run)),
            seizure.more
        ),
        (vec!["left".to_owned()], false)
    );
    assert_eq!(leases(&schema).await, 1, "only the seizer's own");
}

#[tokio::test]
async fn a_seizure_that_passes_a_locked_lease_over_looks_for_it_again() {
    let (store, schema) = fresh_store().await;
    let mut scene = Scene::new(store);
    scene
        .insert(["first", "second"].map(|name| job("q", name)))
        .await;
    scene.claim_one("q").await;
    scene.now = scene.now.after(Span::secs(1));
    scene.claim_one("q").await;
    scene.now = scene.now.after(LEASE).after(Span::minutes(1));
    let (mut user, settling) = (
        user().await,
        format!("SELECT no FROM {schema}.lease ORDER BY until LIMIT 1 FOR KEY SHARE"),
    );
    let transaction = user
        .transaction()
        .await
        .expect("the server takes transactions");
    transaction
        .batch_execute(&settling)
        .await
        .expect("the owner locks");
    let seize = scene.seize_of("rescuer");
    let seizure = scene.seize_some(&seize).await;
    assert_eq!(
        (
            names(seizure.runs.iter().map(|seized| &seized.run)),
            seizure.more
        ),
        (vec!["second".to_owned()], false)
    );
    transaction
        .rollback()
        .await
        .expect("the server ends transactions");
    scene.now = scene.now.after(Span::secs(1));
    assert_eq!(
        names(
            scene
                .seize("rescuer")
                .await
                .iter()
                .map(|seized| &seized.run)
        ),
        ["first"]
    );
}
