//! Sweeps over a table in memory, on a store in memory and on time that is moved by hand.

#[cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[path = "../databases/mod.rs"]
#[expect(dead_code, reason = "rows are counted by other tests")]
mod databases;
mod large;
mod stores;
mod world;

use backstop::core::amend::AmendAction;
use backstop::core::port::{CellSwap, OperatorStore};
use backstop::core::{JobState, QueueBounds, Time};
use backstop::sweeps::{FindError, FindResult, Finder, Sweep, SweepError};
use backstop::testing::VirtualClock;
use backstop::{Backstop, QueueName, RandomSource, Run, RunError, ServicePlacement, Span};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::Fault;
use backstop_testkit::meters::Meters;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use world::{START, Table, World, jobs, requeue};

#[tokio::test(flavor = "multi_thread")]
async fn however_many_sweep_at_once_each_row_gets_one_job() {
    let world = World::in_memory();
    for id in 0..200 {
        world.table.write(id, START);
    }
    world.clock.advance(Span::hours(2));
    // Under names of their own, so that no turn keeps them apart: as if each took the others for
    // dead.
    let runs = (0..8).map(|n| {
        let sweep = Sweep::new(&format!("racer-{n}"), "q", world.table.clone()).expect("a sweep");
        let backstop = world.backstop.clone();
        tokio::spawn(async move {
            backstop
                .sweeper(&sweep)
                .run()
                .await
                .expect("it runs")
                .enqueued
                .len()
        })
    });
    let enqueued: Vec<usize> = futures_util::future::join_all(runs)
        .await
        .into_iter()
        .map(|run| run.expect("no panic"))
        .collect();
    assert_eq!(enqueued.iter().sum::<usize>(), 200, "{enqueued:?}");
    assert_eq!(world.jobs(JobState::Ready).await.len(), 200);
}

#[tokio::test]
async fn recoveries_are_forgotten_when_the_row_is_processed() {
    let world = World::in_memory();
    world.table.write(1, START);
    world.clock.advance(Span::hours(1));
    world.run().await;
    assert_eq!(recovered(&world).await, 1);
    world.table.process(1);
    world.run().await;
    assert_eq!(recovered(&world).await, 1, "its job is on its way");
    world.work().await;
    world.run().await;
    assert_eq!(recovered(&world).await, 0);
}

async fn recovered(world: &World) -> usize {
    use backstop::core::port::{CellStore, ListCellsRequest};
    let query = ListCellsRequest {
        prefix: "sweeps/lost/recovered/".to_owned(),
        after: None,
        limit: 100,
    };
    world.store.list_cells(query).await.expect("listed").len()
}

#[tokio::test]
async fn a_row_that_is_processed_while_the_sweep_looks_gets_no_job() {
    let world = World::in_memory();
    world.table.write(1, START);
    world.table.write(2, START);
    world.clock.advance(Span::hours(1));
    // Its job ends between the search and the question who holds its key.
    *world.table.quick.lock().expect("one") = Some(1);
    let report = world.run().await;
    assert_eq!(
        (report.found, report.enqueued),
        (vec![json!(2)], vec![json!(2)])
    );
}

#[tokio::test]
async fn a_dead_job_is_not_recovered_until_it_is_requeued() {
    let world = World::in_memory();
    world.table.write(1, START);
    world.push(1).await;
    let reject = |_: Run| async { Err::<(), RunError>(RunError::dead("no such user")) };
    world
        .backstop
        .worker()
        .handle_raw("q", reject)
        .drain()
        .await
        .expect("drained");
    world.clock.advance(Span::days(2));
    let report = world.run().await;
    assert_eq!(
        (report.dead, report.would_enqueue),
        (vec![json!(1)], vec![])
    );
    requeue(&world, world.jobs(JobState::Dead).await[0].id).await;
    assert_eq!(world.run().await.alive, [json!(1)]);
}

#[tokio::test]
async fn a_job_that_is_cancelled_does_not_settle_its_row() {
    let world = World::in_memory();
    world.table.write(1, START);
    world.push(1).await;
    world.clock.advance(Span::hours(1));
    for recovery in 1..=3 {
        world.amend(AmendAction::Cancel, JobState::Ready).await;
        assert_eq!(
            world.run().await.enqueued,
            [json!(1)],
            "recovery {recovery}"
        );
    }
    world.amend(AmendAction::Cancel, JobState::Ready).await;
    assert_eq!(
        world.run().await.buried,
        [json!(1)],
        "no more often than any other"
    );
    assert_eq!(world.run().await.dead, [json!(1)]);
    // Whoever means the work not to be done marks the row.
    world.table.process(1);
    assert_eq!(world.run().await.found, [] as [Value; 0]);
}

