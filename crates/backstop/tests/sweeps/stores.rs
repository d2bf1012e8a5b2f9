//! What sweeps promise, on every store.

use crate::world::{START, World, jobs, requeue};
use backstop::core::JobState;
use backstop::core::lease::{LeaseNumber, WorkerName};
use backstop::core::plan::QueueQuota;
use backstop::core::port::{Claim, JobStore};
use backstop::core::verdict::EndReason;
use backstop::{QueueName, QueueSettings, RetryPolicy, Run, RunError, Span};
use backstop_testkit::flaky::Fault;
use serde_json::{Value, json};

/// Tests of these rules, on every store.
macro_rules! on_every_store {
    ($($rule:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)] async fn $rule() {
                super::$rule(&crate::world::World::in_memory()).await;
            })+
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")] async fn $rule() {
                let folder = tempfile::tempdir().expect("a folder");
                let address = format!("sqlite:{}", folder.path().join("b.db").display());
                super::$rule(&crate::world::World::at(&address).await).await;
            })+
        }
        on_every_store!(postgres "postgres": $($rule),+);
        on_every_store!(redis "redis": $($rule),+);
    };
    ($server:ident $feature:literal: $($rule:ident),+) => {
        #[cfg(feature = $feature)]
        mod $server {
            $(#[tokio::test(flavor = "multi_thread")] async fn $rule() {
                let address = backstop_testkit::servers::$server().fresh_url();
                super::$rule(&crate::world::World::at(&address).await).await;
            })+
        }
    };
}

on_every_store!(
    an_enqueue_that_failed_after_its_row_was_committed_is_made_up_for_once,
    a_slow_queue_of_1000_stays_1000_through_three_sweeps,
    a_job_that_fails_for_a_day_has_one_copy_and_ends_dead,
    a_row_whose_jobs_end_in_vain_becomes_a_dead_letter,
    one_run_recovers_no_more_than_it_may_and_the_next_goes_on_behind_what_is_alive,
);

async fn an_enqueue_that_failed_after_its_row_was_committed_is_made_up_for_once(world: &World) {
    world.table.write(7, world.backstop.now());
    world.store.set_down(true);
    let push = world
        .backstop
        .draft("q")
        .unique_key("row:7")
        .json(&7)
        .push();
    let pushed = tokio::time::timeout(std::time::Duration::from_millis(200), push).await;
    assert!(
        !matches!(pushed, Ok(Ok(_))) && world.store.injected(Fault::Down) > 0,
        "the enqueue is lost"
    );
    world.store.set_down(false);
    world.clock.advance(Span::minutes(59));
    assert_eq!(world.run().await.found, [] as [Value; 0], "not old enough");
    world.clock.advance(Span::minutes(1));
    assert_eq!(world.run().await.enqueued, [json!(7)]);
    let again = world.run().await;
    assert_eq!((again.alive, again.enqueued), (vec![json!(7)], vec![]));
    let ready = world.jobs(JobState::Ready).await;
    assert_eq!(ready.len(), 1);
    assert_eq!(
        (ready[0].kind.as_str(), ready[0].payload.as_bytes()),
        ("process", b"7".as_slice())
    );
    assert_eq!(
        ready[0].unique_key.as_ref().expect("a key").as_str(),
        "row:7"
    );
}

