//! Locks and marks, and what two copies of one job do with them.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is how to say no")]

use backstop::core::port::{ListCellsRequest, Store};
use backstop::idempotence::{LOCK_SPAN, Lock};
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, QueueSettings, RandomSource, Run, RunError, ServicePlacement, Span, WorkerTiming,
};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::Flaky;
use backstop_testkit::servers;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

struct World {
    memory: Arc<MemoryStore>,
    clock: Arc<VirtualClock>,
    backstop: Backstop,
    flaky: Arc<Flaky>,
}

fn world() -> World {
    let (memory, clock) = (
        Arc::new(MemoryStore::new()),
        Arc::new(VirtualClock::start()),
    );
    let flaky = Arc::new(Flaky::new(Arc::<MemoryStore>::clone(&memory), 1));
    let store: Arc<dyn Store> = flaky.clone();
    let backstop = Backstop::on(
        store,
        Arc::<VirtualClock>::clone(&clock),
        RandomSource::seeded(1),
    );
    World {
        memory,
        clock,
        backstop,
        flaky,
    }
}

impl World {
    /// Another process on the same store, by the same clock.
    fn another(&self) -> Backstop {
        Backstop::on(
            Arc::<MemoryStore>::clone(&self.memory),
            Arc::<VirtualClock>::clone(&self.clock),
            RandomSource::seeded(2),
        )
    }

    fn jump(&self, forward: bool, span: Span) {
        self.clock.jump(if forward {
            span.as_micros()
        } else {
            -span.as_micros()
        });
    }
}

