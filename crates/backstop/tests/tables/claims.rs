//! Rows in hand: whose they are, and what becomes of them.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, at_noon, create, due, fresh, insert, minutes, noon, run, states, table,
};
use backstop::core::table::OpenRow;
use backstop::tables::Row;
use backstop::{Fail, Span};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn the_owners_own_change_stands() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "NEW", fresh(noon())), (2, "NEW", fresh(noon()))]);
        let test = at_noon();
        let database = Arc::new(database);
        let owner = Arc::clone(&database);
        let parks = table(&database, FIBONACCI).handler(move |row: Row| {
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
        let adopted = test.backstop.adopted(&parks);
        let pass = run(&adopted, noon()).await;
        assert_eq!((pass.succeeded, pass.overtaken), (1, 1), "{}", database.url());
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
        let snoozes =
            table(&database, FIBONACCI).handler(|_: Row| async { Err(Fail::snooze(Span::secs(1))) });
        let adopted = test.backstop.adopted(&snoozes);
        assert_eq!(run(&adopted, noon()).await.released, 1);
        assert_eq!(due(&adopted, noon()).await, [json!(1)]);
        assert_eq!(adopted.status(noon()).await.expect("a status").in_hand, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runners_never_share_a_row() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows: Vec<(i64, &str, OpenRow)> = (1..=300).map(|id| (id, "NEW", fresh(minutes(-id)))).collect();
        insert(&database, Dates::Native, &rows);
        let test = at_noon();
        let calls = Calls::default();
        let table = table(&database, FIBONACCI).max_records(300).expect("a number");
        let adopted =
            test.backstop.adopted(&calls.table(table, |row| row.key.as_i64().is_some_and(|id| id % 3 == 0)));
        let runs = (0..4).map(|_| {
            let adopted = adopted.clone();
            tokio::spawn(async move { run(&adopted, noon()).await })
        });
        let mut done = 0;
        for pass in futures_util::future::join_all(runs).await {
            let pass = pass.expect("a pass");
            done += pass.succeeded + pass.failed;
        }
        let keys: BTreeSet<i64> = calls.keys().iter().filter_map(Value::as_i64).collect();
        assert_eq!((calls.keys().len(), keys.len(), done), (300, 300, 300), "{}", database.url());
        assert_eq!(states(&adopted, noon()).await, [0, 100, 200]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_that_fails_leaves_no_handler_at_work() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows: Vec<(i64, &str, OpenRow)> = (1..=40).map(|id| (id, "NEW", fresh(minutes(-id)))).collect();
        insert(&database, Dates::Native, &rows);
        let (test, database) = (at_noon(), Arc::new(database));
        let (began, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (is_broken, _) = tokio::sync::watch::channel(false);
        let handled = {
            let (owner, began, ended) = (Arc::clone(&database), Arc::clone(&began), Arc::clone(&ended));
            table(&database, FIBONACCI).handler(move |row: Row| {
                let (owner, ended, is_broken) = (Arc::clone(&owner), Arc::clone(&ended), is_broken.clone());
                began.fetch_add(1, Ordering::SeqCst);
                async move {
                    if row.key == json!(1) {
                        // The next rows cannot be read any more; those at work can be written.
                        let breaks = move || owner.sql("ALTER TABLE BACKLOG DROP COLUMN NOTE");
                        tokio::task::spawn_blocking(breaks).await?;
                        is_broken.send_replace(true);
                        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                    }
                    is_broken.subscribe().wait_for(|is_broken| *is_broken).await?;
                    ended.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                }
            })
        };
        let adopted = test.backstop.adopted(&handled);
        adopted.run_at(noon(), &mut |_| {}).await.expect_err("a column is gone");
        let (began, ended) = (began.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
        assert_eq!(began, ended, "{}", database.url());
        assert_eq!(states(&adopted, noon()).await, [40 - began, 0, began], "what was done is written");
    }
}
