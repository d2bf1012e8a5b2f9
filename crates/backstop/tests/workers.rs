//! Workers that are asked for something by their operator, on a store in memory and on virtual
//! time.

use backstop::core::port::CellSwap;
use backstop::core::worker_command::{CommandOutcome, WorkerCommand};
use backstop::core::{JobState, WorkerName};
use backstop::testing::VirtualClock;
use backstop::workers::{LISTED, WorkerHealth, WorkerInfo};
use backstop::{
    Backstop, JobId, QueueSettings, RandomSource, Run, ServicePlacement, Span, Task, WorkerBuilder,
    WorkerTiming,
};
use backstop_memory::MemoryStore;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Serialize, Deserialize)]
struct Mail;

impl Task for Mail {
    const KIND: &'static str = "mail";
    const QUEUE: &'static str = "q";
}

fn backstop() -> Backstop {
    Backstop::on(
        Arc::new(MemoryStore::new()),
        Arc::new(VirtualClock::start()),
        RandomSource::seeded(7),
    )
}

fn worker(backstop: &Backstop) -> WorkerBuilder {
    let settings = QueueSettings {
        concurrency: 2,
        ..QueueSettings::default()
    };
    backstop
        .worker()
        .name("w")
        .services(ServicePlacement::CallersRuntime)
        .queue("q", settings)
}

async fn order(backstop: &Backstop, order: WorkerCommand) -> CommandOutcome {
    backstop
        .changes("ada")
        .command_worker(&WorkerName::new("w"), order)
        .await
        .expect("an answer")
        .expect("a worker")
        .outcome
}

async fn seen(backstop: &Backstop) -> WorkerInfo {
    backstop.workers(LISTED).await.expect("workers").remove(0)
}

