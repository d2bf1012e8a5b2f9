use super::*;
use crate::Random;
use crate::testing::{Test, start};
use backstop_core::order::RunOf;
use backstop_core::port::Beat;
use backstop_memory::MemoryStore;
use std::sync::Arc;
use std::time::Duration;

fn worker() -> WorkerName {
    WorkerName::new("w")
}

async fn beat(test: &Test, queues: &[&str]) {
    let queues = queues
        .iter()
        .map(|name| QueueName::new(name).unwrap())
        .collect();
    let now = test.backstop.now();
    let beat = Beat {
        worker: worker(),
        queues,
        leases: Vec::new(),
        until: now.after(Span::secs(15)),
    };
    test.backstop.store().beat(beat, now).await.unwrap();
}

async fn tell(test: &Test, run: &str, duty: Duty) {
    let run = RunOf {
        id: run.to_owned(),
        since: test.backstop.now(),
    };
    let card = Card::here(About::default(), run, 2, duty);
    card::put_card(&test.backstop, &worker(), &card)
        .await
        .unwrap();
}

async fn order(test: &Test, order: Order) -> Option<Given> {
    // So that the audit is in order.
    test.clock.advance(Span::millis(10));
    test.backstop
        .changes("ada")
        .order(&worker(), order)
        .await
        .unwrap()
}

async fn seen(test: &Test) -> WorkerInfo {
    test.backstop.workers(LISTED).await.unwrap().remove(0)
}

async fn health(test: &Test) -> Health {
    seen(test).await.health(test.backstop.now())
}