#[tokio::test]
async fn a_key_that_outlasts_its_job_keeps_the_row_from_being_done_twice() {
    let world = World::in_memory();
    world.table.write(1, START);
    let draft = world
        .backstop
        .draft("q")
        .kind("process")
        .unique_key("row:1")
        .unique_in(&JobState::ALL);
    draft.push().await.expect("pushed");
    world.work().await;
    world.clock.advance(Span::hours(1));
    let report = world.run().await;
    assert_eq!(
        (report.spent, report.enqueued, report.alive),
        (vec![json!(1)], vec![], vec![])
    );
    let runs = world
        .backstop
        .sweeper(&world.sweep())
        .history()
        .await
        .expect("the history");
    assert_eq!((runs[0].spent, runs[0].refused), (1, 0));
}

/// Looks for work by doing something stupid.
struct Stupid;

#[async_trait::async_trait]
impl Finder for Stupid {
    async fn find(&self, _: Time, _: usize) -> Result<FindResult, FindError> {
        unreachable!("an odd row")
    }
}

#[tokio::test]
async fn a_finder_that_panics_is_a_failed_run_and_nothing_else() {
    let world = World::in_memory();
    let sweep = Sweep::new("stupid", "q", Stupid).expect("a sweep");
    let error = world
        .backstop
        .sweeper(&sweep)
        .run()
        .await
        .expect_err("it fails");
    assert!(error.to_string().contains("an odd row"), "{error}");
}

#[tokio::test]
async fn what_a_full_queue_refuses_is_told_and_looked_for_again() {
    let world = World::in_memory();
    world.table.write(1, START);
    world.table.write(2, START);
    let queue = QueueName::new("q").expect("a queue");
    let bounds = QueueBounds {
        max_size: Some(1),
        ..QueueBounds::default()
    };
    world
        .store
        .set_bounds(queue, bounds, START)
        .await
        .expect("bounded");
    world.clock.advance(Span::hours(1));
    let report = world.run().await;
    assert_eq!(
        (report.enqueued, report.refused),
        (vec![json!(1)], vec![json!(2)])
    );
    let runs = world
        .backstop
        .sweeper(&world.sweep())
        .history()
        .await
        .expect("the history");
    assert_eq!((runs[0].spent, runs[0].refused), (0, 1));
    world.table.process(1);
    world.work().await;
    assert_eq!(world.run().await.enqueued, [json!(2)]);
}

#[tokio::test]
async fn a_search_that_fails_enqueues_nothing_and_is_remembered() {
    struct Broken;
    #[async_trait::async_trait]
    impl Finder for Broken {
        async fn find(&self, _: Time, _: usize) -> Result<FindResult, FindError> {
            Err(FindError::Failed("no such table: orders".to_owned()))
        }
    }
    let world = World::in_memory();
    let sweep = Sweep::new("broken", "q", Broken).expect("a sweep");
    let sweeper = world.backstop.sweeper(&sweep);
    let error = sweeper.run().await.expect_err("it fails");
    assert_eq!(error.to_string(), "no such table: orders");
    let runs = sweeper.history().await.expect("the history");
    assert_eq!(runs[0].error.as_deref(), Some("no such table: orders"));
    assert_eq!(
        (runs[0].found, jobs(&world.backstop, None).await.len()),
        (0, 0)
    );
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let world = World::in_memory();
    world.table.write(1, START);
    let sweeper = world.backstop.sweeper(&world.sweep());
    let later = START.after(Span::hours(1));
    assert_eq!(
        sweeper.dry_run(START).await.expect("a plan").found,
        [] as [Value; 0]
    );
    for _ in 0..5 {
        let plan = sweeper.dry_run(later).await.expect("a plan");
        assert_eq!(
            (plan.would_enqueue, plan.enqueued),
            (vec![json!(1)], vec![])
        );
    }
    assert_eq!(jobs(&world.backstop, None).await.len(), 0);
    assert_eq!(
        (
            sweeper.history().await.expect("the history").len(),
            recovered(&world).await
        ),
        (0, 0)
    );
}

#[tokio::test]
async fn fifty_runs_are_remembered() {
    let world = World::in_memory();
    let sweeper = world.backstop.sweeper(&world.sweep());
    for _ in 0..55 {
        sweeper.run().await.expect("it runs");
        world.clock.advance(Span::minutes(30));
    }
    let runs = sweeper.history().await.expect("the history");
    assert_eq!(runs.len(), 50);
    assert_eq!(
        runs[0].at,
        START.after(Span::minutes(30 * 54)),
        "the latest first"
    );
}

