//! Rows in hand: whose they are, and what becomes of them.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, PROGRESSIVE, at_noon, create, create_anew, due, fresh, insert,
    leave_desk, minutes, noon, run, states, table,
};
use backstop::core::table::OpenRow;
use backstop::tables::TableRow;
use backstop::{RunError, Span};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn the_owners_own_change_stands() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[(1, "NEW", fresh(noon())), (2, "NEW", fresh(noon()))],
        );
        let test = at_noon();
        let database = Arc::new(database);
        let owner = Arc::clone(&database);
        let parks = table(&database, FIBONACCI).handler(move |row: TableRow| {
            let owner = Arc::clone(&owner);
            async move {
                if row.key == json!(1) {
                    tokio::task::spawn_blocking(move || {
                        owner.sql("UPDATE BACKLOG SET STATUS = 'PARKED' WHERE ID = 1")
                    })
                    .await?;
                }
                Ok(())
            }
        });
        let adopted = test.backstop.adopted_table(&parks);
        let pass = run(&adopted, noon()).await;
        assert_eq!(
            (pass.succeeded, pass.overtaken),
            (1, 1),
            "{}",
            database.url()
        );
        let status = adopted.status(noon()).await.expect("a status");
        assert_eq!((status.success, status.other), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snoozed_row_is_left_as_it_was() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "NEW", fresh(noon()))]);
        let test = at_noon();
        let snoozes = table(&database, FIBONACCI)
            .handler(|_: TableRow| async { Err(RunError::snooze(Span::secs(1))) });
        let adopted = test.backstop.adopted_table(&snoozes);
        assert_eq!(run(&adopted, noon()).await.released, 1);
        assert_eq!(due(&adopted, noon()).await, [json!(1)]);
        assert_eq!(adopted.status(noon()).await.expect("a status").in_hand, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runners_never_share_a_row() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows: Vec<(i64, &str, OpenRow)> = (1..=300)
            .map(|id| (id, "NEW", fresh(minutes(-id))))
            .collect();
        insert(&database, Dates::Native, &rows);
        let test = at_noon();
        let calls = Calls::default();
        let table = table(&database, FIBONACCI)
            .max_records(300)
            .expect("a number");
        let adopted = test.backstop.adopted_table(
            &calls.table(table, |row| row.key.as_i64().is_some_and(|id| id % 3 == 0)),
        );
        let runs = (0..4).map(|_| {
            let adopted = adopted.clone();
            tokio::spawn(async move { run(&adopted, noon()).await })
        });
        let mut done = 0;
        for pass in futures_util::future::join_all(runs).await {
            let pass = pass.expect("a pass");
            done += pass.succeeded + pass.failed;
            assert_eq!(pass.overtaken, 0, "no owner changed a row: {pass:?}");
            assert_eq!(
                pass.due,
                pass.succeeded + pass.failed + pass.taken,
                "{pass:?}"
            );
        }
        let keys: BTreeSet<i64> = calls.keys().iter().filter_map(Value::as_i64).collect();
        assert_eq!(
            (calls.keys().len(), keys.len(), done),
            (300, 300, 300),
            "{}",
            database.url()
        );
        assert_eq!(states(&adopted, noon()).await, [0, 100, 200]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_that_fails_leaves_no_handler_at_work() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows: Vec<(i64, &str, OpenRow)> = (1..=40)
            .map(|id| (id, "NEW", fresh(minutes(-id))))
            .collect();
        insert(&database, Dates::Native, &rows);
        let (test, database) = (at_noon(), Arc::new(database));
        let (began, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (is_broken, _) = tokio::sync::watch::channel(false);
        let handled = {
            let (owner, began, ended) = (
                Arc::clone(&database),
                Arc::clone(&began),
                Arc::clone(&ended),
            );
            table(&database, FIBONACCI).handler(move |row: TableRow| {
                let (owner, ended, is_broken) =
                    (Arc::clone(&owner), Arc::clone(&ended), is_broken.clone());
                began.fetch_add(1, Ordering::SeqCst);
                async move {
                    if row.key == json!(1) {
                        // The next rows cannot be read any more; those at work can be written.
                        let breaks = move || owner.sql("ALTER TABLE BACKLOG DROP COLUMN NOTE");
                        tokio::task::spawn_blocking(breaks).await?;
                        is_broken.send_replace(true);
                        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                    }
                    is_broken
                        .subscribe()
                        .wait_for(|is_broken| *is_broken)
                        .await?;
                    ended.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                }
            })
        };
        let adopted = test.backstop.adopted_table(&handled);
        adopted
            .run_at(noon(), &mut |_| {})
            .await
            .expect_err("a column is gone");
        let (began, ended) = (began.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
        assert_eq!(began, ended, "{}", database.url());
        assert_eq!(
            states(&adopted, noon()).await,
            [40 - began, 0, began],
            "what was done is written"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_left_counts_among_the_rows_of_a_pass() {
    for database in Database::all() {
        for strategy in [FIBONACCI, PROGRESSIVE] {
            create_anew(&database, Dates::Native, false);
            let rows: Vec<(i64, &str, OpenRow)> = (1..=20)
                .map(|id| (id, "NEW", fresh(minutes(-id))))
                .collect();
            insert(&database, Dates::Native, &rows);
            let (test, calls) = (at_noon(), Calls::default());
            let orphans: Vec<String> = (5..=20).map(|id| format!("#{id}")).collect();
            leave_desk(&test.backstop, &json!({ "orphans": orphans }).to_string()).await;
            let one = table(&database, strategy).max_records(1).expect("one");
            let adopted = test.backstop.adopted_table(&calls.table(one, |_| false));
            for number in 1..=3 {
                let listed = due(&adopted, noon()).await;
                let pass = run(&adopted, noon()).await;
                assert_eq!(
                    (pass.succeeded, pass.due),
                    (1, 1),
                    "{} {number}",
                    database.url()
                );
                assert_eq!(calls.keys().len(), number, "{}", database.url());
                assert_eq!(calls.keys().last(), listed.first(), "{}", database.url());
            }
            let adopted = test
                .backstop
                .adopted_table(&calls.table(table(&database, strategy), |_| false));
            assert_eq!(
                run(&adopted, noon()).await.succeeded,
                17,
                "the others: {}",
                database.url()
            );
            assert_eq!(run(&adopted, noon()).await.due, 0, "{}", database.url());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_in_the_middle_of_a_pass_takes_the_place_of_its_last_rows() {
    for database in Database::all() {
        for strategy in [FIBONACCI, PROGRESSIVE] {
            create_anew(&database, Dates::Native, false);
            let rows: Vec<(i64, &str, OpenRow)> = (1..=80)
                .map(|id| (id, "NEW", fresh(minutes(-id))))
                .collect();
            insert(&database, Dates::Native, &rows);
            let (test, calls) = (at_noon(), Calls::default());
            // Somebody who gives no sign of life has sixteen rows for another ten seconds.
            let held: Vec<Value> = (1..=16)
                .map(|id| json!([format!("#{id}"), 1_772_366_400_000_i64]))
                .collect();
            let claim = json!({ "runner": "gone", "number": 7, "until": "2026-03-01T12:00:10Z", "rows": held });
            leave_desk(&test.backstop, &json!({ "claims": [claim] }).to_string()).await;
            let table = table(&database, strategy)
                .max_records(40)
                .expect("a number");
            let (clock, backstop) = (Arc::clone(&test.clock), test.backstop.clone());
            let table = table.concurrency(1).expect("one");
            let adopted = test.backstop.adopted_table(&calls.table(table, move |_| {
                if backstop.now() < noon().after(Span::secs(11)) {
                    clock.advance(Span::secs(11));
                }
                false
            }));
            let pass = run(&adopted, noon()).await;
            assert_eq!(
                (pass.succeeded, pass.is_cut),
                (40, true),
                "{} {pass:?}",
                database.url()
            );
            let rest = [run(&adopted, noon()).await, run(&adopted, noon()).await];
            assert_eq!(
                rest.map(|pass| pass.succeeded),
                [40, 0],
                "{}",
                database.url()
            );
            let once: BTreeSet<i64> = calls.keys().iter().filter_map(Value::as_i64).collect();
            assert_eq!(
                (once.len(), calls.keys().len()),
                (80, 80),
                "each once: {}",
                database.url()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_leaves_the_failures_of_its_row_as_they_were() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let failed = OpenRow {
            failures: 3,
            last_failure: Some(minutes(-5)),
            ..fresh(minutes(-9))
        };
        insert(&database, Dates::Native, &[(1, "ERROR", failed)]);
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| false));
        assert_eq!(
            run(&adopted, noon()).await.succeeded,
            1,
            "{}",
            database.url()
        );
        let last = Dates::Native.literal(minutes(-5));
        let kept =
            format!("BACKLOG WHERE STATUS = 'SUCCESS' AND FAILURES = 3 AND LAST_FAILURE = {last}");
        assert_eq!(database.count(&kept), 1, "{}", database.url());
    }
}