#[tokio::test]
async fn nobody_is_asked_who_never_was_or_is_gone_for_good() {
    let test = start();
    assert_eq!(order(&test, Order::Stop).await, None, "never was");
    beat(&test, &["q"]).await;
    test.clock.advance(Span::secs(31));
    assert_eq!(
        order(&test, Order::Stop).await,
        None,
        "it would be another one when it comes back"
    );
    tell(&test, "a", Duty::Working).await;
    assert!(
        order(&test, Order::Stop).await.is_some(),
        "this run of it may come back"
    );
    test.clock.advance(LISTED);
    assert_eq!(
        order(&test, Order::Stop).await,
        None,
        "not heard of within the hour"
    );
    let told = test.backstop.audit("").entries(10).await.unwrap();
    let counts: Vec<_> = told
        .iter()
        .map(|entry| (entry.what.as_str(), entry.count))
        .collect();
    assert_eq!(
        counts,
        [("worker stop", Some(1))],
        "who is not there is asked for nothing"
    );
    assert_eq!(told[0].selection.to_string(), r#"{"worker":"w"}"#);
}

#[tokio::test]
async fn an_order_stands_with_who_gave_it_until_it_is_taken_back() {
    let test = start();
    beat(&test, &["q"]).await;
    tell(&test, "a", Duty::Working).await;
    assert_eq!(health(&test).await, Health::Live);
    let given = |ordered, asked| {
        Some(Given {
            ordered,
            asked,
            listens: true,
        })
    };
    assert_eq!(
        order(&test, Order::Quiet).await,
        given(Ordered::Given, Some(Asked::Quiet))
    );
    assert_eq!(
        order(&test, Order::Quiet).await,
        given(Ordered::Same, Some(Asked::Quiet))
    );
    assert_eq!(health(&test).await, Health::Quiet);
    assert_eq!(seen(&test).await.asked.unwrap().by, "ada");
    assert_eq!(
        order(&test, Order::Stop).await,
        given(Ordered::Given, Some(Asked::Stop))
    );
    assert_eq!(health(&test).await, Health::Stopping);
    assert_eq!(
        order(&test, Order::Resume).await,
        given(Ordered::Given, None)
    );
    assert_eq!(health(&test).await, Health::Live);
    tell(&test, "a", Duty::Stopping).await;
    assert_eq!(
        order(&test, Order::Resume).await,
        given(Ordered::TooLate, None)
    );
}

#[tokio::test]
async fn a_worker_that_restarts_under_its_name_has_not_been_asked_and_can_be_asked_anew() {
    let test = start();
    beat(&test, &["q"]).await;
    tell(&test, "a", Duty::Working).await;
    order(&test, Order::Stop).await.unwrap();
    tell(&test, "b", Duty::Working).await;
    assert_eq!(
        (health(&test).await, seen(&test).await.asked),
        (Health::Live, None)
    );
    let given = order(&test, Order::Quiet).await.unwrap();
    assert_eq!(
        given,
        Given {
            ordered: Ordered::Given,
            asked: Some(Asked::Quiet),
            listens: true
        },
        "the old order is no order"
    );
    // The one that ended late takes away nothing of the one that runs.
    let old = RunOf {
        id: "a".to_owned(),
        since: test.backstop.now(),
    };
    card::withdraw(&test.backstop, &worker(), &old)
        .await
        .unwrap();
    assert_eq!(health(&test).await, Health::Quiet);
}

#[tokio::test(start_paused = true)]
async fn orders_at_once_leave_the_greater_one() {
    use backstop_testkit::flaky::{Flaky, Odds};
    // Whoever reads first, both have read before one of them writes.
    for [first, second] in [[Order::Quiet, Order::Stop], [Order::Stop, Order::Quiet]] {
        let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
        let clock = start().clock;
        let test = Test {
            backstop: Backstop::on(
                Arc::<Flaky>::clone(&store),
                clock.clone(),
                Random::seeded(1),
            ),
            clock,
        };
        beat(&test, &["q"]).await;
        tell(&test, "a", Duty::Working).await;
        store.set_odds(Odds {
            delay_after: 1.0,
            delay_max: Duration::from_millis(100),
            ..Odds::default()
        });
        let name = worker();
        let give = async |order| {
            test.backstop
                .order(&name, order, "ada")
                .await
                .unwrap()
                .unwrap()
        };
        tokio::join!(give(first), give(second));
        assert_eq!(
            seen(&test).await.asked.unwrap().asked,
            Asked::Stop,
            "{first} and {second}"
        );
    }
}

#[tokio::test]
async fn a_worker_that_hears_no_orders_is_shown_as_it_is_and_that_is_said() {
    let test = start();
    beat(&test, &["q"]).await;
    let given = order(&test, Order::Stop).await.unwrap();
    assert_eq!(
        given,
        Given {
            ordered: Ordered::Given,
            asked: Some(Asked::Stop),
            listens: false
        }
    );
    assert_eq!(health(&test).await, Health::Live, "it works on");
    assert!(seen(&test).await.takes_jobs(test.backstop.now()));
    assert_eq!(
        seen(&test).await.asked.unwrap().asked,
        Asked::Stop,
        "and what it was asked for is shown"
    );
    test.clock.advance(Span::secs(1));
    tell(&test, "a", Duty::Working).await;
    assert_eq!(
        health(&test).await,
        Health::Live,
        "the order was for the run before"
    );
}

#[tokio::test]
async fn a_worker_is_shown_as_its_beats_and_its_card_say() {
    let test = start();
    beat(&test, &["q"]).await;
    assert_eq!(
        health(&test).await,
        Health::Live,
        "a worker elsewhere has no card"
    );
    beat(&test, &[]).await;
    assert_eq!(health(&test).await, Health::Stopped, "it said goodbye");
    tell(&test, "a", Duty::Working).await;
    assert_eq!(health(&test).await, Health::Live, "it keeps house");
    assert_eq!(
        seen(&test).await.taken,
        0,
        "a card may be older than what the store knows"
    );
    tell(&test, "a", Duty::Stopping).await;
    assert_eq!(health(&test).await, Health::Stopping, "by a signal");
    test.clock.advance(Span::secs(31));
    assert_eq!(health(&test).await, Health::Stopped);
}

#[test]
fn what_a_worker_left_is_forgotten_once_it_is_gone() {
    let now = Time::from_millis(1_000_000_000);
    let living = BTreeSet::from(["alive".to_owned()]);
    let cell = |name: &str, value: Vec<u8>| Cell {
        name: name.to_owned(),
        version: 1,
        value,
    };
    let card = |name: &str, at: Time| {
        cell(
            name,
            serde_json::to_vec(&serde_json::json!({ "at": at })).unwrap(),
        )
    };
    let (fresh, old) = (now.before(Span::hours(1)), now.before(Span::hours(25)));
    assert!(!Card::is_over(&card("cards/gone", fresh), &living, now));
    assert!(!Card::is_over(&card("cards/alive", old), &living, now));
    assert!(Card::is_over(&card("cards/gone", old), &living, now));
    let standing = Standing {
        asked: Asked::Quiet,
        at: now,
        by: String::new(),
        run: None,
    };
    let order = |standing| serde_json::to_vec(&card::OrderCell(standing)).unwrap();
    assert!(!card::OrderCell::is_over(
        &cell("orders/alive", order(Some(standing.clone()))),
        &living
    ));
    assert!(card::OrderCell::is_over(
        &cell("orders/gone", order(Some(standing))),
        &living
    ));
    assert!(
        card::OrderCell::is_over(&cell("orders/alive", order(None)), &living),
        "nothing stands"
    );
}

#[tokio::test]
async fn a_worker_that_missed_two_heartbeats_is_not_shown_as_live() {
    let test = start();
    beat(&test, &["q"]).await;
    let run = RunOf {
        id: "a".to_owned(),
        since: test.backstop.now(),
    };
    let card = Card::here(About::default(), run, 2, Duty::Working).beating_every(Span::secs(5));
    card::put_card(&test.backstop, &worker(), &card)
        .await
        .unwrap();
    test.clock.advance(Span::secs(11));
    assert_eq!(health(&test).await, Health::Live);
    test.clock.advance(Span::secs(1));
    assert_eq!(health(&test).await, Health::Stopped, "it holds nothing");
    let slow = card.beating_every(Span::secs(20));
    card::put_card(&test.backstop, &worker(), &slow)
        .await
        .unwrap();
    test.clock.advance(Span::secs(29));
    assert_eq!(
        health(&test).await,
        Health::Live,
        "its lease is longer, and it beats less often"
    );
}
