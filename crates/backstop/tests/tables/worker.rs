//! Tables that a worker works off by itself.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, PROGRESSIVE, at_noon, create, create_anew, fresh, insert, leave_desk,
    minutes, noon, states, table,
};
use backstop::core::WorkerName;
use backstop::core::table::OpenRow;
use backstop::core::worker_command::{WorkerCommand, WorkerState};
use backstop::tables::{Table, TableRow};
use backstop::workers::LISTED;
use backstop::{RunError, Span, WorkerTiming};
use serde_json::json;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_works_its_tables_off_by_itself() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let backstop = backstop::Backstop::open("memory:").await.expect("a store");
        let rows: Vec<(i64, &str, OpenRow)> = (1..=40)
            .map(|id| (id, "NEW", fresh(backstop.now().before(Span::minutes(id)))))
            .collect();
        insert(&database, Dates::Native, &rows);
        let calls = Calls::default();
        let table = table(&database, FIBONACCI)
            .every(Span::secs(1))
            .expect("a period");
        let table = calls.table(table, |row| row.key == json!(7));
        let adopted = backstop.adopted_table(&table);
        let workers = [0, 1].map(|_| {
            backstop
                .worker()
                .table(table.clone())
                .start()
                .expect("a worker")
        });
        let began = std::time::Instant::now();
        while states(&adopted, backstop.now()).await != [0, 1, 39] {
            assert!(
                began.elapsed().as_secs() < 20,
                "{:?}",
                states(&adopted, backstop.now()).await
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        for worker in workers {
            worker.stop();
            worker.stopped().await;
        }
        assert_eq!(calls.keys().len(), 40, "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_down_is_not_asked_many_times_a_second() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!(
        "postgres://nobody@{}/nowhere",
        listener.local_addr().expect("an address")
    );
    let backstop = backstop::Backstop::open("memory:").await.expect("a store");
    // Somebody who is gone left a row, so that there is always something to do.
    leave_desk(&backstop, r##"{"orphans":["#1"]}"##).await;
    let table = Calls::default().table(
        Table::new("backlog", &url, "BACKLOG").expect("a table"),
        |_| false,
    );
    let worker = backstop.worker().table(table).start().expect("a worker");
    let mut asked = 0;
    let asks = async {
        loop {
            drop(listener.accept().await);
            asked += 1;
        }
    };
    let _: Result<(), _> = tokio::time::timeout(std::time::Duration::from_secs(3), asks).await;
    assert!((1..=6).contains(&asked), "{asked}");
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_leaves_failures_alone_that_are_not_in_the_future() {
    for database in Database::all() {
        create(&database, Dates::Seconds);
        let backstop = backstop::Backstop::open("memory:").await.expect("a store");
        let now = backstop.now();
        let failed = OpenRow {
            failures: 6,
            last_failure: Some(now.before(Span::secs(1))),
            ..fresh(now)
        };
        insert(
            &database,
            Dates::Seconds,
            &[(1, "ERROR", failed), (2, "NEW", fresh(now))],
        );
        // Its last tick is long ago.
        let table = table(&database, FIBONACCI)
            .every(Span::days(365))
            .expect("a period");
        let adopted = backstop.adopted_table(&table);
        let worker = backstop
            .worker()
            .table(Calls::default().table(table, |_| false))
            .start();
        let worker = worker.expect("a worker");
        let began = std::time::Instant::now();
        while states(&adopted, backstop.now()).await != [0, 1, 1] {
            assert!(began.elapsed().as_secs() < 20, "{}", database.url());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        worker.stop();
        worker.stopped().await;
        let as_it_was = Dates::Seconds.literal(now.before(Span::secs(1)));
        let rows = database.count(&format!(
            "BACKLOG WHERE ID = 1 AND LAST_FAILURE = {as_it_was}"
        ));
        assert_eq!(rows, 1, "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_due_by_the_clock_and_a_failure_was_when_it_was_known() {
    for database in Database::all() {
        create(&database, Dates::Native);
        // The tick of the period was at noon, before any of these.
        let began = minutes(43).after(Span::secs(5));
        let failed = |minute| OpenRow {
            failures: 1,
            last_failure: Some(minutes(minute)),
            ..fresh(minutes(20))
        };
        insert(
            &database,
            Dates::Native,
            &[
                (1, "NEW", fresh(began)),
                (2, "ERROR", failed(42)),
                (3, "ERROR", failed(43)),
            ],
        );
        let test = at_noon();
        test.clock.advance(began.since(noon()));
        let table = table(&database, FIBONACCI)
            .every(Span::hours(1))
            .expect("a period");
        let (calls, clock) = (Calls::default(), Arc::clone(&test.clock));
        // The row that is new takes seven seconds.
        let table = calls.table(table.concurrency(1).expect("one"), move |row| {
            if row.key == json!(1) {
                clock.advance(Span::secs(7));
            }
            true
        });
        let adopted = test.backstop.adopted_table(&table);
        let worker = test
            .backstop
            .worker()
            .table(table)
            .start()
            .expect("a worker");
        let known = began.after(Span::secs(7));
        let written = format!(
            "BACKLOG WHERE LAST_FAILURE = {}",
            Dates::Native.literal(known)
        );
        let looked = std::time::Instant::now();
        while database.count("BACKLOG WHERE FAILURES = 2") != 1
            || states(&adopted, known).await != [0, 3, 0]
        {
            assert!(
                looked.elapsed().as_secs() < 20,
                "{:?} {}",
                calls.keys(),
                database.url()
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        worker.stop();
        worker.stopped().await;
        assert_eq!(
            calls.keys(),
            [json!(1), json!(2)],
            "the third waits for a minute: {}",
            database.url()
        );
        assert_eq!(database.count(&written), 2, "{}", database.url());
        let status = adopted.status(known).await.expect("a status");
        assert_eq!(status.last_pass, Some(began), "{}", database.url());
        assert_eq!(status.next_pass, minutes(60), "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_age_a_workers_pass_between_two_ticks_was_for_those_before_it() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let began = minutes(43).after(Span::secs(5));
        insert(&database, Dates::Native, &[(1, "NEW", fresh(minutes(20)))]);
        let test = at_noon();
        test.clock.advance(began.since(noon()));
        let table = table(&database, PROGRESSIVE)
            .every(Span::hours(1))
            .expect("a period");
        let table = Calls::default().table(table, |_| true);
        let adopted = test.backstop.adopted_table(&table);
        let worker = test
            .backstop
            .worker()
            .table(table)
            .start()
            .expect("a worker");
        let looked = std::time::Instant::now();
        while adopted
            .status(began)
            .await
            .expect("a status")
            .last_pass
            .is_none()
        {
            assert!(looked.elapsed().as_secs() < 20, "{}", database.url());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        worker.stop();
        worker.stopped().await;
        assert_eq!(
            states(&adopted, began).await,
            [0, 1, 0],
            "{}",
            database.url()
        );
        let due = async |minute| adopted.status(minutes(minute)).await.expect("a status").due;
        assert_eq!(
            [due(44).await, due(45).await, due(60).await],
            [0, 1, 1],
            "{}",
            database.url()
        );
        let status = adopted.status(began).await.expect("a status");
        assert_eq!(status.last_pass, Some(began), "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_hangs_holds_up_neither_other_rows_nor_passes_and_is_seen() {
    const EVERY_SECOND: &str = r#"{"kind":"progressive","bands":[{"until":"1d","every":"1s"}]}"#;
    for database in Database::all() {
        for strategy in [FIBONACCI, EVERY_SECOND] {
            create_anew(&database, Dates::Native, false);
            let backstop = backstop::Backstop::open("memory:").await.expect("a store");
            let old = fresh(backstop.now().before(Span::minutes(5)));
            insert(
                &database,
                Dates::Native,
                &[1, 2, 3].map(|id| (id, "NEW", old)),
            );
            let table = table(&database, strategy)
                .every(Span::secs(1))
                .expect("a period");
            let table =
                table
                    .concurrency(2)
                    .expect("a number")
                    .handler(|row: TableRow| async move {
                        if row.key == json!(2) {
                            std::future::pending::<()>().await;
                        }
                        Ok::<(), RunError>(())
                    });
            let adopted = backstop.adopted_table(&table);
            let timing = WorkerTiming {
                grace: Span::millis(100),
                ..WorkerTiming::default()
            };
            let worker = backstop
                .worker()
                .timing(timing)
                .table(table)
                .start()
                .expect("a worker");
            for wave in 0..3_u32 {
                let began = std::time::Instant::now();
                while states(&adopted, backstop.now()).await != [1, 0, 2 + u64::from(wave)] {
                    let now = states(&adopted, backstop.now()).await;
                    assert!(
                        began.elapsed().as_secs() < 20,
                        "wave {wave}: {now:?} {}",
                        database.url()
                    );
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
                insert(
                    &database,
                    Dates::Native,
                    &[(10 + i64::from(wave), "NEW", old)],
                );
            }
            let status = adopted.status(backstop.now()).await.expect("a status");
            let hung = status
                .hands
                .iter()
                .find(|row| row.key == json!(2))
                .expect("the row in hand");
            assert!(hung.since <= backstop.now(), "{}", database.url());
            worker.stop();
            worker.stopped().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quieted_worker_leaves_its_table_to_others() {
    let database = Database::all().into_iter().next().expect("a database");
    create(&database, Dates::Native);
    let backstop = backstop::Backstop::open("memory:").await.expect("a store");
    let start = |name: &str, calls: &Calls| {
        let table = table(&database, FIBONACCI)
            .every(Span::secs(1))
            .expect("a period");
        backstop
            .worker()
            .name(name)
            .table(calls.table(table, |_| false))
            .start()
            .expect("a worker")
    };
    let (quieted, others) = (Calls::default(), Calls::default());
    let quiet = start("quiet", &quieted);
    let name = WorkerName::new("quiet");
    let duty = async || {
        let seen = backstop.workers(LISTED).await.expect("workers");
        seen.into_iter()
            .find(|worker| worker.status.name == name)
            .map(|worker| (worker.about.pid, worker.state))
    };
    let began = std::time::Instant::now();
    let mut is_asked = false;
    while duty()
        .await
        .is_none_or(|(_, duty)| duty != WorkerState::Quiet)
    {
        assert!(began.elapsed().as_secs() < 30, "{:?}", duty().await);
        if !is_asked && duty().await.is_some_and(|(pid, _)| pid.is_some()) {
            is_asked = backstop
                .changes("ada")
                .command_worker(&name, WorkerCommand::Quiet)
                .await
                .expect("an answer")
                .is_some();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let rows: Vec<(i64, &str, OpenRow)> = (1..=10)
        .map(|id| (id, "NEW", fresh(backstop.now().before(Span::minutes(id)))))
        .collect();
    insert(&database, Dates::Native, &rows);
    let other = start("other", &others);
    let adopted = backstop.adopted_table(&table(&database, FIBONACCI));
    while states(&adopted, backstop.now()).await != [0, 0, 10] {
        assert!(
            began.elapsed().as_secs() < 60,
            "{:?}",
            states(&adopted, backstop.now()).await
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!((quieted.keys().len(), others.keys().len()), (0, 10));
    for worker in [quiet, other] {
        worker.stop();
        worker.stopped().await;
    }
}