async fn pass(span: Span) {
    tokio::time::sleep(span.into()).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_has_one_holder_until_it_is_released_or_dropped() {
    let World { backstop, .. } = world();
    let first = backstop.try_lock("a").await.unwrap().expect("it is free");
    assert!(backstop.try_lock("a").await.unwrap().is_none());
    assert!(
        backstop.try_lock("b").await.unwrap().is_some(),
        "another name is another lock"
    );
    let term = first.term();
    first.release().await.unwrap();
    let second = backstop
        .try_lock("a")
        .await
        .unwrap()
        .expect("it was released");
    assert!(second.term() > term, "a term grows");
    drop(second);
    pass(Span::millis(10)).await;
    assert!(backstop.try_lock("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lock_lasts_for_as_long_as_it_is_held() {
    let World { backstop, .. } = world();
    let lock = backstop.try_lock("a").await.unwrap().unwrap();
    for _ in 0..20 {
        pass(LOCK_SPAN.scaled(0.5)).await;
        assert!(!lock.is_lost());
        assert!(backstop.try_lock("a").await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_extend_a_lock_is_told_before_somebody_else_can_have_it() {
    let World {
        backstop, flaky, ..
    } = world();
    let lock = backstop.try_lock("a").await.unwrap().unwrap();
    flaky.set_down(true);
    tokio::time::timeout(LOCK_SPAN.into(), lock.lost())
        .await
        .expect("told within the span");
    flaky.set_down(false);
    assert!(
        backstop.try_lock("a").await.unwrap().is_none(),
        "there is time to stop"
    );
    pass(LOCK_SPAN).await;
    assert!(backstop.try_lock("a").await.unwrap().unwrap().term() > lock.term());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_moved_takes_a_lock_from_nobody_who_lives() {
    for forward in [true, false] {
        let world = world();
        let (lock, other) = (
            world.backstop.try_lock("a").await.unwrap().unwrap(),
            world.another(),
        );
        world.jump(forward, Span::hours(2));
        for _ in 0..20 {
            assert!(
                other.try_lock("a").await.unwrap().is_none(),
                "forward: {forward}"
            );
            pass(Span::secs(4)).await;
        }
        assert!(!lock.is_lost());
        lock.release().await.unwrap();
        assert!(other.try_lock("a").await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_holders_lock_is_free_one_span_after_somebody_asked_also_where_the_clock_was_moved()
{
    for forward in [true, false] {
        let world = world();
        let _dead = world.backstop.try_lock("a").await.unwrap().unwrap();
        world.flaky.set_down(true);
        let other = world.another();
        world.jump(forward, Span::hours(2));
        assert!(
            other.try_lock("a").await.unwrap().is_none(),
            "forward: {forward}"
        );
        pass(LOCK_SPAN.plus(Span::secs(1))).await;
        assert!(
            other.try_lock("a").await.unwrap().is_some(),
            "forward: {forward}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_given_back_is_free_also_where_the_clock_was_set_back() {
    let world = world();
    world
        .backstop
        .try_lock("a")
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    world.jump(false, Span::hours(2));
    assert!(world.another().try_lock("a").await.unwrap().is_some());
}

/// Runs what needs a runtime on one of its own.
fn elsewhere<T: Send + 'static>(act: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    std::thread::spawn(move || runtime().block_on(act))
        .join()
        .unwrap()
}

#[test]
fn a_lock_is_kept_by_a_thread_that_no_handler_can_block() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("locks.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let backstop = Backstop::open(&address).await.unwrap();
        let lock = backstop.try_lock("a").await.unwrap().unwrap();
        let address = address.clone();
        drop(lock);
        // From here on the one thread of this runtime is blocked: who releases it is who would have
        // extended it.
        let freed = elsewhere(async move {
            let other = Backstop::open(&address).await.unwrap();
            other
                .lock_within("a", Span::secs(10))
                .await
                .unwrap()
                .is_some()
        });
        assert!(freed);
    });
}

#[test]
fn a_lock_outlives_a_dead_holder_by_its_span_and_no_more() {
    let clock = Arc::new(backstop::ManualClock::at(backstop::Time::from_millis(
        1_000_000,
    )));
    let backstop = Backstop::on(
        Arc::new(MemoryStore::new()),
        clock.clone(),
        RandomSource::seeded(1),
    );
    let dying = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let lock = dying.block_on(backstop.try_lock("a")).unwrap().unwrap();
    // Nothing of it runs any more.
    dying.shutdown_background();
    let living = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let taken = |backstop: &Backstop| living.block_on(backstop.try_lock("a")).unwrap();
    clock.advance(LOCK_SPAN);
    assert!(taken(&backstop).is_none());
    clock.advance(Span::millis(1));
    assert!(taken(&backstop).unwrap().term() > lock.term());
}

#[tokio::test(start_paused = true)]
async fn the_next_run_of_a_killed_job_takes_its_lock_over_and_works() {
    let World { backstop, .. } = world();
    backstop.draft("q").id("one").push().await.unwrap();
    let begun = Arc::new(AtomicU32::new(0));
    let (seen, store) = (Arc::clone(&begun), backstop.clone());
    let worker = |stays: bool| {
        let (begun, backstop) = (Arc::clone(&seen), store.clone());
        store
            .worker()
            .services(ServicePlacement::CallersRuntime)
            .handle_raw("q", move |run: Run| {
                let (begun, backstop) = (Arc::clone(&begun), backstop.clone());
                async move {
                    let Some(lock) = backstop.try_lock_for(&run, "change:7").await? else {
                        return Ok(());
                    };
                    begun.fetch_add(1, Ordering::Relaxed);
                    if stays {
                        // Its process dies here: nobody beats, nobody releases.
                        std::mem::forget(lock);
                        std::future::pending::<()>().await;
                    } else {
                        backstop.mark_done("change:7", Span::hours(1)).await?;
                        lock.release().await?;
                    }
                    Ok::<(), RunError>(())
                }
            })
    };
    let dying = worker(true).start().unwrap();
    pass(Span::secs(1)).await;
    drop(dying);
    let living = worker(false).start().unwrap();
    pass(Span::minutes(2)).await;
    assert_eq!(begun.load(Ordering::Relaxed), 2);
    assert!(backstop.already_done("change:7").await.unwrap());
    living.stop();
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_lock_has_it_when_it_is_free_or_gives_up() {
    let World { backstop, .. } = world();
    let lock = backstop.try_lock("a").await.unwrap().unwrap();
    assert!(
        backstop
            .lock_within("a", Span::secs(1))
            .await
            .unwrap()
            .is_none()
    );
    let waiting = tokio::spawn({
        let backstop = backstop.clone();
        async move { backstop.lock_within("a", Span::secs(5)).await }
    });
    pass(Span::secs(1)).await;
    lock.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_remembered_for_as_long_as_was_said() {
    let World { backstop, .. } = world();
    let long = "k".repeat(2_000);
    for key in ["email:42", "", &long] {
        assert!(!backstop.already_done(key).await.unwrap());
        assert!(
            backstop.mark_done(key, Span::hours(1)).await.unwrap(),
            "the first to say so"
        );
        assert!(!backstop.mark_done(key, Span::hours(1)).await.unwrap());
        assert!(backstop.already_done(key).await.unwrap());
    }
    assert!(!backstop.already_done("email:43").await.unwrap());
    pass(Span::hours(1)).await;
    assert!(!backstop.already_done("email:42").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn marks_and_locks_that_are_over_are_forgotten_by_workers() {
    let World { backstop, .. } = world();
    backstop.mark_done("old", Span::hours(1)).await.unwrap();
    backstop.mark_done("young", Span::days(9)).await.unwrap();
    backstop
        .try_lock("old")
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    let timing = WorkerTiming {
        maintenance_interval: Span::hours(1),
        prune: Span::hours(1),
        poll: Span::hours(1),
        ..WorkerTiming::default()
    };
    let worker = backstop
        .worker()
        .services(ServicePlacement::CallersRuntime)
        .timing(timing);
    let worker = worker
        .handle_raw("q", |_: Run| async { Ok::<(), RunError>(()) })
        .start()
        .unwrap();
    pass(Span::hours(27)).await;
    worker.stop();
    worker.stopped().await;
    let all = ListCellsRequest {
        prefix: String::new(),
        after: None,
        limit: 10,
    };
    let left: Vec<String> = backstop
        .store()
        .list_cells(all)
        .await
        .unwrap()
        .into_iter()
        .map(|cell| cell.name)
        .collect();
    assert_eq!(left, ["done/young"]);
}

/// An address of each kind of store, with nothing in it; the folder is that of SQLite's file.
fn addresses() -> (tempfile::TempDir, [String; 4]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let sqlite = format!("sqlite:{}", file.display());
    let (postgres, redis) = (
        servers::postgres().fresh_url(),
        servers::redis().fresh_url(),
    );
    (
        folder,
        [sqlite, postgres, redis, servers::cluster().fresh_url()],
    )
}

/// Runs two copies of a job at once, each in a worker and over a connection of its own; both must
/// end as done.
async fn two_copies<F, Fut>(address: &str, handler: impl Fn(Backstop) -> F)
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), RunError>> + Send + 'static,
{
    let (one, two) = (
        Backstop::open(address).await.unwrap(),
        Backstop::open(address).await.unwrap(),
    );
    for id in ["one", "two"] {
        one.draft("q").id(id).push().await.unwrap();
    }
    let one_each = || QueueSettings {
        concurrency: 1,
        prefetch: Some(0),
        ..QueueSettings::default()
    };
    let worked = |backstop: &Backstop| {
        backstop
            .worker()
            .handle_raw("q", handler(backstop.clone()))
            .queue("q", one_each())
            .drain()
    };
    let (first, second) = tokio::join!(worked(&one), worked(&two));
    assert_eq!(
        first.unwrap().done + second.unwrap().done,
        2,
        "both end as done: {address}"
    );
}

#[tokio::test]
async fn of_many_who_take_a_lock_at_once_one_has_it() {
    let (_folder, addresses) = addresses();
    for address in addresses {
        let (one, two) = (
            Backstop::open(&address).await.unwrap(),
            Backstop::open(&address).await.unwrap(),
        );
        for round in 0..5 {
            let name = format!("change:{round}");
            let tries = (0..16).map(|n| if n % 2 == 0 { &one } else { &two }.try_lock(&name));
            let taken = futures_util::future::try_join_all(tries).await.unwrap();
            assert_eq!(taken.iter().flatten().count(), 1, "{address}");
        }
    }
}

#[tokio::test]
async fn of_two_copies_of_a_slow_job_one_works_and_the_other_ends_at_once() {
    let (_folder, addresses) = addresses();
    for address in addresses {
        let (effects, passed_by) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let slow = |backstop: Backstop| {
            let (effects, passed_by) = (Arc::clone(&effects), Arc::clone(&passed_by));
            move |run: Run| {
                let (backstop, effects) = (backstop.clone(), Arc::clone(&effects));
                let passed_by = Arc::clone(&passed_by);
                async move {
                    let lock: Option<Lock> = backstop.try_lock_for(&run, "change:7").await?;
                    let Some(lock) = lock else {
                        passed_by.notify_one();
                        return Ok(());
                    };
                    if !backstop.already_done("change:7").await? {
                        // As slow as it takes the other copy to come by, and to be gone.
                        passed_by.notified().await;
                        effects.fetch_add(1, Ordering::Relaxed);
                        backstop.mark_done("change:7", Span::hours(1)).await?;
                    }
                    lock.release().await?;
                    Ok(())
                }
            }
        };
        let worked = tokio::time::timeout(Duration::from_mins(1), two_copies(&address, slow)).await;
        worked.expect("the other copy did not wait");
        assert_eq!(effects.load(Ordering::Relaxed), 1, "{address}");
    }
}

#[tokio::test]
async fn of_two_copies_of_a_fast_job_with_a_short_lock_one_has_the_effect() {
    let (_folder, addresses) = addresses();
    for address in addresses {
        let effects = Arc::new(AtomicU32::new(0));
        let fast = |backstop: Backstop| {
            let effects = Arc::clone(&effects);
            move |_: Run| {
                let (backstop, effects) = (backstop.clone(), Arc::clone(&effects));
                async move {
                    let lock = backstop.lock_within("email:42", Span::secs(20)).await?;
                    let lock =
                        lock.ok_or_else(|| RunError::retry("the other copy takes too long"))?;
                    if !backstop.already_done("email:42").await? {
                        tokio::time::sleep(Duration::from_millis(30)).await;
                        effects.fetch_add(1, Ordering::Relaxed);
                        backstop.mark_done("email:42", Span::hours(1)).await?;
                    }
                    lock.release().await?;
                    Ok(())
                }
            }
        };
        two_copies(&address, fast).await;
        assert_eq!(effects.load(Ordering::Relaxed), 1, "{address}");
    }
}

#[tokio::test]
async fn of_two_copies_of_a_fast_job_on_postgres_one_has_the_effect() {
    let url = servers::postgres().url();
    let client = backstop::postgres::connect(&url).await.unwrap();
    let table = format!("emails_{}", std::process::id());
    client
        .batch_execute(&format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, sent int NOT NULL); INSERT INTO {table} VALUES (1, 0)"
        ))
        .await
        .unwrap();
    let send = |url: String, table: String| async move {
        let mut client = backstop::postgres::connect(&url).await?;
        let transaction = client.transaction().await?;
        let row = transaction
            .query_one(
                &format!("SELECT sent FROM {table} WHERE id = 1 FOR UPDATE"),
                &[],
            )
            .await?;
        if row.get::<_, i32>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            transaction
                .execute(
                    &format!("UPDATE {table} SET sent = sent + 1 WHERE id = 1"),
                    &[],
                )
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    };
    let copy = |_| {
        let (address, name) = (url.clone(), table.clone());
        move |_: Run| send(address.clone(), name.clone())
    };
    two_copies(&servers::postgres().fresh_url(), copy).await;
    let row = client
        .query_one(&format!("SELECT sent FROM {table}"), &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, i32>(0), 1);
    client
        .batch_execute(&format!("DROP TABLE {table}"))
        .await
        .unwrap();
}

#[tokio::test]
async fn of_two_copies_of_a_fast_job_on_sqlite_one_has_the_effect() {
    use backstop::rusqlite::{Connection, TransactionBehavior};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let open = |file: &std::path::Path| -> Connection {
        let connection = Connection::open(file).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection
    };
    open(&file)
        .execute_batch("CREATE TABLE emails (id int, sent int); INSERT INTO emails VALUES (1, 0)")
        .unwrap();
    let send = move |path: std::path::PathBuf| async move {
        tokio::task::spawn_blocking(move || {
            let mut connection = open(&path);
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let sent: i32 =
                transaction
                    .query_row("SELECT sent FROM emails WHERE id = 1", [], |row| row.get(0))?;
            if sent == 0 {
                std::thread::sleep(Duration::from_millis(30));
                transaction.execute("UPDATE emails SET sent = sent + 1 WHERE id = 1", [])?;
            }
            transaction.commit()
        })
        .await??;
        Ok(())
    };
    let copy = |_| {
        let path = file.clone();
        move |_: Run| send(path.clone())
    };
    let store = format!("sqlite:{}", folder.path().join("backstop.db").display());
    two_copies(&store, copy).await;
    let sent: i32 = open(&file)
        .query_row("SELECT sent FROM emails", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sent, 1);
}
