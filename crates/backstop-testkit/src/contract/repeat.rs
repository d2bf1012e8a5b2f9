//! Every method may be repeated after it was applied and its answer was lost: it leaves the store
//! as one call would have.

use crate::flaky::{Fault, Flaky};
use crate::given::{DONE, LEASE, START, WORKER, at, dead, id, job, queue, retry_at};
use crate::model::{Operation, Reply, Visible};
use backstop_core::amend::{AmendAction, AmendRefusal, Selection};
use backstop_core::plan::QueueQuota;
use backstop_core::port::{
    AmendJobsRequest, BeatRequest, Claim, EnqueueOutcome, PruneRequest, QueueState, Retention,
    SeizeRequest, SettleOutcome, Store, StoreError,
};
use backstop_core::verdict::{DoneRetention, Settlement};
use backstop_core::{Lease, LeaseNumber, Outcome, Span, Time, WorkerName};
use backstop_memory::MemoryStore;
use std::sync::Arc;

/// Runs these operations, each at its time. The answer of the last one is lost, and it is repeated.
/// Then it answers with `expected`, and the store agrees with a memory store that ran it once.
async fn check(store: Arc<dyn Store>, operations: Vec<(Time, Operation)>, expected: Reply) {
    check_one_of(store, operations, &[expected]).await;
}

async fn check_one_of(
    store: Arc<dyn Store>,
    operations: Vec<(Time, Operation)>,
    expected: &[Reply],
) {
    let (once, flaky) = (MemoryStore::new(), Flaky::new(store, 0));
    let ((now, operation), before) = operations
        .split_last()
        .expect("there is an operation to repeat");
    for (now, operation) in before {
        let reply = operation
            .run(&once, *now)
            .await
            .expect("memory does not fail");
        assert_eq!(
            operation.run(&flaky, *now).await,
            Ok(reply),
            "{operation:?}"
        );
    }
    operation
        .run(&once, *now)
        .await
        .expect("memory does not fail");
    flaky.next_call(Fault::LostReply);
    let lost = operation.run(&flaky, *now).await;
    assert!(
        matches!(lost, Err(StoreError::Unavailable { .. })),
        "{lost:?}"
    );
    assert_eq!(flaky.injected(Fault::LostReply), 1);
    let again = operation
        .run(&flaky, *now)
        .await
        .expect("the store answers");
    assert!(
        expected.contains(&again),
        "{operation:?}: {again:?} instead of {expected:?}"
    );
    let wanted = Visible::read(&once, 100, *now)
        .await
        .expect("memory does not fail");
    let shown = Visible::read(&flaky, 100, *now)
        .await
        .expect("the store shows itself");
    assert_eq!(wanted.difference(&shown), None);
}

fn enqueue(names: &[&str]) -> (Time, Operation) {
    (
        START,
        Operation::Enqueue(names.iter().map(|name| job("q", name).into()).collect()),
    )
}

fn claim(max: usize) -> (Time, Operation) {
    let wants = vec![QueueQuota {
        queue: queue("q"),
        max,
    }];
    let worker = WorkerName::new(WORKER);
    (
        START,
        Operation::Claim(Claim {
            number: LeaseNumber::draw(1),
            worker,
            until: START.after(LEASE),
            wants,
        }),
    )
}

fn lease(name: &str) -> Lease {
    Lease {
        queue: queue("q"),
        job: id(name),
        number: LeaseNumber::draw(1),
    }
}

fn settle(outcomes: &[(&str, Outcome)]) -> (Time, Operation) {
    let settlements = outcomes.iter().map(|(name, outcome)| Settlement {
        lease: lease(name),
        outcome: outcome.clone(),
    });
    (at(1), Operation::Settle(settlements.collect()))
}

fn amend(names: &[&str], action: AmendAction) -> (Time, Operation) {
    let selection = Selection::Ids(names.iter().map(|name| id(name)).collect());
    (
        at(2),
        Operation::Amend(AmendJobsRequest {
            selection,
            action,
            only: None,
            cursor: None,
            max: 100,
        }),
    )
}