#[tokio::test]
async fn a_sweep_that_runs_elsewhere_is_not_run_by_hand() {
    let world = World::in_memory();
    let began = world.backstop.now();
    let turn = json!({ "began": began, "until": began.after(Span::minutes(30)), "runner": "elsewhere", "ended": false });
    let swap = CellSwap {
        name: "sweeps/lost/turn".to_owned(),
        seen: None,
        version: 1,
        value: Some(turn.to_string().into_bytes()),
    };
    world
        .backstop
        .store()
        .swap(vec![swap])
        .await
        .expect("swapped");
    let refused = world
        .backstop
        .sweeper(&world.sweep())
        .run()
        .await
        .expect_err("it is taken");
    assert!(
        matches!(&refused, SweepError::Taken(taken) if taken.runner == "elsewhere"),
        "{refused}"
    );
    world.clock.advance(Span::minutes(30));
    world.run().await;
}

/// Workers on virtual time that all have the same sweep.
fn crew(count: usize) -> (Backstop, Table, Sweep, Vec<backstop::RunningWorker>) {
    let (store, clock) = (
        Arc::new(MemoryStore::new()),
        Arc::new(VirtualClock::start()),
    );
    let backstop = Backstop::on(
        store,
        Arc::<VirtualClock>::clone(&clock),
        RandomSource::seeded(11),
    );
    let table = Table::default();
    let sweep = Sweep::new("lost", "q", table.clone()).expect("a sweep");
    let workers = (0..count).map(|n| {
        let idle = |_: Run| async { Ok::<(), RunError>(()) };
        let worker = backstop
            .worker()
            .name(&format!("w{n}"))
            .services(ServicePlacement::CallersRuntime);
        worker
            .handle_raw("other", idle)
            .sweep(sweep.clone())
            .start()
            .expect("started")
    });
    let workers = workers.collect();
    (backstop, table, sweep, workers)
}

