//! Rows that are never tried again, and their dead letters.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, at_noon, create, create_anew, fresh, insert, leave_cell, leave_desk,
    minutes, noon, run, table,
};
use backstop::core::limits::{TABLE_BURIED_CELL_MAX, TABLE_BURIED_CELLS_MAX};
use backstop::core::table::OpenRow;
use backstop::tables::{FullStorage, OnExpired, TableRow, UnburiedRows};
use backstop::{JobState, RunError, Span};
use serde_json::json;
use std::sync::{Arc, Mutex};

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_row_becomes_one_dead_letter() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows = [
            (1, "ERROR", fresh(minutes(-31 * 1_440))),
            (2, "NEW", fresh(minutes(-32 * 1_440))),
            (3, "NEW", fresh(noon())),
        ];
        insert(&database, Dates::Native, &rows);
        let (test, calls) = (at_noon(), Calls::default());
        let table = table(&database, FIBONACCI).on_expired(OnExpired::Dead);
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table.clone(), |_| false));
        let first = run(&adopted, noon()).await;
        assert_eq!(
            (first.succeeded, first.expired, first.buried),
            (1, 2, 2),
            "{}",
            database.url()
        );
        assert_eq!(run(&adopted, minutes(1)).await.buried, 0);
        assert_eq!(
            adopted.expired(noon(), 10).await.expect("a list"),
            [json!(2), json!(1)]
        );
        let queues = test
            .backstop
            .store()
            .queues(test.backstop.now())
            .await
            .expect("queues");
        let letters = queues
            .iter()
            .find(|queue| queue.name == table.dead_letter_queue())
            .expect("letters");
        assert_eq!(letters.counts.of(JobState::Dead), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_its_owner_changed_becomes_no_dead_letter() {
    const ONCE: &str =
        r#"{"kind":"exponential","base":"1m","factor":2.0,"cap":"1d","max_attempts":1}"#;
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[(1, "NEW", fresh(noon())), (2, "NEW", fresh(noon()))],
        );
        let (test, database) = (at_noon(), Arc::new(database));
        let owner = Arc::clone(&database);
        let parks =
            table(&database, ONCE)
                .on_expired(OnExpired::Dead)
                .handler(move |row: TableRow| {
                    let owner = Arc::clone(&owner);
                    async move {
                        if row.key == json!(1) {
                            let parks = move || {
                                owner.sql("UPDATE BACKLOG SET STATUS = 'PARKED' WHERE ID = 1")
                            };
                            tokio::task::spawn_blocking(parks).await?;
                        }
                        Err(RunError::retry("no"))
                    }
                });
        let pass = run(&test.backstop.adopted_table(&parks), noon()).await;
        assert_eq!(
            (pass.failed, pass.overtaken, pass.buried),
            (1, 1, 1),
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_came_in_together_all_become_dead_letters() {
    for database in Database::all() {
        for dates in [Dates::Native, Dates::Rfc3339, Dates::Millis] {
            create_anew(&database, dates, false);
            let old = fresh(minutes(-31 * 1_440));
            let rows: Vec<(i64, &str, OpenRow)> =
                (1..=1_100).map(|id| (id, "ERROR", old)).collect();
            insert(&database, dates, &rows);
            let (test, calls) = (at_noon(), Calls::default());
            let table = table(&database, FIBONACCI).on_expired(OnExpired::Dead);
            let adopted = test.backstop.adopted_table(&calls.table(table, |_| false));
            let mut buried = Vec::new();
            for minute in 0..4 {
                buried.push(run(&adopted, minutes(minute)).await.buried);
            }
            assert_eq!(buried, [500, 500, 100, 0], "{} {dates:?}", database.url());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_was_killed_loses_no_letter_and_doubles_none() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let old = |id: i64| (id, "ERROR", fresh(minutes(-31 * 1_440 - id)));
        insert(
            &database,
            Dates::Native,
            &(1..=700).map(old).collect::<Vec<_>>(),
        );
        let (test, calls) = (at_noon(), Calls::default());
        let table = table(&database, FIBONACCI).on_expired(OnExpired::Dead);
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table.clone(), |_| false));
        assert_eq!(
            run(&adopted, noon()).await.buried,
            500,
            "{}",
            database.url()
        );
        // Killed when the letters were written, and nothing had been noted.
        leave_desk(&test.backstop, "{}").await;
        assert_eq!(
            run(&adopted, noon()).await.buried,
            200,
            "past those that were: {}",
            database.url()
        );
        assert_eq!(run(&adopted, noon()).await.buried, 0, "{}", database.url());
        // Somebody has read them: they do not come back.
        let cleared = test
            .backstop
            .dead()
            .clear(&table.dead_letter_queue())
            .await
            .expect("cleared");
        assert_eq!(cleared.count, 700);
        leave_desk(&test.backstop, "{}").await;
        for _ in 0..3 {
            assert_eq!(run(&adopted, noon()).await.buried, 0, "{}", database.url());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_expires_behind_those_that_were_copied_is_copied_too() {
    const TWICE: &str = r#"{"kind":"constant","every":"1m","max_attempts":2}"#;
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[(1, "ERROR", fresh(minutes(-31 * 1_440)))],
        );
        let (test, calls) = (at_noon(), Calls::default());
        let table = table(&database, TWICE).on_expired(OnExpired::Dead);
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table.clone(), |_| false));
        assert_eq!(run(&adopted, noon()).await.buried, 1, "{}", database.url());
        // One that somebody brings from elsewhere, and one whose runner was killed between its last
        // failure and its letter.
        let failed = OpenRow {
            failures: 2,
            last_failure: Some(minutes(-5)),
            ..fresh(minutes(-9))
        };
        insert(
            &database,
            Dates::Native,
            &[
                (2, "NEW", fresh(minutes(-40 * 1_440))),
                (3, "ERROR", failed),
            ],
        );
        assert_eq!(
            run(&adopted, noon()).await.buried,
            1,
            "the newer of them is next in line"
        );
        test.clock.advance(Span::hours(1));
        assert_eq!(run(&adopted, noon()).await.buried, 1, "{}", database.url());
        assert_eq!(run(&adopted, noon()).await.buried, 0);
        let letters = test.backstop.dead().stats().await.expect("stats");
        assert_eq!(letters.total, 3, "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_too_old_and_rows_that_failed_too_often_all_become_dead_letters() {
    const TWICE: &str = r#"{"kind":"constant","every":"1m","max_attempts":2}"#;
    for database in Database::all() {
        for is_indexed in [false, true] {
            create_anew(&database, Dates::Native, is_indexed);
            // Some are both, some of them came in together, and some are neither.
            let row = |id: i64| {
                let inserted = minutes(if id % 3 == 0 {
                    -5
                } else {
                    -31 * 1_440 - id / 4
                });
                let failed = OpenRow {
                    failures: 2,
                    last_failure: Some(minutes(-5)),
                    ..fresh(inserted)
                };
                let row = if id % 2 == 0 { failed } else { fresh(inserted) };
                (id, if id % 5 == 0 { "NEW" } else { "ERROR" }, row)
            };
            let rows: Vec<(i64, &str, OpenRow)> = (1..=900).map(row).collect();
            insert(&database, Dates::Native, &rows);
            let (test, calls) = (at_noon(), Calls::default());
            let table = table(&database, TWICE)
                .on_expired(OnExpired::Dead)
                .max_records(1)
                .expect("one");
            let adopted = test.backstop.adopted_table(&calls.table(table, |_| false));
            let mut passes = Vec::new();
            for _ in 0..3 {
                let pass = run(&adopted, noon()).await;
                passes.push((pass.expired, pass.buried));
            }
            assert_eq!(
                passes,
                [(750, 500), (750, 250), (750, 0)],
                "{} {is_indexed}",
                database.url()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_letter_of_a_row_counts_its_last_failure_too() {
    const TWICE: &str = r#"{"kind":"constant","every":"1m","max_attempts":2}"#;
    for database in Database::all() {
        create(&database, Dates::Native);
        let once = OpenRow {
            failures: 1,
            last_failure: Some(minutes(-5)),
            ..fresh(minutes(-9))
        };
        insert(&database, Dates::Native, &[(1, "ERROR", once)]);
        let (test, seen) = (at_noon(), Arc::new(Mutex::new(None)));
        let id = Arc::clone(&seen);
        let table =
            table(&database, TWICE)
                .on_expired(OnExpired::Dead)
                .handler(move |row: TableRow| {
                    *id.lock().expect("an id") = Some(row.id());
                    async { Err(RunError::retry("no such customer")) }
                });
        assert_eq!(
            run(&test.backstop.adopted_table(&table), noon())
                .await
                .buried,
            1,
            "{}",
            database.url()
        );
        let id = seen.lock().expect("an id").expect("a row");
        let letter = test
            .backstop
            .job(id)
            .await
            .expect("an answer")
            .expect("a letter");
        assert_eq!(
            (letter.state, letter.attempt),
            (JobState::Dead, 2),
            "{}",
            database.url()
        );
        let failures = letter.history.failures();
        assert_eq!(
            (failures.len(), failures[0].attempt),
            (1, 2),
            "{}",
            database.url()
        );
        assert_eq!(failures[0].error.message, "no such customer");
    }
}

/// As if so many rows had been copied that no more can be remembered, none of which is there any
/// more.
async fn fill_marks(backstop: &backstop::Backstop) {
    for cell in 0..TABLE_BURIED_CELLS_MAX {
        let first = cell * TABLE_BURIED_CELL_MAX;
        let marks = first..first + TABLE_BURIED_CELL_MAX;
        let marks = marks
            .map(|mark| format!("{mark:016x}"))
            .collect::<Vec<_>>()
            .concat();
        leave_cell(
            backstop,
            &format!("tables/backlog/buried/{cell}"),
            &format!("\"{marks}\""),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_for_which_there_is_no_room_is_told_of_and_copied_once_there_is() {
    const ONCE: &str = r#"{"kind":"constant","every":"1m","max_attempts":1}"#;
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[(1, "ERROR", fresh(minutes(-31 * 1_440)))],
        );
        let (test, calls) = (at_noon(), Calls::default());
        let table = table(&database, ONCE).on_expired(OnExpired::Dead);
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table.clone(), |_| true));
        let pass_twice = async || [run(&adopted, noon()).await, run(&adopted, noon()).await];
        fill_marks(&test.backstop).await;
        let passes = pass_twice()
            .await
            .map(|pass| (pass.expired, pass.buried, pass.unburied));
        assert_eq!(
            passes,
            [(1, 0, 1), (1, 1, 0)],
            "rows that are gone make room: {}",
            database.url()
        );
        assert_eq!(
            adopted.status(noon()).await.expect("a status").unburied,
            None
        );
        if !matches!(database, Database::Sqlite(_)) {
            // The rest is between the runners and their store.
            continue;
        }
        // Full again, within the hour; one row is too old, and the other fails for the last time.
        fill_marks(&test.backstop).await;
        insert(
            &database,
            Dates::Native,
            &[
                (2, "ERROR", fresh(minutes(-32 * 1_440))),
                (3, "NEW", fresh(noon())),
            ],
        );
        leave_desk(
            &test.backstop,
            &json!({ "pruned": test.backstop.now() }).to_string(),
        )
        .await;
        for pass in pass_twice().await {
            assert_eq!(
                (pass.buried, pass.expired, pass.unburied),
                (0, 3, 3),
                "{}",
                database.url()
            );
        }
        let told = adopted.status(noon()).await.expect("a status").unburied;
        assert_eq!(
            told,
            Some(UnburiedRows {
                rows: 3,
                full: FullStorage::Marks
            }),
            "{}",
            database.url()
        );
        test.clock.advance(Span::hours(1));
        let passes = pass_twice().await.map(|pass| (pass.buried, pass.unburied));
        assert_eq!(passes, [(0, 3), (2, 0)], "{}", database.url());
        assert_eq!(
            test.backstop.dead().stats().await.expect("stats").total,
            3,
            "{}",
            database.url()
        );
    }
}