/// The jobs are enqueued once, with their unique keys.
pub async fn a_lost_enqueue_can_be_repeated(store: Arc<dyn Store>) {
    let jobs = vec![
        job("q", "a").into(),
        job("q", "b").unique("k").into(),
        job("q", "c").unique("k").into(),
        job("q", "d").at(at(60)).into(),
    ];
    let expected = vec![
        EnqueueOutcome::Same,
        EnqueueOutcome::Same,
        EnqueueOutcome::Duplicate(id("b")),
        EnqueueOutcome::Same,
    ];
    check(
        store,
        vec![(START, Operation::Enqueue(jobs))],
        Reply::Enqueued(expected),
    )
    .await;
}

/// The worker gets the jobs it already holds, and no others.
pub async fn a_lost_claim_can_be_repeated(store: Arc<dyn Store>) {
    let memory = MemoryStore::new();
    let operations = vec![enqueue(&["a", "b", "c"]), claim(2)];
    let mut expected = None;
    for (now, operation) in &operations {
        expected = Some(
            operation
                .run(&memory, *now)
                .await
                .expect("memory does not fail"),
        );
    }
    check(store, operations, expected.expect("there are operations")).await;
}

/// Every outcome is counted once.
pub async fn a_lost_settle_can_be_repeated(store: Arc<dyn Store>) {
    let outcomes = [
        ("a", DONE),
        ("b", retry_at(at(1))),
        ("c", retry_at(at(60))),
        ("d", dead()),
        ("e", Outcome::Released { at: at(1) }),
    ];
    let operations = vec![
        enqueue(&["a", "b", "c", "d", "e"]),
        claim(5),
        settle(&outcomes),
    ];
    check(
        store,
        operations,
        Reply::Settled(vec![SettleOutcome::Applied; 5]),
    )
    .await;
}

/// A store may or may not remember the outcome of a job that is gone; it counts the job once.
pub async fn a_lost_settle_of_a_job_that_is_gone_counts_once(store: Arc<dyn Store>) {
    let operations = vec![
        enqueue(&["a"]),
        claim(1),
        settle(&[("a", Outcome::Done(DoneRetention::Gone))]),
    ];
    let answers =
        [SettleOutcome::Applied, SettleOutcome::Stale].map(|answer| Reply::Settled(vec![answer]));
    check_one_of(store, operations, &answers).await;
}

pub async fn a_lost_begin_can_be_repeated(store: Arc<dyn Store>) {
    let leases = vec![lease("a"), lease("nobody")];
    let operations = vec![
        enqueue(&["a", "b"]),
        claim(2),
        (at(1), Operation::Begin(leases)),
    ];
    check(store, operations, Reply::NotBegun(vec![lease("nobody")])).await;
}

/// The claim stays alive after the repetition.
pub async fn a_lost_beat_can_be_repeated(store: Arc<dyn Store>) {
    let leases = vec![lease("a"), lease("nobody")];
    let worker = WorkerName::new(WORKER);
    let beat = BeatRequest {
        worker,
        queues: vec![queue("q")],
        leases,
        until: at(90),
    };
    let operations = vec![
        enqueue(&["a", "b"]),
        claim(2),
        (at(1), Operation::Beat(beat)),
    ];
    check(store, operations, Reply::Lost(vec![lease("nobody")])).await;
}

/// The jobs are already promoted; the repetition only returns when the next one is due.
pub async fn a_lost_promote_can_be_repeated(store: Arc<dyn Store>) {
    let jobs = [5, 3, 60].map(|secs| job("q", &secs.to_string()).at(at(secs)).into());
    let operations = vec![
        (START, Operation::Enqueue(jobs.to_vec())),
        (at(10), Operation::Promote(100)),
    ];
    check(store, operations, Reply::Promoted(0, Some(at(60)))).await;
}

