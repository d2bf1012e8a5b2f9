//! Rows that their owner has locked, in a transaction that is open: where there are such locks, a
//! pass leaves them out and goes on.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, PROGRESSIVE, at_noon, create, create_anew, due, fresh, insert,
    minutes, noon, run, table,
};
use backstop::core::table::OpenRow;
use mysql_async::prelude::Queryable;
use serde_json::json;

/// Somebody else with a transaction that is open.
enum Owner {
    Postgres(tokio_postgres::Client),
    Mariadb(mysql_async::Conn),
}

impl Owner {
    /// Has a row locked.
    async fn of(database: &Database, id: i64) -> Self {
        let lock = format!("SELECT ID FROM BACKLOG WHERE ID = {id} FOR UPDATE");
        if let Database::Mariadb(url) = database {
            let mut conn = mysql_async::Conn::from_url(url)
                .await
                .expect("a connection");
            conn.query_drop("START TRANSACTION")
                .await
                .expect("a transaction");
            conn.query_drop(lock).await.expect("a lock");
            return Self::Mariadb(conn);
        }
        let connected = tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("a connection");
        tokio::spawn(connection);
        client
            .batch_execute(&format!("BEGIN; {lock}"))
            .await
            .expect("a lock");
        Self::Postgres(client)
    }

    async fn lets_go(self) {
        match self {
            Self::Postgres(client) => client.batch_execute("ROLLBACK").await.expect("the end"),
            Self::Mariadb(mut conn) => {
                conn.query_drop("ROLLBACK").await.expect("the end");
                conn.disconnect().await.expect("the end");
            }
        }
    }
}

/// SQLite has no locks of rows: who writes has the whole file.
fn with_row_locks() -> impl Iterator<Item = Database> {
    Database::all()
        .into_iter()
        .filter(|database| !matches!(database, Database::Sqlite(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_is_left_out_and_tried_by_the_next_pass_that_gets_it() {
    for database in with_row_locks() {
        for strategy in [FIBONACCI, PROGRESSIVE] {
            create_anew(&database, Dates::Native, false);
            insert(
                &database,
                Dates::Native,
                &[1, 2, 3].map(|id| (id, "NEW", fresh(minutes(-id)))),
            );
            let (test, calls) = (at_noon(), Calls::default());
            let table = table(&database, strategy).concurrency(1).expect("one");
            let adopted = test.backstop.adopted_table(&calls.table(table, |_| true));
            let owner = Owner::of(&database, 2).await;
            let pass = run(&adopted, noon()).await;
            assert_eq!(
                (pass.failed, pass.overtaken),
                (2, 1),
                "{} {strategy}",
                database.url()
            );
            assert_eq!(calls.keys(), [json!(1), json!(3)], "{}", database.url());
            // No tick of any age fires in this minute, and no failure is a minute old.
            let half_past = noon().after(backstop::Span::secs(30));
            assert_eq!(
                due(&adopted, half_past).await,
                [json!(2)],
                "{} {strategy}",
                database.url()
            );
            assert_eq!(
                run(&adopted, half_past).await.failed,
                0,
                "still locked: {}",
                database.url()
            );
            owner.lets_go().await;
            assert_eq!(
                due(&adopted, half_past).await,
                [json!(2)],
                "{} {strategy}",
                database.url()
            );
            assert_eq!(
                run(&adopted, half_past).await.failed,
                1,
                "{} {strategy}",
                database.url()
            );
            assert_eq!(calls.keys()[2..], [json!(2)], "{}", database.url());
            assert_eq!(
                run(&adopted, half_past).await.failed,
                0,
                "{} {strategy}",
                database.url()
            );
            let all = run(&adopted, minutes(5)).await.failed;
            assert_eq!(
                all,
                3,
                "each at its next tick, or after its wait: {} {strategy}",
                database.url()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_that_is_gone_or_done_when_it_is_let_go_is_not_tried() {
    for database in with_row_locks() {
        create(&database, Dates::Native);
        insert(
            &database,
            Dates::Native,
            &[1, 2, 3].map(|id| (id, "NEW", fresh(minutes(-id)))),
        );
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, PROGRESSIVE), |_| true));
        let owners = [Owner::of(&database, 1).await, Owner::of(&database, 2).await];
        assert_eq!(
            run(&adopted, noon()).await.overtaken,
            2,
            "{}",
            database.url()
        );
        for owner in owners {
            owner.lets_go().await;
        }
        database.sql(
            "DELETE FROM BACKLOG WHERE ID = 1; UPDATE BACKLOG SET STATUS = 'SUCCESS' WHERE ID = 2",
        );
        assert_eq!(run(&adopted, minutes(1)).await.due, 0, "{}", database.url());
        assert_eq!(
            run(&adopted, minutes(5)).await.failed,
            1,
            "{}",
            database.url()
        );
        assert_eq!(calls.keys(), [json!(3), json!(3)], "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_that_failed_in_the_future_holds_up_no_other() {
    let held_up = with_row_locks().map(|database| async move {
        create(&database, Dates::Native);
        let ahead = OpenRow {
            failures: 1,
            last_failure: Some(minutes(60)),
            ..fresh(minutes(-9))
        };
        insert(
            &database,
            Dates::Native,
            &[(1, "ERROR", ahead), (2, "NEW", fresh(minutes(-1)))],
        );
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test
            .backstop
            .adopted_table(&calls.table(table(&database, FIBONACCI), |_| false));
        let owner = Owner::of(&database, 1).await;
        let pass = run(&adopted, noon()).await;
        assert_eq!((pass.succeeded, pass.redated), (1, 0), "{}", database.url());
        owner.lets_go().await;
        assert_eq!(run(&adopted, noon()).await.redated, 1, "{}", database.url());
        assert_eq!(
            run(&adopted, minutes(1)).await.succeeded,
            1,
            "{}",
            database.url()
        );
    });
    // Each of them waits for its lock.
    futures_util::future::join_all(held_up).await;
}
