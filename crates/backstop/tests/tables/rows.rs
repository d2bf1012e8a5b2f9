//! Keys, failures and values of all types.

use crate::databases::Database;
use crate::ground::{
    Calls, Dates, FIBONACCI, PROGRESSIVE, at_noon, create_indexes, due, minutes, noon, policy, run,
    states, table,
};
use backstop::tables::{ColumnNames, StatusValues, Table, TableRow};
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
        let columns = ColumnNames {
            id: "ID".into(),
            status: "STATE".into(),
            inserted: "CAME".into(),
            ..ColumnNames::default()
        };
        let table = Table::new("orders", &database.url(), "ORDERS")
            .expect("a table")
            .columns(columns)
            .expect("columns");
        let table = table
            .strategy(&policy(PROGRESSIVE), None)
            .expect("a strategy");
        let seen = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&seen);
        let table = table.handler(move |row: TableRow| {
            *kept.lock().expect("seen") = String::from_utf8(row.json().to_vec()).expect("text");
            async { Ok(()) }
        });
        let test = at_noon();
        let adopted = test.backstop.adopted_table(&table);
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
        assert!(
            json.contains("\"huge\":9007199254740993") && json.contains("\"half\":0.1"),
            "{json}"
        );
        assert!(
            json.contains("\"data\":\"/wA=\"") && json.starts_with("{\"id\":\"0190a6c8"),
            "{json}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_may_be_numbers_with_a_part_or_text() {
    for database in Database::all() {
        let types: &[&str] = match &database {
            Database::Sqlite(_) => &["REAL", "TEXT", "DECIMAL(9,2)", ""],
            Database::Postgres(_) => &[
                "real",
                "double precision",
                "numeric(9,2)",
                "text",
                "varchar(9)",
            ],
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
    let adopted = test
        .backstop
        .adopted_table(&calls.table(table(database, FIBONACCI), |_| true));
    assert!(adopted.check().await.expect("checked").is_fine(), "{told}");
    assert_eq!(
        due(&adopted, noon()).await,
        [1, 2, 3, 5].map(|id| json!(id)),
        "{told}"
    );
    let status = adopted.status(noon()).await.expect("a status");
    assert_eq!(
        (status.due, status.waiting, status.undated),
        (4, 1, 0),
        "{told}"
    );
    assert_eq!(run(&adopted, noon()).await.failed, 4, "{told}");
    let next = adopted.status(noon()).await.expect("a status").next_due;
    assert_eq!(
        next,
        Some(noon().after(backstop::Span::secs(1))),
        "the fourth, {told}"
    );
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
        let (time, text) = (
            Dates::Native.type_name(&database),
            database.dialect("INTEGER", "text", "VARCHAR(9)"),
        );
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16) NOT NULL, DATE_INSERTED {time}, FAILURES {text}, LAST_FAILURE {time});
             INSERT INTO BACKLOG VALUES (1, 'ERROR', '2026-03-01 11:00:00', 'many', '2026-03-01 12:00:00')"
        ));
        for is_indexed in [false, true] {
            if is_indexed {
                create_indexes(&database);
            }
            let test = at_noon();
            let adopted = test
                .backstop
                .adopted_table(&Calls::default().table(table(&database, FIBONACCI), |_| true));
            assert_eq!(
                due(&adopted, noon()).await,
                [json!(1)],
                "{}",
                database.url()
            );
            let pass = run(&adopted, noon()).await;
            assert_eq!((pass.failed, pass.overtaken), (1, 0), "{}", database.url());
            assert_eq!(
                due(&adopted, noon()).await,
                Vec::<serde_json::Value>::new(),
                "it has one now"
            );
            database.sql("UPDATE BACKLOG SET FAILURES = 'many'");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_noted_down_is_told_of_and_hides_no_other() {
    for database in Database::all() {
        let (time, text) = (
            Dates::Native.type_name(&database),
            database.dialect("TEXT", "text", "VARCHAR(700)"),
        );
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
            let adopted = test.backstop.adopted_table(&calls.table(table, |_| false));
            assert_eq!(
                due(&adopted, noon()).await,
                [json!(longest)],
                "{}",
                database.url()
            );
            for _ in 0..2 {
                assert_eq!(
                    run(&adopted, noon()).await.succeeded,
                    1,
                    "{}",
                    database.url()
                );
            }
            assert_eq!(calls.keys(), [json!(longest), json!("b")]);
            assert_eq!(
                states(&adopted, noon()).await,
                [unkeyed, 0, 2],
                "{}",
                database.url()
            );
            let status = adopted.status(noon()).await.expect("a status");
            assert_eq!(
                (status.unkeyed, status.undated),
                (2, 0),
                "{}",
                database.url()
            );
            assert!(
                run(&adopted, noon()).await.unkeyed >= 1,
                "{}",
                database.url()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_type_are_claimed_and_written_back() {
    for database in Database::all() {
        let keys: &[(&str, [&str; 2])] = match &database {
            Database::Sqlite(_) => &[
                (
                    "BLOB",
                    [
                        "x'00ff00000000000000000000000000aa'",
                        "x'00ff00000000000000000000000000ab'",
                    ],
                ),
                (
                    "TEXT",
                    ["'0190a6c8-0000-7000-8000-000000000001'", "'it''s'"],
                ),
                ("INTEGER", ["-9223372036854775808", "9223372036854775807"]),
            ],
            Database::Postgres(_) => &[
                (
                    "bytea",
                    [
                        "'\\x00ff00000000000000000000000000aa'",
                        "'\\x00ff00000000000000000000000000ab'",
                    ],
                ),
                (
                    "uuid",
                    [
                        "'0190a6c8-0000-7000-8000-000000000001'",
                        "'0190a6c8-0000-7000-8000-000000000002'",
                    ],
                ),
                (
                    "numeric(20)",
                    ["18446744073709551614", "18446744073709551615"],
                ),
                ("char(8)", ["'a'", "'b '"]),
            ],
            Database::Mariadb(_) => &[
                (
                    "BINARY(16)",
                    [
                        "x'00ff00000000000000000000000000aa'",
                        "x'00ff00000000000000000000000000ab'",
                    ],
                ),
                ("VARBINARY(16)", ["x'6162'", "x'616200'"]),
                (
                    "BIGINT UNSIGNED",
                    ["18446744073709551614", "18446744073709551615"],
                ),
                (
                    "DECIMAL(20)",
                    ["18446744073709551614", "18446744073709551615"],
                ),
            ],
        };
        for (type_name, [fails, succeeds]) in keys {
            let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
            let time = Dates::Native.type_name(&database);
            database.sql(&format!(
                "CREATE TABLE BACKLOG (ID {type_name} PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time}, FAILURES INTEGER, LAST_FAILURE {time}, NOTE VARCHAR(9));
                 INSERT INTO BACKLOG VALUES ({fails}, 'NEW', '2026-03-01 11:00:00', 0, NULL, 'fails'), ({succeeds}, 'NEW', '2026-03-01 10:00:00', 0, NULL, 'works')"
            ));
            let told = format!("{} {type_name}", database.url());
            let (test, calls) = (at_noon(), Calls::default());
            let is_first = |row: &TableRow| {
                row.attempt == 1 && String::from_utf8_lossy(row.json()).contains("fails")
            };
            let adopted = test
                .backstop
                .adopted_table(&calls.table(table(&database, FIBONACCI), is_first));
            let pass = run(&adopted, noon()).await;
            assert_eq!(
                (pass.failed, pass.succeeded, pass.overtaken),
                (1, 1, 0),
                "{told}"
            );
            let failed = "BACKLOG WHERE NOTE = 'fails' AND STATUS = 'ERROR' AND FAILURES = 1";
            assert_eq!(database.count(failed), 1, "{told}");
            assert_eq!(run(&adopted, minutes(1)).await.succeeded, 1, "{told}");
            assert_eq!(states(&adopted, minutes(1)).await, [0, 0, 2], "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_bytes_are_one_line_of_base64_and_columns_made_of_others_are_there() {
    for database in Database::all() {
        let (time, blob) = (
            Dates::Native.type_name(&database),
            database.dialect("BLOB", "bytea", "VARBINARY(200)"),
        );
        let zeros = "00".repeat(150);
        let bytes = match &database {
            Database::Postgres(_) => format!("'\\x{zeros}'"),
            _ => format!("x'{zeros}'"),
        };
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time}, FAILURES INTEGER, LAST_FAILURE {time}, DATA {blob},
             DOUBLED BIGINT GENERATED ALWAYS AS (ID * 2) STORED);
             INSERT INTO BACKLOG (ID, STATUS, DATE_INSERTED, FAILURES, DATA) VALUES (21, 'NEW', '2026-03-01 11:00:00', 0, {bytes})"
        ));
        if matches!(database, Database::Sqlite(_)) {
            database.sql("ALTER TABLE BACKLOG ADD COLUMN TRIPLED BIGINT AS (ID * 3) VIRTUAL");
        }
        let seen = Arc::new(Mutex::new(serde_json::Value::Null));
        let kept = Arc::clone(&seen);
        let table = table(&database, FIBONACCI).handler(move |row: TableRow| {
            let json = String::from_utf8(row.json().to_vec())
                .expect("text")
                .to_lowercase();
            *kept.lock().expect("seen") = serde_json::from_str(&json).expect("JSON");
            async { Ok(()) }
        });
        let test = at_noon();
        assert_eq!(
            run(&test.backstop.adopted_table(&table), noon())
                .await
                .succeeded,
            1,
            "{}",
            database.url()
        );
        let row = seen.lock().expect("seen").clone();
        assert_eq!(row["data"], json!("a".repeat(200)), "{}", database.url());
        assert_eq!(row["doubled"], json!(42), "{}", database.url());
        if matches!(database, Database::Sqlite(_)) {
            assert_eq!(row["tripled"], json!(63));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_a_status_may_be_numbers() {
    for database in Database::all() {
        for strategy in [FIBONACCI, PROGRESSIVE] {
            let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
            let time = Dates::Native.type_name(&database);
            database.sql(&format!(
                "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS INTEGER NOT NULL, DATE_INSERTED {time}, FAILURES INTEGER, LAST_FAILURE {time});
                 INSERT INTO BACKLOG VALUES (1, 0, '2026-03-01 11:00:00', 0, NULL), (2, 10, '2026-03-01 10:00:00', 0, NULL), (3, 7, '2026-03-01 09:00:00', 0, NULL)"
            ));
            create_indexes(&database);
            let [new, error, success] = ["0", "10", "20"].map(str::to_owned);
            let words = StatusValues {
                new,
                error,
                success,
            };
            let (test, calls) = (at_noon(), Calls::default());
            let table = table(&database, strategy).states(words).expect("states");
            let adopted = test
                .backstop
                .adopted_table(&calls.table(table, |row| row.key == json!(2)));
            assert!(
                adopted.check().await.expect("checked").is_fine(),
                "{}",
                database.url()
            );
            assert_eq!(
                due(&adopted, noon()).await,
                [json!(1), json!(2)],
                "{}",
                database.url()
            );
            let pass = run(&adopted, noon()).await;
            assert_eq!(
                (pass.succeeded, pass.failed, pass.overtaken),
                (1, 1, 0),
                "{}",
                database.url()
            );
            assert_eq!(
                states(&adopted, noon()).await,
                [0, 1, 1],
                "{}",
                database.url()
            );
            assert_eq!(
                database.count("BACKLOG WHERE STATUS = 20"),
                1,
                "{}",
                database.url()
            );
        }
    }
}