/// The seizer keeps the jobs, and learns whose they were.
pub async fn a_lost_seize_can_be_repeated(store: Arc<dyn Store>) {
    let memory = MemoryStore::new();
    let (number, worker) = (LeaseNumber::draw(2), WorkerName::new("rescuer"));
    let seize = SeizeRequest {
        number,
        worker,
        until: at(90),
        max: 100,
        spared: Vec::new(),
    };
    let operations = vec![
        enqueue(&["a", "b"]),
        claim(2),
        (at(60), Operation::Seize(seize)),
    ];
    let mut expected = None;
    for (now, operation) in &operations {
        expected = Some(
            operation
                .run(&memory, *now)
                .await
                .expect("memory does not fail"),
        );
    }
    check(store, operations, expected.expect("there are operations")).await;
}

pub async fn a_lost_retry_can_be_repeated(store: Arc<dyn Store>) {
    let operations = vec![
        enqueue(&["a"]),
        claim(1),
        settle(&[("a", dead())]),
        amend(&["a"], AmendAction::Retry),
    ];
    check(
        store,
        operations,
        Reply::Amended(0, vec![(id("a"), AmendRefusal::Ready)]),
    )
    .await;
}

pub async fn a_lost_cancel_can_be_repeated(store: Arc<dyn Store>) {
    let operations = vec![
        enqueue(&["a"]),
        claim(1),
        amend(&["a"], AmendAction::Cancel),
    ];
    check(
        store,
        operations,
        Reply::Amended(0, vec![(id("a"), AmendRefusal::Ended)]),
    )
    .await;
}

pub async fn a_lost_delete_can_be_repeated(store: Arc<dyn Store>) {
    let operations = vec![enqueue(&["a", "b"]), amend(&["a"], AmendAction::Delete)];
    check(
        store,
        operations,
        Reply::Amended(0, vec![(id("a"), AmendRefusal::NotFound)]),
    )
    .await;
}

/// A step of an amendment is repeated with its own cursor, and the later steps continue from there.
pub async fn a_lost_step_of_an_amendment_can_be_repeated(store: Arc<dyn Store>) {
    let (selection, action) = (Selection::All, AmendAction::Cancel);
    let step = Operation::Amend(AmendJobsRequest {
        selection,
        action,
        only: None,
        cursor: None,
        max: 2,
    });
    let operations = vec![enqueue(&["a", "b", "c", "d", "e"]), (at(2), step)];
    // The lost step may amend up to two jobs; the repetition and its later steps amend the rest.
    let expected = [3, 4, 5].map(|applied| Reply::Amended(applied, Vec::new()));
    check_one_of(store, operations, &expected).await;
}

pub async fn a_lost_pause_can_be_repeated(store: Arc<dyn Store>) {
    let operations = vec![
        enqueue(&["a"]),
        (at(1), Operation::SetGate(queue("q"), QueueState::Paused)),
    ];
    check(store, operations, Reply::GateSet).await;
}

/// Pruned jobs are gone, and the repetition removes no others.
pub async fn a_lost_prune_can_be_repeated(store: Arc<dyn Store>) {
    let usual = Some(Retention {
        done_for: Span::secs(1),
        done_max: 1,
        ..Retention::default()
    });
    let prune = Operation::Prune(PruneRequest {
        default: usual,
        queues: Vec::new(),
        max: 100,
    });
    let ended = settle(&[("a", DONE), ("b", DONE), ("c", dead())]);
    let operations = vec![enqueue(&["a", "b", "c"]), claim(3), ended, (at(60), prune)];
    check(store, operations, Reply::Pruned([0, 0, 0])).await;
}

/// A migration is killed at any step and run again; the content of the store stays.
pub async fn migrate_can_be_repeated(store: Arc<dyn Store>) {
    let (_, operation) = enqueue(&["a"]);
    operation
        .run(&*store, START)
        .await
        .expect("the store takes a job in");
    let before = Visible::read(&*store, 100, START)
        .await
        .expect("the store shows itself");
    let first = store.migrate().await.expect("the store is as it should be");
    assert_eq!(first.from, first.to, "a fresh store has its shape already");
    assert_eq!(store.migrate().await, Ok(first));
    assert_eq!(Visible::read(&*store, 100, START).await, Ok(before));
}