#[tokio::test(start_paused = true)]
async fn of_many_workers_one_sweeps_in_each_period() {
    let (backstop, table, sweep, workers) = crew(3);
    table.write(1, backstop.now());
    tokio::time::sleep(std::time::Duration::from_mins(2 * 60 + 5)).await;
    let runs = backstop
        .sweeper(&sweep)
        .history()
        .await
        .expect("the history");
    assert!(
        (4..=5).contains(&runs.len()),
        "every half hour for two hours: {}",
        runs.len()
    );
    assert_eq!(runs.iter().map(|run| run.enqueued).sum::<usize>(), 1);
    assert_eq!(jobs(&backstop, None).await.len(), 1);
    for worker in workers {
        worker.stop();
        worker.stopped().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_dies_is_followed_by_another() {
    let (backstop, table, sweep, workers) = crew(2);
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    table.write(1, backstop.now().before(Span::hours(2)));
    // Somebody took the next turn and was killed in the middle of it.
    let began = backstop.now();
    let turn = json!({ "began": began, "until": began.after(Span::minutes(30)), "runner": "killed", "ended": false });
    let cell = backstop
        .store()
        .cells(vec!["sweeps/lost/turn".to_owned()])
        .await
        .expect("read")
        .remove(0);
    let swap = CellSwap {
        name: "sweeps/lost/turn".to_owned(),
        seen: cell.map(|cell| cell.version),
        version: 99,
        value: Some(turn.to_string().into_bytes()),
    };
    backstop.store().swap(vec![swap]).await.expect("swapped");
    tokio::time::sleep(std::time::Duration::from_mins(29)).await;
    assert_eq!(
        jobs(&backstop, None).await.len(),
        0,
        "it may still be at it"
    );
    tokio::time::sleep(std::time::Duration::from_mins(3)).await;
    assert_eq!(jobs(&backstop, None).await.len(), 1);
    let latest = backstop
        .sweeper(&sweep)
        .history()
        .await
        .expect("the history")
        .remove(0);
    assert!(
        latest.runner.starts_with('w') && latest.enqueued == 1,
        "{latest:?}"
    );
    for worker in workers {
        worker.stop();
        worker.stopped().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_sweep_survives_a_store_that_fails() {
    let world = World::in_memory();
    for id in 0..50 {
        world.table.write(id, START);
    }
    world.clock.advance(Span::hours(1));
    for round in 0..20 {
        world.store.next_call(if round % 2 == 0 {
            Fault::LostReply
        } else {
            Fault::Refused
        });
        world.clock.advance(Span::minutes(31));
        // Whatever it comes to: a later run finishes what this one began.
        let _ = world.backstop.sweeper(&world.sweep()).run().await;
    }
    world.clock.advance(Span::minutes(31));
    world.run().await;
    assert_eq!(
        world.jobs(JobState::Ready).await.len(),
        50,
        "each one job, none twice"
    );
}

#[tokio::test]
async fn rows_and_jobs_are_compared_in_both_directions() {
    let world = World::in_memory();
    let sweeper = world.backstop.sweeper(&world.sweep());
    for id in 1..=4 {
        world.table.write(id, START);
    }
    world.push(1).await; // In order.
    world.push(5).await; // A job without a row.
    world
        .backstop
        .draft("q")
        .kind("other")
        .unique_key("row:6")
        .push()
        .await
        .expect("pushed");
    world
        .backstop
        .draft("q")
        .kind("process")
        .unique_key("elsewhere:7")
        .push()
        .await
        .expect("pushed");
    world.clock.advance(Span::minutes(30));
    let young = sweeper.reconcile().await.expect("compared");
    assert_eq!(
        (young.rows_without_jobs.len(), young.jobs_without_rows.len()),
        (0, 1)
    );
    assert!(!young.falls_short(), "nothing is past the threshold yet");
    world.clock.advance(Span::minutes(30));
    world.table.process(4);
    let found = sweeper.reconcile().await.expect("compared");
    assert_eq!(found.rows_without_jobs, [json!(2), json!(3)]);
    let loose: Vec<&str> = found
        .jobs_without_rows
        .iter()
        .map(|job| job.key.as_str())
        .collect();
    assert_eq!(loose, ["row:5"]);
    assert!(found.falls_short());
    // The sweep makes it right, and what was left over is worked off.
    world.run().await;
    let half = sweeper.reconcile().await.expect("compared");
    assert_eq!(
        (half.rows_without_jobs.len(), half.overdue().count()),
        (0, 1)
    );
    let run = sweeper.history().await.expect("the history").swap_remove(0);
    assert_eq!(
        (run.rows_without_jobs, run.jobs_without_rows),
        (Some(0), Some(1)),
        "for the overview"
    );
    world.work().await;
    for id in 1..=3 {
        world.table.process(id);
    }
    assert!(!sweeper.reconcile().await.expect("compared").falls_short());
}

#[tokio::test]
async fn a_row_whose_job_is_dead_does_not_match() {
    let world = World::in_memory();
    world.table.write(1, START);
    world.push(1).await;
    let reject = |_: Run| async { Err::<(), RunError>(RunError::dead("no")) };
    world
        .backstop
        .worker()
        .handle_raw("q", reject)
        .drain()
        .await
        .expect("drained");
    world.clock.advance(Span::hours(2));
    let found = world
        .backstop
        .sweeper(&world.sweep())
        .reconcile()
        .await
        .expect("compared");
    assert_eq!(
        (&found.rows_without_jobs, &found.dead),
        (&vec![json!(1)], &vec![json!(1)])
    );
    assert!(found.falls_short());
}

#[tokio::test]
async fn a_run_tells_what_does_not_match_and_searches_no_more_often_than_it_must() {
    let (world, meters) = (World::in_memory(), Meters::default());
    let _listening = meters.listen();
    let unmatched = || {
        let says = |name| meters.says(&format!("backstop_reconcile_{name}{{sweep=lost}}"));
        (says("rows_without_jobs"), says("jobs_without_rows"))
    };
    let searches = || world.table.searches.swap(0, Ordering::Relaxed);
    world.run().await;
    assert_eq!(
        (searches(), unmatched()),
        (1, (Some(0.0), Some(0.0))),
        "no row, no job: one look"
    );
    world.table.write(1, START);
    world.table.write(2, START);
    world.push(1).await;
    world.push(3).await;
    let reject = |_: Run| async { Err::<(), RunError>(RunError::dead("no")) };
    world
        .backstop
        .worker()
        .handle_raw("q", reject)
        .drain()
        .await
        .expect("drained");
    world.push(3).await;
    world.clock.advance(Span::hours(1));
    world.run().await;
    assert_eq!(
        unmatched(),
        (Some(1.0), Some(1.0)),
        "row 1 has a dead letter, job 3 no row"
    );
    assert_eq!(
        searches(),
        3,
        "for lost rows, once more before they get a job, and for those of jobs"
    );
    let asked = world
        .backstop
        .sweeper(&world.sweep())
        .reconcile()
        .await
        .expect("compared");
    assert_eq!(
        (asked.rows_without_jobs, asked.jobs_without_rows.len()),
        (vec![json!(1)], 1),
        "the same"
    );
}
