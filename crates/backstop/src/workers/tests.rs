use super::*;
use crate::RandomSource;
use crate::testing::{TestBackstop, start};
use backstop_core::port::BeatRequest;
use backstop_core::worker_command::WorkerRun;
use backstop_memory::MemoryStore;
use std::sync::Arc;
use std::time::Duration;

fn worker() -> WorkerName {
    WorkerName::new("w")
}

async fn beat(test: &TestBackstop, queues: &[&str]) {
    let queues = queues
        .iter()
        .map(|name| QueueName::new(name).unwrap())
        .collect();
    let now = test.backstop.now();
    let beat = BeatRequest {
        worker: worker(),
        queues,
        leases: Vec::new(),
        until: now.after(Span::secs(15)),
    };
    test.backstop.store().beat(beat, now).await.unwrap();
}

async fn tell(test: &TestBackstop, run: &str, duty: WorkerState) {
    let run = WorkerRun {
        id: run.to_owned(),
        since: test.backstop.now(),
    };
    let card = WorkerHeartbeat::of_local_worker(WorkerDescription::default(), run, 2, duty);
    heartbeat::write_heartbeat(&test.backstop, &worker(), &card)
        .await
        .unwrap();
}

async fn order(test: &TestBackstop, order: WorkerCommand) -> Option<WorkerCommandResult> {
    // So that the audit is in order.
    test.clock.advance(Span::millis(10));
    test.backstop
        .changes("ada")
        .command_worker(&worker(), order)
        .await
        .unwrap()
}

async fn seen(test: &TestBackstop) -> WorkerInfo {
    test.backstop.workers(LISTED).await.unwrap().remove(0)
}

async fn health(test: &TestBackstop) -> WorkerHealth {
    seen(test).await.health(test.backstop.now())
}