async fn becomes(backstop: &Backstop, health: WorkerHealth) {
    for _ in 0..1_000 {
        let workers = backstop.workers(LISTED).await.expect("workers");
        if workers
            .first()
            .is_some_and(|worker| worker.health(backstop.now()) == health)
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unreachable!("never {health:?}: {:?}", seen(backstop).await);
}

async fn state(backstop: &Backstop, id: JobId) -> JobState {
    backstop
        .job(id)
        .await
        .expect("an answer")
        .expect("the job")
        .state
}

async fn state_becomes(backstop: &Backstop, id: JobId, wanted: JobState) {
    for _ in 0..1_000 {
        if state(backstop, id).await == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unreachable!("never {wanted}");
}

async fn push(backstop: &Backstop, id: &str) -> JobId {
    backstop.draft("q").id(id).push().await.expect("pushed").id
}

/// Longer than an order takes to be heard.
async fn a_while() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_says_who_it_is_and_takes_that_back_when_it_stops() {
    let backstop = backstop();
    let running = worker(&backstop)
        .handle(|_: Mail, _: Run| async { Ok(()) })
        .start()
        .unwrap();
    becomes(&backstop, WorkerHealth::Live).await;
    a_while().await;
    let seen = seen(&backstop).await;
    assert_eq!(seen.about.pid, Some(std::process::id()));
    assert_eq!(
        seen.about.version.as_deref(),
        Some(env!("CARGO_PKG_VERSION"))
    );
    assert_eq!((seen.about.places, seen.taken), (Some(2), 0));
    assert!(seen.about.host.is_some_and(|host| !host.is_empty()));
    assert!(
        seen.about
            .since
            .is_some_and(|since| backstop.now().since(since) < Span::minutes(1))
    );
    assert_eq!(seen.about.memory.is_some(), cfg!(target_os = "linux"));
    assert_eq!(seen.kinds.len(), 1);
    running.stop();
    running.stopped().await;
    let workers = backstop.workers(LISTED).await.unwrap();
    assert_eq!(workers[0].health(backstop.now()), WorkerHealth::Stopped);
    assert_eq!(
        workers[0].about,
        backstop::workers::WorkerDescription::default()
    );
}

#[tokio::test(start_paused = true)]
async fn a_quiet_worker_ends_what_it_runs_takes_nothing_new_and_goes_on_when_told() {
    let backstop = backstop();
    let (go, began) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (go, began) = (Arc::clone(&go), Arc::clone(&began));
        move |run: Run| {
            let (go, began) = (Arc::clone(&go), Arc::clone(&began));
            async move {
                if run.id() == JobId::named("first") {
                    began.notify_one();
                    go.notified().await;
                }
                Ok(())
            }
        }
    };
    let first = push(&backstop, "first").await;
    let running = worker(&backstop).handle_raw("q", handler).start().unwrap();
    began.notified().await;
    assert_eq!(
        order(&backstop, WorkerCommand::Quiet).await,
        CommandOutcome::Given
    );
    a_while().await;
    assert_eq!(
        seen(&backstop).await.health(backstop.now()),
        WorkerHealth::Quiet
    );
    let second = push(&backstop, "second").await;
    a_while().await;
    assert_eq!(
        (
            state(&backstop, first).await,
            state(&backstop, second).await
        ),
        (JobState::Running, JobState::Ready)
    );
    let explained = backstop.why(second, |_| None).await.unwrap();
    assert_eq!(explained.explanation.gate(), "quiet");
    go.notify_one();
    state_becomes(&backstop, first, JobState::Done).await;
    assert_eq!(state(&backstop, second).await, JobState::Ready);
    assert_eq!(
        order(&backstop, WorkerCommand::Resume).await,
        CommandOutcome::Given
    );
    state_becomes(&backstop, second, JobState::Done).await;
    running.stop();
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_had_claimed_ahead_goes_back_when_it_is_quieted() {
    let backstop = backstop();
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(push(&backstop, &n.to_string()).await);
    }
    // A poll that long shares nothing by itself.
    let timing = WorkerTiming {
        poll: Span::hours(1),
        ..WorkerTiming::default()
    };
    let forever = |run: Run| async move {
        run.cancelled().await;
        Ok(())
    };
    let running = worker(&backstop)
        .timing(timing)
        .handle_raw("q", forever)
        .start()
        .unwrap();
    state_becomes(&backstop, ids[3], JobState::Running).await;
    order(&backstop, WorkerCommand::Quiet).await;
    state_becomes(&backstop, ids[3], JobState::Ready).await;
    state_becomes(&backstop, ids[2], JobState::Ready).await;
    let held = backstop.job(ids[0]).await.unwrap().unwrap();
    assert_eq!(held.state, JobState::Running, "what has begun may end");
    let back = backstop.job(ids[3]).await.unwrap().unwrap();
    assert_eq!((back.attempt, back.lost_leases), (0, 0), "not charged");
    running.force();
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_asked_to_stop_ends_what_it_runs_and_then_itself() {
    let backstop = backstop();
    let id = push(&backstop, "a").await;
    let slowly = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok(())
    };
    let running = worker(&backstop).handle_raw("q", slowly).start().unwrap();
    state_becomes(&backstop, id, JobState::Running).await;
    assert_eq!(
        order(&backstop, WorkerCommand::Stop).await,
        CommandOutcome::Given
    );
    becomes(&backstop, WorkerHealth::Stopping).await;
    a_while().await;
    assert_eq!(
        order(&backstop, WorkerCommand::Resume).await,
        CommandOutcome::TooLate
    );
    assert!(running.was_stopped_by_operator());
    running.stopped().await;
    assert_eq!(state(&backstop, id).await, JobState::Done);
    // A new one under the same name works.
    let second = push(&backstop, "b").await;
    let running = worker(&backstop)
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .unwrap();
    state_becomes(&backstop, second, JobState::Done).await;
    running.stop();
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_started_again_under_its_name_is_not_stopped_by_an_order_of_before() {
    let backstop = backstop();
    let first = worker(&backstop)
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .unwrap();
    becomes(&backstop, WorkerHealth::Live).await;
    a_while().await;
    order(&backstop, WorkerCommand::Stop).await;
    let order = backstop
        .store()
        .cells(vec!["orders/w".to_owned()])
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    first.stopped().await;
    // As one leaves it that was killed before it could hear of it.
    let left = CellSwap {
        name: order.name,
        seen: None,
        version: 1,
        value: Some(order.value),
    };
    backstop.store().swap(vec![left]).await.unwrap();
    let again = worker(&backstop)
        .handle_raw("q", |_: Run| async { Ok(()) })
        .start()
        .unwrap();
    let id = push(&backstop, "a").await;
    state_becomes(&backstop, id, JobState::Done).await;
    a_while().await;
    assert!(!again.was_stopped_by_operator());
    again.stop();
    again.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn who_stops_by_itself_is_seen_to_stop_and_was_not_asked() {
    let backstop = backstop();
    let id = push(&backstop, "a").await;
    let slowly = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(())
    };
    let running = worker(&backstop).handle_raw("q", slowly).start().unwrap();
    state_becomes(&backstop, id, JobState::Running).await;
    running.stop();
    becomes(&backstop, WorkerHealth::Stopping).await;
    assert!(!running.was_stopped_by_operator());
    running.stopped().await;
}
