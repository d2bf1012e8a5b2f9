//! Keys, failures and values of all types.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, PROGRESSIVE, at_noon, create_indexes, due, minutes, noon, policy, run, states,
    table,
};
use backstop::tables::{Columns, Row, Table};
use serde_json::json;
use std::sync::{Arc, Mutex};

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_numbers_text_or_uuids_and_rows_keep_their_digits() {
    for database in Database::all() {
        let (uuid, big) = (
            database.dialect("TEXT", "uuid", "CHAR(36)"),
            database.dialect("TEXT", "numeric(40,2)", "DECIMAL(40,2)"),
        );
        let (blob, bytes) = (
            database.dialect("BLOB", "bytea", "VARBINARY(10)"),
            database.dialect("x'ff00'", "'\\xff00'", "x'ff00'"),
        );
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE orders (id {uuid} PRIMARY KEY, state VARCHAR(9), came {time}, amount {big}, huge BIGINT, half DOUBLE PRECISION, data {blob});
             INSERT INTO orders VALUES ('0190a6c8-0000-7000-8000-000000000001', 'NEW', '2026-03-01 11:00:00', '123456789012345678901234567890.10', 9007199254740993, 0.1, {bytes})"
        ));
        let columns = Columns {
            id: "ID".into(),
            status: "STATE".into(),
            inserted: "CAME".into(),
            ..Columns::default()
        };
        let table = Table::new("orders", &database.url(), "ORDERS")
            .expect("a table")
            .columns(columns)
            .expect("columns");
        let table = table.strategy(&policy(PROGRESSIVE), None).expect("a strategy");
        let seen = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&seen);
        let table = table.handler(move |row: Row| {
            *kept.lock().expect("seen") = String::from_utf8(row.json().to_vec()).expect("text");
            async { Ok(()) }
        });
        let test = at_noon();
        let adopted = test.backstop.adopted(&table);
        assert_eq!(
            due(&adopted, noon()).await,
            [json!("0190a6c8-0000-7000-8000-000000000001")],
            "{}",
            database.url()
        );
        assert_eq!(run(&adopted, noon()).await.succeeded, 1);
        let json = seen.lock().expect("seen").clone();
        let amount = database.dialect(
            "\"amount\":\"123456789012345678901234567890.10\"",
            "\"amount\":123456789012345678901234567890.10",
            "\"amount\":123456789012345678901234567890.10",
        );
        assert!(json.contains(amount), "{json}");
        assert!(json.contains("\"huge\":9007199254740993") && json.contains("\"half\":0.1"), "{json}");
        assert!(json.contains("\"data\":\"/wA=\"") && json.starts_with("{\"id\":\"0190a6c8"), "{json}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_may_be_numbers_with_a_part_or_text() {
    for database in Database::all() {
        let types: &[&str] = match &database {
            Database::Sqlite(_) => &["REAL", "TEXT", "DECIMAL(9,2)", ""],
            Database::Postgres(_) => &["real", "double precision", "numeric(9,2)", "text", "varchar(9)"],
            Database::Mariadb(_) => &["FLOAT", "DOUBLE", "DECIMAL(9,2)", "VARCHAR(9)"],
        };
        for type_name in types {
            let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
            let time = Dates::Native.type_name(&database);
            database.sql(&format!(
                "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16) NOT NULL, DATE_INSERTED {time},
                 FAILURES {type_name}, LAST_FAILURE {time});
                 INSERT INTO BACKLOG VALUES (1, 'NEW', '2026-03-01 11:00:00', '0', NULL), (2, 'ERROR', '2026-03-01 10:00:00', '10', '2026-03-01 11:05:00'),
                 (3, 'ERROR', '2026-03-01 09:00:00', '6', '2026-03-01 11:52:00'), (4, 'ERROR', '2026-03-01 08:00:00', '6', '2026-03-01 11:52:01'),
                 (5, 'NEW', '2026-03-01 07:00:00', NULL, NULL)"
            ));
            create_indexes(&database);
            check_failures(&database, type_name).await;
        }
    }
}

