//! Runs of several claims that end together: each claim by the way that is shortest for it.

use super::fresh_store;
use backstop_core::port::Settled::{Applied, Stale};
use backstop_core::verdict::Keep;
use backstop_core::{Lease, LeaseNumber, Outcome, Priority, State};
use backstop_testkit::given::{Scene, job};

const DONE: Outcome = Outcome::Done(Keep::Listed);

#[tokio::test]
async fn claims_that_are_one_lease_or_several_end_in_one_call() {
    let (store, _) = fresh_store().await;
    let mut scene = Scene::new(store);
    scene.insert(["a", "b", "c"].map(|name| job("q", name))).await;
    let whole = scene.claim("q", 3).await;
    let low = |name| job("q", name).priority(Priority::Low);
    scene.insert([job("q", "d"), low("e"), job("p", "f"), job("q", "g")]).await;
    let claim = scene.claim_of(&[("q", 3), ("p", 1)]);
    let spread = scene.claim_as(&claim).await;
    let leases: Vec<Lease> = whole.iter().chain(&spread).map(|run| run.lease.clone()).collect();
    assert_eq!(leases.len(), 7);

    // Those of one claim are not beside each other, and some have no right to end what they name.
    let foreign = Lease { number: LeaseNumber::draw(99), ..leases[1].clone() };
    let elsewhere = Lease { queue: leases[6].queue.clone(), ..leases[2].clone() };
    let others = Lease { number: leases[3].number, ..leases[2].clone() };
    let order =
        [&leases[3], &foreign, &leases[0], &leases[6], &elsewhere, &leases[1], &leases[4], &leases[5]];
    let answers = scene.settle_all(order.map(|lease| (lease, DONE))).await;
    assert_eq!(answers, [Applied, Stale, Applied, Applied, Stale, Applied, Applied, Applied]);
    assert_eq!(
        scene.settle_all([(&others, DONE), (&leases[0], DONE)]).await,
        [Stale, Applied],
        "a repetition"
    );
    assert_eq!(scene.settle(&leases[2], DONE).await, Applied);

    for (queue, done) in [("q", 6), ("p", 1)] {
        let status = scene.queue(queue).await;
        let count = |state| status.counts.of(state);
        assert_eq!(
            (count(State::Running), count(State::Done), status.totals.done),
            (0, done, done),
            "{queue}"
        );
    }
}

#[tokio::test]
async fn a_job_that_was_given_back_is_no_longer_ended_by_its_claim() {
    let (store, _) = fresh_store().await;
    let mut scene = Scene::new(store);
    scene.insert(["a", "b", "c"].map(|name| job("q", name))).await;
    let runs = scene.claim("q", 3).await;
    assert_eq!(scene.settle(&runs[1].lease, Outcome::Released { at: scene.now }).await, Applied);
    let answers = scene.settle_all(runs.iter().map(|run| (&run.lease, DONE))).await;
    assert_eq!(answers, [Applied, Stale, Applied]);
    assert_eq!(scene.claim("q", 3).await.len(), 1);
}