async fn a_slow_queue_of_1000_stays_1000_through_three_sweeps(world: &World) {
    let push = async |ids: std::ops::Range<u64>| {
        for id in ids {
            world.table.write(id, START);
            world.push(id).await;
        }
    };
    // A quarter waits for its retry, a quarter runs, and the rest has not had its turn.
    push(0..250).await;
    let later = RetryPolicy::from_json(br#"{"kind":"constant","every":"12h","max_attempts":9}"#);
    let settings = QueueSettings {
        retry: later.expect("a policy"),
        ..QueueSettings::default()
    };
    let failing = |_: Run| async { Err::<(), RunError>(RunError::retry("not now")) };
    world
        .backstop
        .worker()
        .handle_raw("q", failing)
        .queue("q", settings)
        .drain()
        .await
        .expect("drained");
    push(250..500).await;
    let wants = vec![QueueQuota {
        queue: QueueName::new("q").expect("a queue"),
        max: 250,
    }];
    let claim = Claim {
        number: LeaseNumber::draw(7),
        worker: WorkerName::new("slow"),
        until: START.after(Span::hours(6)),
        wants,
    };
    assert_eq!(
        world
            .store
            .claim(claim, START)
            .await
            .expect("claimed")
            .runs
            .len(),
        250
    );
    push(500..1_000).await;
    // The queue is 70 minutes behind.
    world.clock.advance(Span::minutes(70));
    for sweep in 1..=3 {
        let report = world.run().await;
        assert_eq!(
            (report.found.len(), report.alive.len()),
            (1_000, 1_000),
            "sweep {sweep}"
        );
        assert_eq!((report.would_enqueue.len(), report.dead.len()), (0, 0));
        for (state, count) in [
            (JobState::Retrying, 250),
            (JobState::Running, 250),
            (JobState::Ready, 500),
        ] {
            assert_eq!(
                world.jobs(state).await.len(),
                count,
                "{state}, sweep {sweep}"
            );
        }
        assert_eq!(jobs(&world.backstop, None).await.len(), 1_000);
        world.clock.advance(Span::minutes(30));
    }
}

async fn a_job_that_fails_for_a_day_has_one_copy_and_ends_dead(world: &World) {
    world.table.write(1, START);
    // Longer than the threshold and the period together, as in the system this comes from: 9 tries
    // in about 2 h 40 min.
    let retry = br#"{"kind":"constant","every":"20m","max_attempts":9}"#;
    let retry = RetryPolicy::from_json(retry).expect("a policy");
    let settings = QueueSettings {
        retry,
        ..QueueSettings::default()
    };
    let mut enqueued = 0;
    for minute in (5..=24 * 60).step_by(5) {
        world.clock.advance(Span::minutes(5));
        if minute % 30 == 0 {
            enqueued += world.run().await.enqueued.len();
        }
        let failing = |_: Run| async { Err::<(), RunError>(RunError::retry("for ever")) };
        let worker = world
            .backstop
            .worker()
            .handle_raw("q", failing)
            .queue("q", settings.clone());
        worker.drain().await.expect("drained");
        let all = jobs(&world.backstop, None).await;
        assert!(all.len() <= 1, "minute {minute}: {all:?}");
    }
    let dead = world.jobs(JobState::Dead).await;
    assert_eq!(
        (dead.len(), dead[0].attempt, enqueued),
        (1, 9, 1),
        "never again"
    );
    let report = world.run().await;
    assert_eq!(
        (report.dead, report.would_enqueue),
        (vec![json!(1)], vec![])
    );
    let runs = world
        .backstop
        .sweeper(&world.sweep())
        .history()
        .await
        .expect("the history");
    assert!(
        runs[..30]
            .iter()
            .all(|run| run.dead == 1 && run.error.is_none()),
        "{:?}",
        runs[0]
    );
}

async fn a_row_whose_jobs_end_in_vain_becomes_a_dead_letter(world: &World) {
    world.table.write(1, START);
    world.clock.advance(Span::hours(1));
    for recovery in 1..=3 {
        assert_eq!(
            world.run().await.enqueued,
            [json!(1)],
            "recovery {recovery}"
        );
        world.work().await;
        world.clock.advance(Span::minutes(30));
    }
    let planned = world
        .backstop
        .sweeper(&world.sweep())
        .dry_run(world.backstop.now())
        .await
        .expect("a plan");
    assert_eq!(
        (planned.dead, planned.would_enqueue, planned.buried),
        (vec![json!(1)], vec![], vec![])
    );
    let given_up = world.run().await;
    assert_eq!(
        (given_up.buried, given_up.enqueued),
        (vec![json!(1)], vec![])
    );
    let dead = world.jobs(JobState::Dead).await;
    assert_eq!(
        (dead.len(), dead[0].reason),
        (1, Some(EndReason::AttemptsExhausted))
    );
    let failure = dead[0].history.failures().remove(0);
    assert_eq!(failure.error.error_type.as_deref(), Some("SweptInVain"));
    assert!(
        failure
            .error
            .message
            .contains("sweep lost recovered row 1 3 times"),
        "{}",
        failure.error.message
    );
    let after = world.run().await;
    assert_eq!(
        (after.dead, after.buried),
        (vec![json!(1)], vec![]),
        "one letter, and no more"
    );
    // A person requeues it, and it is in vain once more: it is counted anew.
    requeue(world, dead[0].id).await;
    assert_eq!(world.run().await.alive, [json!(1)]);
    world.work().await;
    for _ in 0..3 {
        assert_eq!(world.run().await.enqueued, [json!(1)]);
        world.work().await;
    }
    assert_eq!(world.run().await.buried, [json!(1)]);
    assert_eq!(world.jobs(JobState::Dead).await.len(), 1);
}

async fn one_run_recovers_no_more_than_it_may_and_the_next_goes_on_behind_what_is_alive(
    world: &World,
) {
    for id in 0..25 {
        world.table.write(id, START);
    }
    world.clock.advance(Span::hours(1));
    let sweep = world.sweep().max_per_run(10).expect("in range");
    let report = world.backstop.sweeper(&sweep).run().await.expect("it runs");
    assert_eq!((report.enqueued.len(), report.is_cut), (10, true));
    let report = world.backstop.sweeper(&sweep).run().await.expect("it runs");
    assert_eq!(
        report.enqueued,
        (10..20).map(|id| json!(id)).collect::<Vec<_>>()
    );
    assert_eq!(report.alive.len(), 10);
    let report = world.backstop.sweeper(&sweep).run().await.expect("it runs");
    assert_eq!((report.enqueued.len(), report.is_cut), (5, false));
}