#[tokio::test]
async fn nobody_is_asked_who_never_was_or_is_gone_for_good() {
    let test = start();
    assert_eq!(order(&test, WorkerCommand::Stop).await, None, "never was");
    beat(&test, &["q"]).await;
    test.clock.advance(Span::secs(31));
    assert_eq!(
        order(&test, WorkerCommand::Stop).await,
        None,
        "it would be another one when it comes back"
    );
    tell(&test, "a", WorkerState::Working).await;
    assert!(
        order(&test, WorkerCommand::Stop).await.is_some(),
        "this run of it may come back"
    );
    test.clock.advance(LISTED);
    assert_eq!(
        order(&test, WorkerCommand::Stop).await,
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
    tell(&test, "a", WorkerState::Working).await;
    assert_eq!(health(&test).await, WorkerHealth::Live);
    let given = |ordered, asked| {
        Some(WorkerCommandResult {
            outcome: ordered,
            desired_state: asked,
            listens: true,
        })
    };
    assert_eq!(
        order(&test, WorkerCommand::Quiet).await,
        given(CommandOutcome::Given, Some(DesiredWorkerState::Quiet))
    );
    assert_eq!(
        order(&test, WorkerCommand::Quiet).await,
        given(CommandOutcome::Same, Some(DesiredWorkerState::Quiet))
    );
    assert_eq!(health(&test).await, WorkerHealth::Quiet);
    assert_eq!(seen(&test).await.active_command.unwrap().by, "ada");
    assert_eq!(
        order(&test, WorkerCommand::Stop).await,
        given(CommandOutcome::Given, Some(DesiredWorkerState::Stop))
    );
    assert_eq!(health(&test).await, WorkerHealth::Stopping);
    assert_eq!(
        order(&test, WorkerCommand::Resume).await,
        given(CommandOutcome::Given, None)
    );
    assert_eq!(health(&test).await, WorkerHealth::Live);
    tell(&test, "a", WorkerState::Stopping).await;
    assert_eq!(
        order(&test, WorkerCommand::Resume).await,
        given(CommandOutcome::TooLate, None)
    );
}

#[tokio::test]
async fn a_worker_that_restarts_under_its_name_has_not_been_asked_and_can_be_asked_anew() {
    let test = start();
    beat(&test, &["q"]).await;
    tell(&test, "a", WorkerState::Working).await;
    order(&test, WorkerCommand::Stop).await.unwrap();
    tell(&test, "b", WorkerState::Working).await;
    assert_eq!(
        (health(&test).await, seen(&test).await.active_command),
        (WorkerHealth::Live, None)
    );
    let given = order(&test, WorkerCommand::Quiet).await.unwrap();
    assert_eq!(
        given,
        WorkerCommandResult {
            outcome: CommandOutcome::Given,
            desired_state: Some(DesiredWorkerState::Quiet),
            listens: true
        },
        "the old order is no order"
    );
    // The one that ended late takes away nothing of the one that runs.
    let old = WorkerRun {
        id: "a".to_owned(),
        since: test.backstop.now(),
    };
    heartbeat::withdraw(&test.backstop, &worker(), &old)
        .await
        .unwrap();
    assert_eq!(health(&test).await, WorkerHealth::Quiet);
}

#[tokio::test(start_paused = true)]
async fn orders_at_once_leave_the_greater_one() {
    use backstop_testkit::flaky::{Flaky, Odds};
    // Whoever reads first, both have read before one of them writes.
    for [first, second] in [
        [WorkerCommand::Quiet, WorkerCommand::Stop],
        [WorkerCommand::Stop, WorkerCommand::Quiet],
    ] {
        let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
        let clock = start().clock;
        let test = TestBackstop {
            backstop: Backstop::on(
                Arc::<Flaky>::clone(&store),
                clock.clone(),
                RandomSource::seeded(1),
            ),
            clock,
        };
        beat(&test, &["q"]).await;
        tell(&test, "a", WorkerState::Working).await;
        store.set_odds(Odds {
            delay_after: 1.0,
            delay_max: Duration::from_millis(100),
            ..Odds::default()
        });
        let name = worker();
        let give = async |order| {
            test.backstop
                .command_worker(&name, order, "ada")
                .await
                .unwrap()
                .unwrap()
        };
        tokio::join!(give(first), give(second));
        assert_eq!(
            seen(&test).await.active_command.unwrap().desired_state,
            DesiredWorkerState::Stop,
            "{first} and {second}"
        );
    }
}

#[tokio::test]
async fn a_worker_that_hears_no_orders_is_shown_as_it_is_and_that_is_said() {
    let test = start();
    beat(&test, &["q"]).await;
    let given = order(&test, WorkerCommand::Stop).await.unwrap();
    assert_eq!(
        given,
        WorkerCommandResult {
            outcome: CommandOutcome::Given,
            desired_state: Some(DesiredWorkerState::Stop),
            listens: false
        }
    );
    assert_eq!(health(&test).await, WorkerHealth::Live, "it works on");
    assert!(seen(&test).await.takes_jobs(test.backstop.now()));
    assert_eq!(
        seen(&test).await.active_command.unwrap().desired_state,
        DesiredWorkerState::Stop,
        "and what it was asked for is shown"
    );
    test.clock.advance(Span::secs(1));
    tell(&test, "a", WorkerState::Working).await;
    assert_eq!(
        health(&test).await,
        WorkerHealth::Live,
        "the order was for the run before"
    );
}

#[tokio::test]
async fn a_worker_is_shown_as_its_beats_and_its_card_say() {
    let test = start();
    beat(&test, &["q"]).await;
    assert_eq!(
        health(&test).await,
        WorkerHealth::Live,
        "a worker elsewhere has no card"
    );
    beat(&test, &[]).await;
    assert_eq!(
        health(&test).await,
        WorkerHealth::Stopped,
        "it said goodbye"
    );
    tell(&test, "a", WorkerState::Working).await;
    assert_eq!(health(&test).await, WorkerHealth::Live, "it keeps house");
    assert_eq!(
        seen(&test).await.taken,
        0,
        "a card may be older than what the store knows"
    );
    tell(&test, "a", WorkerState::Stopping).await;
    assert_eq!(health(&test).await, WorkerHealth::Stopping, "by a signal");
    test.clock.advance(Span::secs(31));
    assert_eq!(health(&test).await, WorkerHealth::Stopped);
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
    assert!(!WorkerHeartbeat::is_over(
        &card("cards/gone", fresh),
        &living,
        now
    ));
    assert!(!WorkerHeartbeat::is_over(
        &card("cards/alive", old),
        &living,
        now
    ));
    assert!(WorkerHeartbeat::is_over(
        &card("cards/gone", old),
        &living,
        now
    ));
    let standing = ActiveCommand {
        desired_state: DesiredWorkerState::Quiet,
        at: now,
        by: String::new(),
        run: None,
    };
    let order = |standing| serde_json::to_vec(&heartbeat::CommandCell(standing)).unwrap();
    assert!(!heartbeat::CommandCell::is_over(
        &cell("orders/alive", order(Some(standing.clone()))),
        &living
    ));
    assert!(heartbeat::CommandCell::is_over(
        &cell("orders/gone", order(Some(standing))),
        &living
    ));
    assert!(
        heartbeat::CommandCell::is_over(&cell("orders/alive", order(None)), &living),
        "nothing stands"
    );
}

#[tokio::test]
async fn a_worker_that_missed_two_heartbeats_is_not_shown_as_live() {
    let test = start();
    beat(&test, &["q"]).await;
    let run = WorkerRun {
        id: "a".to_owned(),
        since: test.backstop.now(),
    };
    let card = WorkerHeartbeat::of_local_worker(
        WorkerDescription::default(),
        run,
        2,
        WorkerState::Working,
    )
    .beating_every(Span::secs(5));
    heartbeat::write_heartbeat(&test.backstop, &worker(), &card)
        .await
        .unwrap();
    test.clock.advance(Span::secs(11));
    assert_eq!(health(&test).await, WorkerHealth::Live);
    test.clock.advance(Span::secs(1));
    assert_eq!(
        health(&test).await,
        WorkerHealth::Stopped,
        "it holds nothing"
    );
    let slow = card.beating_every(Span::secs(20));
    heartbeat::write_heartbeat(&test.backstop, &worker(), &slow)
        .await
        .unwrap();
    test.clock.advance(Span::secs(29));
    assert_eq!(
        health(&test).await,
        WorkerHealth::Live,
        "its lease is longer, and it beats less often"
    );
}