async fn check_failures(database: &Database, type_name: &str) {
    let told = format!("{} {type_name}", database.url());
    let (test, calls) = (at_noon(), Calls::default());
    let adopted = test.backstop.adopted(&calls.table(table(database, FIBONACCI), |_| true));
    assert!(adopted.check().await.expect("checked").is_fine(), "{told}");
    assert_eq!(due(&adopted, noon()).await, [1, 2, 3, 5].map(|id| json!(id)), "{told}");
    let status = adopted.status(noon()).await.expect("a status");
    assert_eq!((status.due, status.waiting, status.undated), (4, 1, 0), "{told}");
    assert_eq!(run(&adopted, noon()).await.failed, 4, "{told}");
    let next = adopted.status(noon()).await.expect("a status").next_due;
    assert_eq!(next, Some(noon().after(backstop::Span::secs(1))), "the fourth, {told}");
    let mut tries = Vec::new();
    for minute in 1..=12 {
        let before = calls.keys().len();
        run(&adopted, minutes(minute)).await;
        if calls.keys()[before..].contains(&json!(1)) {
            tries.push(minute);
        }
    }
    assert_eq!(tries, [1, 2, 4, 7, 12], "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_that_are_no_number_count_as_none() {
    for database in Database::all() {
        let (time, text) =
            (Dates::Native.type_name(&database), database.dialect("INTEGER", "text", "VARCHAR(9)"));
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16) NOT NULL, DATE_INSERTED {time}, FAILURES {text}, LAST_FAILURE {time});
             INSERT INTO BACKLOG VALUES (1, 'ERROR', '2026-03-01 11:00:00', 'many', '2026-03-01 12:00:00')"
        ));
        for is_indexed in [false, true] {
            if is_indexed {
                create_indexes(&database);
            }
            let test = at_noon();
            let adopted =
                test.backstop.adopted(&Calls::default().table(table(&database, FIBONACCI), |_| true));
            assert_eq!(due(&adopted, noon()).await, [json!(1)], "{}", database.url());
            let pass = run(&adopted, noon()).await;
            assert_eq!((pass.failed, pass.overtaken), (1, 0), "{}", database.url());
            assert_eq!(due(&adopted, noon()).await, Vec::<serde_json::Value>::new(), "it has one now");
            database.sql("UPDATE BACKLOG SET FAILURES = 'many'");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_noted_down_is_told_of_and_hides_no_other() {
    for database in Database::all() {
        let (time, text) =
            (Dates::Native.type_name(&database), database.dialect("TEXT", "text", "VARCHAR(700)"));
        let (longest, too_long) = ("k".repeat(512), "é".repeat(257));
        // The newest are those that cannot be taken.
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID {text} UNIQUE, STATUS VARCHAR(16) NOT NULL, DATE_INSERTED {time}, FAILURES INTEGER, LAST_FAILURE {time});
             INSERT INTO BACKLOG VALUES ('{too_long}', 'NEW', '2026-03-01 11:59:00', 0, NULL), (NULL, 'NEW', '2026-03-01 11:58:00', 0, NULL),
             ('{longest}', 'NEW', '2026-03-01 11:00:00', 0, NULL), ('b', 'NEW', '2026-03-01 10:00:00', 0, NULL)"
        ));
        let mut unkeyed = 2;
        if matches!(database, Database::Sqlite(_)) {
            database.sql(
                "INSERT INTO BACKLOG VALUES (CAST(x'ff41' AS TEXT), 'NEW', '2026-03-01 11:59:30', 0, NULL)",
            );
            unkeyed = 3;
        }
        for strategy in [FIBONACCI, PROGRESSIVE] {
            database.sql("UPDATE BACKLOG SET STATUS = 'NEW'");
            let (test, calls) = (at_noon(), Calls::default());
            let table = table(&database, strategy).max_records(1).expect("a number");
            let adopted = test.backstop.adopted(&calls.table(table, |_| false));
            assert_eq!(due(&adopted, noon()).await, [json!(longest)], "{}", database.url());
            for _ in 0..2 {
                assert_eq!(run(&adopted, noon()).await.succeeded, 1, "{}", database.url());
            }
            assert_eq!(calls.keys(), [json!(longest), json!("b")]);
            assert_eq!(states(&adopted, noon()).await, [unkeyed, 0, 2], "{}", database.url());
            let status = adopted.status(noon()).await.expect("a status");
            assert_eq!((status.unkeyed, status.undated), (2, 0), "{}", database.url());
            assert!(run(&adopted, noon()).await.unkeyed >= 1, "{}", database.url());
        }
    }
}
