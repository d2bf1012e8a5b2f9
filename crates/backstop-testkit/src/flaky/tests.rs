use super::*;
use crate::given::{START, Scene, job};
use backstop_core::amend::{AmendAction, Filter, Selection};
use backstop_core::port::{
    AmendJobsRequest, BeatRequest, Claim, JobStore, ListJobsRequest, OperatorStore, PruneRequest,
    QueueState, Retention, SeizeRequest,
};
use backstop_core::{JobId, LeaseNumber, Span, WorkerName};
use backstop_memory::MemoryStore;
use std::time::Instant;

const METHODS: [&str; 18] = [
    "enqueue",
    "claim",
    "begin",
    "settle",
    "beat",
    "promote",
    "seize",
    "job",
    "find",
    "jobs",
    "amend",
    "queues",
    "set_queue_state",
    "workers",
    "prune",
    "migrate",
    "time",
    "examine",
];

fn flaky(seed: u64, odds: Odds) -> Flaky {
    Flaky::with_odds(Arc::new(MemoryStore::new()), seed, odds)
}

/// One harmless call of this method; whether it succeeded.
async fn call(store: &Flaky, method: &str) -> bool {
    let (now, until) = (START, START.after(Span::secs(30)));
    let (number, worker) = (LeaseNumber::draw(1), WorkerName::new("w"));
    let all = AmendJobsRequest {
        selection: Selection::All,
        action: AmendAction::Retry,
        only: None,
        cursor: None,
        max: 1,
    };
    let usual = PruneRequest {
        default: Some(Retention::default()),
        queues: Vec::new(),
        max: 1,
    };
    let beat = BeatRequest {
        worker: worker.clone(),
        queues: Vec::new(),
        leases: Vec::new(),
        until,
    };
    let query = ListJobsRequest {
        filter: Filter::default(),
        cursor: None,
        limit: 1,
        ..ListJobsRequest::default()
    };
    match method {
        "enqueue" => store.enqueue(Vec::new(), now).await.is_ok(),
        "claim" => store
            .claim(
                Claim {
                    number,
                    worker,
                    until,
                    wants: Vec::new(),
                },
                now,
            )
            .await
            .is_ok(),
        "begin" => store.begin(Vec::new(), now).await.is_ok(),
        "settle" => store.settle(Vec::new(), now).await.is_ok(),
        "beat" => store.beat(beat, now).await.is_ok(),
        "promote" => store.promote(1, now).await.is_ok(),
        "seize" => store
            .seize(
                SeizeRequest {
                    number,
                    worker,
                    until,
                    max: 1,
                    spared: Vec::new(),
                },
                now,
            )
            .await
            .is_ok(),
        "job" => store.job(JobId::named("a"), now).await.is_ok(),
        "find" => store
            .find(crate::given::queue("q"), Vec::new(), now)
            .await
            .is_ok(),
        "jobs" => store.jobs(query, now).await.is_ok(),
        "amend" => store.amend(all, now).await.is_ok(),
        "queues" => store.queues(now).await.is_ok(),
        "set_queue_state" => store
            .set_queue_state(crate::given::queue("q"), QueueState::Active, now)
            .await
            .is_ok(),
        "workers" => store.workers(Span::secs(1), now).await.is_ok(),
        "prune" => store.prune(usual, now).await.is_ok(),
        "migrate" => store.migrate().await.is_ok(),
        "time" => store.time().await.is_ok(),
        _ => store.examine().await.is_ok(),
    }
}

async fn answers(store: &Flaky, rounds: usize) -> Vec<bool> {
    let mut answers = Vec::new();
    for _ in 0..rounds {
        for method in METHODS {
            answers.push(call(store, method).await);
        }
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn every_fault_comes_to_every_method() {
    let store = flaky(1, Odds::even(0.3, Duration::from_hours(1)));
    answers(&store, 200).await;
    for method in METHODS {
        for fault in [
            Fault::Refused,
            Fault::LostReply,
            Fault::DelayBefore,
            Fault::DelayAfter,
        ] {
            assert!(
                store.injected_into(method, fault) > 0,
                "{fault:?} never came to {method}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_seed_repeats_itself_and_another_does_not() {
    let odds = Odds::even(0.3, Duration::from_mins(1));
    let (first, again, other) = (flaky(7, odds), flaky(7, odds), flaky(8, odds));
    let began = Instant::now();
    let expected = answers(&first, 20).await;
    assert_eq!(answers(&again, 20).await, expected);
    assert_ne!(answers(&other, 20).await, expected);
    for fault in Fault::ALL {
        assert_eq!(first.injected(fault), again.injected(fault));
    }
    // Hours of delays: if any of them were real, this would still be running.
    assert!(first.injected(Fault::DelayBefore) > 10 && began.elapsed() < Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn turning_faults_off_does_not_change_those_that_follow() {
    let odds = Odds {
        refused: 0.5,
        ..Odds::default()
    };
    let (steady, interrupted) = (flaky(3, odds), flaky(3, odds));
    let expected = answers(&steady, 3).await;
    interrupted.set_faults(false);
    assert!(answers(&interrupted, 1).await.into_iter().all(|ok| ok));
    interrupted.set_faults(true);
    assert_eq!(answers(&interrupted, 2).await, expected[METHODS.len()..]);
}

#[tokio::test]
async fn a_lost_reply_is_applied_and_a_refusal_is_not() {
    let store = Arc::new(Flaky::new(Arc::new(MemoryStore::new()), 1));
    let scene = Scene::new(Arc::clone(&store) as Arc<dyn Store>);
    store.next_call(Fault::Refused);
    store.next_call(Fault::LostReply);
    for name in ["refused", "lost"] {
        let failed = store.enqueue(vec![job("q", name).into()], scene.now).await;
        assert!(
            matches!(failed, Err(StoreError::Unavailable { .. })),
            "{name}: {failed:?}"
        );
    }
    assert!(scene.find("refused").await.is_none());
    assert!(scene.find("lost").await.is_some());
    assert_eq!(
        (
            store.injected(Fault::Refused),
            store.injected(Fault::LostReply)
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn a_store_that_is_down_answers_nothing_and_gives_no_hints() {
    let store = Flaky::new(Arc::new(MemoryStore::new()), 1);
    let mut hints = store.watch();
    store.set_down(true);
    assert!(answers(&store, 1).await.into_iter().all(|ok| !ok));
    assert_eq!(store.injected(Fault::Down), METHODS.len() as u64);
    // What happens behind its back while it is down does not show.
    store
        .inner
        .enqueue(vec![job("q", "a").into()], START)
        .await
        .expect("memory takes it");
    assert!(futures_util::FutureExt::now_or_never(hints.next()).is_none());
    assert_eq!(store.injected(Fault::LostHint), 1);
    store.set_down(false);
    store
        .enqueue(vec![job("q", "b").into()], START)
        .await
        .expect("it is up again");
    assert!(futures_util::FutureExt::now_or_never(hints.next()).is_some());
}
