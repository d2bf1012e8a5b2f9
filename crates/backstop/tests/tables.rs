//! Adopted tables on SQLite, PostgreSQL and MariaDB: the same rows are due, and the same becomes of them.

mod databases;

use backstop::core::port::Swap;
use backstop::core::table::{Fate, OpenRow};
use backstop::tables::{Adopted, Columns, OnExpired, Pass, Row, States, Table, TableError};
use backstop::testing::{self, Test};
use backstop::{Fail, RetryPolicy, Span, State, Time};
use backstop_testkit::servers::mariadb;
use databases::Database;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const NOON: &str = "2026-03-01T12:00:00Z";
const FIBONACCI: &str = r#"{"kind":"fibonacci","unit":"1m","cap":"1d","max_attempts":"unlimited"}"#;
const PROGRESSIVE: &str = r#"{"kind":"progressive"}"#;

fn noon() -> Time {
    NOON.parse().expect("a time")
}

fn minutes(minutes: i64) -> Time {
    Time::from_micros(noon().as_micros() + minutes * 60_000_000)
}

fn policy(json: &str) -> RetryPolicy {
    RetryPolicy::from_json(json.as_bytes()).expect(json)
}

/// How a table writes its dates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dates {
    Native,
    Text,
    Rfc3339,
    Seconds,
    Millis,
}

impl Dates {
    const ALL: [Self; 5] = [Self::Native, Self::Text, Self::Rfc3339, Self::Seconds, Self::Millis];

    fn type_name(self, database: &Database) -> &'static str {
        match self {
            Self::Native => database.dialect("TEXT", "timestamptz", "DATETIME(6)"),
            Self::Text | Self::Rfc3339 => database.dialect("TEXT", "text", "VARCHAR(40)"),
            Self::Seconds | Self::Millis => "BIGINT",
        }
    }

    /// A time as a literal.
    fn literal(self, time: Time) -> String {
        let text = time.to_string();
        match self {
            Self::Native => format!("'{}'", text.replace('T', " ").trim_end_matches('Z')),
            Self::Text => format!("'{}'", text[..19].replace('T', " ")),
            Self::Rfc3339 => format!("'{text}'"),
            Self::Seconds => (time.as_micros().div_euclid(1_000_000)).to_string(),
            Self::Millis => time.as_millis().to_string(),
        }
    }

    /// The finest step that it can tell.
    const fn step_micros(self) -> i64 {
        match self {
            Self::Native | Self::Rfc3339 => 1,
            Self::Millis => 1_000,
            Self::Text | Self::Seconds => 1_000_000,
        }
    }
}

fn create(database: &Database, dates: Dates) {
    let (time, note) = (dates.type_name(database), database.dialect("TEXT", "text", "VARCHAR(200)"));
    database.sql(&format!(
        "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16) NOT NULL, DATE_INSERTED {time},
         FAILURES INTEGER, LAST_FAILURE {time}, NOTE {note})"
    ));
}

/// The indexes that `check` suggests.
fn create_indexes(database: &Database) {
    database.sql(
        "CREATE INDEX backlog_inserted ON BACKLOG (STATUS, DATE_INSERTED);
         CREATE INDEX backlog_due ON BACKLOG (STATUS, FAILURES, LAST_FAILURE, DATE_INSERTED)",
    );
}

fn insert(database: &Database, dates: Dates, rows: &[(i64, &str, OpenRow)]) {
    for part in rows.chunks(200) {
        let values: Vec<String> = part
            .iter()
            .map(|(id, status, row)| {
                let last = row.last_failure.map_or("NULL".to_owned(), |last| dates.literal(last));
                format!("({id}, '{status}', {}, {}, {last}, 'n')", dates.literal(row.inserted), row.failures)
            })
            .collect();
        database.sql(&format!("INSERT INTO BACKLOG VALUES {}", values.join(", ")));
    }
}

fn fresh(inserted: Time) -> OpenRow {
    OpenRow { inserted, failures: 0, last_failure: None }
}

fn table(database: &Database, strategy: &str) -> Table {
    let table = Table::new("backlog", &database.url(), "BACKLOG").expect("a table");
    table.strategy(&policy(strategy), None).expect("a strategy")
}

/// What handlers were called with, and what they are to answer.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Value>>>);

impl Calls {
    fn keys(&self) -> Vec<Value> {
        self.0.lock().expect("calls").clone()
    }

    fn table(&self, table: Table, fails: impl Fn(&Row) -> bool + Send + Sync + 'static) -> Table {
        let (calls, fails) = (Arc::clone(&self.0), Arc::new(fails));
        table.handler(move |row: Row| {
            calls.lock().expect("calls").push(row.key.clone());
            let fails = fails(&row);
            async move { if fails { Err(Fail::retry("no")) } else { Ok(()) } }
        })
    }
}

async fn run(adopted: &Adopted, at: Time) -> Pass {
    adopted.run_at(at, &mut |_| {}).await.expect("a pass")
}

async fn due(adopted: &Adopted, at: Time) -> Vec<Value> {
    let due = adopted.due(at, None).await.expect("due rows");
    due.into_iter().map(|row| row.key).collect()
}

fn at_noon() -> Test {
    let test = testing::start();
    test.clock.advance(noon().since(test.backstop.now()));
    test
}

/// The status of each row.
async fn states(adopted: &Adopted, at: Time) -> [u64; 3] {
    let status = adopted.status(at).await.expect("a status");
    [status.new, status.error, status.success]
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_not_due_never_starve_rows_that_are() {
    for database in Database::all() {
        for is_indexed in [false, true] {
            let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
            create(&database, Dates::Native);
            if is_indexed {
                create_indexes(&database);
            }
            let failed = OpenRow { inserted: noon(), failures: 6, last_failure: Some(minutes(-1)) };
            let mut rows: Vec<(i64, &str, OpenRow)> =
                (1..=100).map(|id| (id, "ERROR", OpenRow { inserted: minutes(-id), ..failed })).collect();
            rows.push((
                101,
                "ERROR",
                OpenRow { inserted: minutes(-1_000), failures: 1, last_failure: Some(minutes(-1)) },
            ));
            insert(&database, Dates::Native, &rows);
            let (test, calls) = (at_noon(), Calls::default());
            let adopted = test.backstop.adopted(&calls.table(table(&database, FIBONACCI), |_| false));
            let pass = run(&adopted, noon()).await;
            assert_eq!(calls.keys(), [json!(101)], "{}", database.url());
            assert_eq!((pass.due, pass.succeeded, pass.is_cut), (1, 1, false));
            assert_eq!(states(&adopted, noon()).await, [0, 100, 1]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_rows_failure_is_its_own() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[1, 2, 3].map(|id| (id, "NEW", fresh(minutes(-id)))));
        let (test, calls) = (at_noon(), Calls::default());
        let panics = |row: &Row| {
            assert!(row.key != json!(2), "it throws");
            false
        };
        let adopted = test.backstop.adopted(&calls.table(table(&database, FIBONACCI), panics));
        let mut told = Vec::new();
        let pass = adopted.run_at(noon(), &mut |progress| told.push(progress)).await.expect("a pass");
        assert_eq!((pass.succeeded, pass.failed), (2, 1));
        assert_eq!((pass.failures[0].key.clone(), pass.failures[0].error.as_str()), (json!(2), "it throws"));
        assert_eq!(states(&adopted, noon()).await, [0, 1, 2]);
        let last = told.last().expect("told");
        assert_eq!((last.total, last.done(), last.failed), (3, 3, 1));
        assert_eq!(due(&adopted, minutes(1)).await, [json!(2)], "after a minute, and not before");
        assert_eq!(due(&adopted, minutes(1).before(Span::micros(1))).await, Vec::<Value>::new());
    }
}

/// Rows of all kinds and ages, around every border.
fn random_rows(dates: Dates, seed: u64) -> Vec<(i64, &'static str, OpenRow)> {
    let mut state = seed;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let signed = |number: usize| i64::try_from(number).expect("a small number");
    let step = dates.step_micros();
    let ages = [1, 5, 60, 1_440, 7 * 1_440, 14 * 1_440, 30 * 1_440, 180 * 1_440, 360 * 1_440];
    let waits = [1, 2, 3, 5, 8, 13, 21, 1_440];
    let mut rows = Vec::new();
    for id in 1..=400_i64 {
        let status = ["NEW", "ERROR", "ERROR", "SUCCESS", "PARKED"][draw(5)];
        let beside = (signed(draw(3)) - 1) * step;
        let age = ages[draw(ages.len())] + [0, 0, signed(draw(2_000))][draw(3)];
        let inserted = Time::from_micros(minutes(-age).as_micros() + beside);
        let failures = [0, draw(10), draw(70)][draw(3)] as u32;
        let wait = waits[draw(8)] * [1, 1, -1][draw(3)];
        let last = Time::from_micros(minutes(-wait).as_micros() + (signed(draw(3)) - 1) * step);
        let last_failure = (draw(6) > 0).then_some(last);
        rows.push((id, status, OpenRow { inserted, failures, last_failure }));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn the_query_says_what_the_rule_says() {
    const STRATEGIES: [&str; 4] = [
        FIBONACCI,
        r#"{"kind":"exponential","base":"1m","factor":2.0,"cap":"1d","max_attempts":9}"#,
        PROGRESSIVE,
        r#"{"kind":"progressive","bands":[{"until":"1h","every":"7m"},{"until":"8d","every":"13m"}]}"#,
    ];
    for database in Database::all() {
        for (number, dates) in Dates::ALL.into_iter().enumerate() {
            let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
            create(&database, dates);
            let rows = random_rows(dates, number as u64 + 1);
            insert(&database, dates, &rows);
            for is_indexed in [false, true] {
                if is_indexed {
                    create_indexes(&database);
                }
                for strategy in STRATEGIES {
                    check_due(&database, dates, strategy, &rows).await;
                }
            }
        }
    }
}

async fn check_due(database: &Database, dates: Dates, strategy: &str, rows: &[(i64, &str, OpenRow)]) {
    let test = at_noon();
    let table = table(database, strategy).max_records(10_000).expect("a number");
    let adopted = test.backstop.adopted(&Calls::default().table(table.clone(), |_| false));
    let expected = |at: Time, last_pass: Option<Time>| {
        let is_due = |(_, status, row): &&(i64, &str, OpenRow)| {
            matches!(*status, "NEW" | "ERROR") && table.rules().judge(*row, last_pass, at) == Fate::Due
        };
        let mut due: Vec<(Time, i64)> =
            rows.iter().filter(is_due).map(|(id, _, row)| (row.inserted, *id)).collect();
        due.sort_unstable();
        due.into_iter().rev().map(|(_, id)| json!(id)).collect::<Vec<Value>>()
    };
    let told = |at: Time| format!("{} {dates:?} {strategy} at {at}", database.url());
    assert_eq!(due(&adopted, noon()).await, expected(noon(), None), "{}", told(noon()));
    for minute in [-3, 0, 1, 3, 60, 1_440] {
        let at = minutes(minute);
        assert_eq!(due(&adopted, at).await, expected(at, None), "{}", told(at));
    }
    let status = adopted.status(noon()).await.expect("a status");
    let open = rows.iter().filter(|(_, status, _)| matches!(*status, "NEW" | "ERROR"));
    let fates: Vec<Fate> = open.map(|(_, _, row)| table.rules().judge(*row, None, noon())).collect();
    let count = |wanted: fn(&Fate) -> bool| fates.iter().filter(|fate| wanted(fate)).count() as u64;
    let counted = (status.due, status.waiting, status.expired, status.undated);
    let judged = (
        count(|fate| *fate == Fate::Due),
        count(|fate| matches!(fate, Fate::Waits(_))),
        count(|fate| *fate == Fate::Expired),
        0,
    );
    assert_eq!(counted, judged, "{}", told(noon()));
    assert_eq!(adopted.expired(noon(), 1_000).await.expect("a list").len() as u64, judged.2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_always_fails_is_tried_less_and_less_often() {
    for database in Database::all() {
        for dates in Dates::ALL {
            let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
            create(&database, dates);
            insert(&database, dates, &[(1, "NEW", fresh(noon()))]);
            let (test, calls) = (at_noon(), Calls::default());
            let adopted = test.backstop.adopted(&calls.table(table(&database, FIBONACCI), |_| true));
            let mut tries = Vec::new();
            for minute in 0..=60 {
                let pass = run(&adopted, minutes(minute)).await;
                if pass.failed == 1 {
                    tries.push(minute);
                }
            }
            assert_eq!(tries, [0, 1, 2, 4, 7, 12, 20, 33, 54], "{} {dates:?}", database.url());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_age_a_row_is_tried_at_the_ticks_of_its_band_and_once_after_a_downtime() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let rows = [(1, "NEW", fresh(minutes(-10))), (2, "ERROR", fresh(minutes(-3 * 1_440)))];
        insert(&database, Dates::Native, &rows);
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test.backstop.adopted(&calls.table(table(&database, PROGRESSIVE), |_| true));
        let mut tries = BTreeMap::new();
        for minute in [3, 4, 5, 6, 10, 11, 59, 60, 61, 300, 301] {
            let before = calls.keys().len();
            run(&adopted, minutes(minute)).await;
            // Handlers run at once: which of them begins first is nobody's promise.
            let mut tried = calls.keys()[before..].to_vec();
            tried.sort_by_key(Value::as_i64);
            tries.insert(minute, tried);
        }
        let both = vec![json!(1), json!(2)];
        let expected = BTreeMap::from([
            (3, both.clone()),
            (4, vec![]),
            (5, vec![json!(1)]),
            (6, vec![]),
            (10, vec![json!(1)]),
            (11, vec![]),
            (59, vec![json!(1)]),
            (60, both.clone()),
            (61, vec![]),
            (300, both),
            (301, vec![]),
        ]);
        assert_eq!(tries, expected, "{}", database.url());
        run(&adopted, minutes(200)).await;
        let before = calls.keys().len();
        run(&adopted, minutes(201)).await;
        assert_eq!(calls.keys().len(), before, "a clock set back fires nothing at once");
        run(&adopted, minutes(205)).await;
        assert_eq!(calls.keys().len(), before + 1, "and waits for no more than its next tick");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_is_cut_at_the_limit_goes_on_with_the_next_pass() {
    for database in Database::all() {
        create(&database, Dates::Native);
        // Two came in at the same time.
        let rows: Vec<(i64, &str, OpenRow)> =
            (1..=25).map(|id| (id, "ERROR", fresh(minutes(-id / 2)))).collect();
        insert(&database, Dates::Native, &rows);
        let (test, calls) = (at_noon(), Calls::default());
        let table = table(&database, PROGRESSIVE).max_records(10).expect("a number");
        let adopted = test.backstop.adopted(&calls.table(table, |_| true));
        for minute in [5, 6, 7] {
            run(&adopted, minutes(minute)).await;
        }
        let keys: BTreeSet<i64> = calls.keys().iter().filter_map(Value::as_i64).collect();
        assert_eq!(
            (calls.keys().len(), keys.len()),
            (25, 25),
            "each once, however they fail: {}",
            database.url()
        );
        run(&adopted, minutes(8)).await;
        assert_eq!(calls.keys().len(), 25, "that was this tick");
        run(&adopted, minutes(10)).await;
        assert_eq!(calls.keys().len(), 35);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_back_neither_fires_at_once_nor_waits_longer() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "NEW", fresh(minutes(-600)))]);
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test.backstop.adopted(&calls.table(table(&database, FIBONACCI), |_| true));
        run(&adopted, minutes(0)).await;
        let back = run(&adopted, minutes(-60)).await;
        assert_eq!((back.failed, back.redated), (0, 1), "{}", database.url());
        assert_eq!(run(&adopted, minutes(-60).after(Span::secs(59))).await.failed, 0);
        assert_eq!(run(&adopted, minutes(-59)).await.failed, 1);
    }
}

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
async fn names_and_words_are_data_whatever_they_say() {
    const HOSTILE: &str = "x\"; DROP TABLE keep; --`']";
    for database in Database::all() {
        let quote = |name: &str| match &database {
            Database::Mariadb(_) => format!("`{}`", name.replace('`', "``")),
            _ => format!("\"{}\"", name.replace('"', "\"\"")),
        };
        let time = Dates::Native.type_name(&database);
        let named = |part: &str| quote(&format!("{part} {HOSTILE}"));
        let word =
            "it's \\ \" new; --".replace('\'', "''").replace('\\', database.dialect("\\", "\\", "\\\\"));
        database.sql(&format!(
            "CREATE TABLE keep (a INTEGER);
             CREATE TABLE {} ({} VARCHAR(64) PRIMARY KEY, {} VARCHAR(64) NOT NULL, {} {time}, {} INTEGER, {} {time});
             INSERT INTO {} VALUES ('id; DROP TABLE keep', '{word}', '2026-03-01 11:00:00', 0, NULL)",
            named("t"), named("id"), named("status"), named("in"), named("f"), named("l"), named("t")
        ));
        let name = |part: &str| format!("{part} {HOSTILE}");
        let columns = Columns {
            id: name("id"),
            status: name("status"),
            inserted: name("in"),
            failures: name("f"),
            last_failure: name("l"),
        };
        let states =
            States { new: "it's \\ \" new; --".to_owned(), error: "';".to_owned(), ..States::default() };
        let table = Table::new("hostile", &database.url(), &name("t")).expect("a table");
        let table = table.columns(columns).expect("columns").states(states).expect("states");
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test.backstop.adopted(&calls.table(table, |_| true));
        let checked = adopted.check().await.expect("checked");
        assert!(checked.is_fine(), "{} {checked:?}", database.url());
        assert_eq!(run(&adopted, noon()).await.failed, 1, "{}", database.url());
        assert_eq!(adopted.status(noon()).await.expect("a status").error, 1);
        assert_eq!(database.count("keep"), 0, "it is still there");
        let nowhere = Table::new("t", &database.url(), "BACKLOG\"; DROP TABLE keep; --").expect("a table");
        let refused = test.backstop.adopted(&nowhere).due(noon(), None).await;
        assert!(matches!(refused, Err(TableError::NoTable { .. })), "{refused:?}");
        assert_eq!(database.count("keep"), 0);
    }
}

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
async fn what_a_table_lacks_is_said_with_the_statement_that_adds_it() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (ID BIGINT PRIMARY KEY, STATUS VARCHAR(16), DATE_INSERTED {time})"
        ));
        let test = at_noon();
        let adopted = test.backstop.adopted(&table(&database, FIBONACCI));
        let bare = adopted.check().await.expect("checked");
        assert!(!bare.is_fine());
        assert_eq!(bare.missing.len(), 2, "{:?}", bare.missing);
        let refused = adopted.due(noon(), None).await.expect_err("no columns").to_string();
        assert!(refused.contains("FAILURES") && refused.contains("table check"), "{refused}");
        database.sql(&bare.missing.join("\n"));
        let complete = adopted.check().await.expect("checked");
        assert!(complete.is_fine(), "{complete:?}");
        assert_eq!(complete.indexes.iter().filter(|index| index.existing.is_none()).count(), 2);
        assert!(!complete.plan.is_empty());
        for index in &complete.indexes {
            database.sql(&index.ddl.replace("CONCURRENTLY ", ""));
        }
        let indexed = adopted.check().await.expect("checked");
        assert!(indexed.indexes.iter().all(|index| index.existing.is_some()), "{:?}", indexed.indexes);
        assert_eq!(indexed.plan_indexed, Some(indexed.plan.clone()));
        if matches!(database, Database::Sqlite(_)) {
            let plan = complete.plan_indexed.expect("a plan on a copy").join("\n");
            assert!(plan.contains("backlog_due") && plan.contains("backlog_inserted"), "{plan}");
            assert!(!indexed.plan.join("\n").contains("SCAN BACKLOG"), "{:?}", indexed.plan);
        }
    }
}

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
        let adopted = test.backstop.adopted(&calls.table(table.clone(), |_| false));
        let first = run(&adopted, noon()).await;
        assert_eq!((first.succeeded, first.expired, first.buried), (1, 2, 2), "{}", database.url());
        assert_eq!(run(&adopted, minutes(1)).await.buried, 0);
        assert_eq!(adopted.expired(noon(), 10).await.expect("a list"), [json!(2), json!(1)]);
        let queues = test.backstop.store().queues(test.backstop.now()).await.expect("queues");
        let letters = queues.iter().find(|queue| queue.name == table.letters_queue()).expect("letters");
        assert_eq!(letters.counts.of(State::Dead), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_is_shown() {
    let url = mariadb().fresh_url();
    let table = Table::new("t", &url, "nowhere").expect("a table");
    let error = testing::start().backstop.adopted(&table).due(noon(), None).await.expect_err("no table");
    let secret = backstop_testkit::servers::mariadb::PASSWORD;
    assert!(
        !error.to_string().contains(secret) && !format!("{error:?} {table:?}").contains(secret),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_works_its_tables_off_by_itself() {
    for database in Database::all() {
        create(&database, Dates::Native);
        let backstop = backstop::Backstop::open("memory:").await.expect("a store");
        let rows: Vec<(i64, &str, OpenRow)> =
            (1..=40).map(|id| (id, "NEW", fresh(backstop.now().before(Span::minutes(id))))).collect();
        insert(&database, Dates::Native, &rows);
        let calls = Calls::default();
        let table = table(&database, FIBONACCI).every(Span::secs(1)).expect("a period");
        let table = calls.table(table, |row| row.key == json!(7));
        let adopted = backstop.adopted(&table);
        let workers = [0, 1].map(|_| backstop.worker().table(table.clone()).start().expect("a worker"));
        let began = std::time::Instant::now();
        while states(&adopted, backstop.now()).await != [0, 1, 39] {
            assert!(began.elapsed().as_secs() < 20, "{:?}", states(&adopted, backstop.now()).await);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_date_of_nothing_does_not_tell_how_dates_are_written() {
    for database in Database::all() {
        create(&database, Dates::Millis);
        let nothing = OpenRow { last_failure: Some(Time::from_micros(0)), ..fresh(noon()) };
        insert(&database, Dates::Millis, &[(1, "NEW", nothing), (2, "ERROR", nothing)]);
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test.backstop.adopted(&calls.table(table(&database, FIBONACCI), |_| true));
        let pass = run(&adopted, noon()).await;
        assert_eq!((pass.failed, pass.redated), (2, 0), "{}", database.url());
        let written = format!("BACKLOG WHERE LAST_FAILURE = {}", noon().as_millis());
        assert_eq!(database.count(&written), 2, "in milliseconds, as the other date: {}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_date_of_a_failure_is_told_by_rows_that_failed_however_many_did_not() {
    for database in Database::all() {
        create(&database, Dates::Seconds);
        let rows: Vec<(i64, &str, OpenRow)> =
            (2..=150).map(|id| (id, "SUCCESS", fresh(minutes(-id)))).collect();
        insert(&database, Dates::Seconds, &rows);
        // Its owner writes one date in seconds and the other in milliseconds.
        let (inserted, failed) = (Dates::Seconds.literal(minutes(-200)), minutes(-1).as_millis());
        database.sql(&format!("INSERT INTO BACKLOG VALUES (1, 'ERROR', {inserted}, 6, {failed}, 'n')"));
        let (test, calls) = (at_noon(), Calls::default());
        let adopted = test.backstop.adopted(&calls.table(table(&database, FIBONACCI), |_| true));
        let pass = run(&adopted, noon()).await;
        assert_eq!((pass.due, pass.redated), (0, 0), "{}", database.url());
        assert_eq!(database.count(&format!("BACKLOG WHERE LAST_FAILURE = {failed}")), 1, "as it was");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_may_have_the_shortest_of_names() {
    for database in Database::all() {
        let time = Dates::Native.type_name(&database);
        database.sql(&format!(
            "CREATE TABLE BACKLOG (o BIGINT PRIMARY KEY, k VARCHAR(16), d {time}, i INTEGER, u {time})"
        ));
        // The newest have the lowest keys.
        for id in 1..=5 {
            let inserted = Dates::Native.literal(minutes(-id));
            database.sql(&format!("INSERT INTO BACKLOG VALUES ({id}, 'NEW', {inserted}, 0, NULL)"));
        }
        let columns = ["o", "k", "d", "i", "u"].map(str::to_owned);
        let [id, status, inserted, failures, last_failure] = columns;
        let columns = Columns { id, status, inserted, failures, last_failure };
        let test = at_noon();
        for strategy in [FIBONACCI, PROGRESSIVE] {
            let table = table(&database, strategy).columns(columns.clone()).expect("columns");
            let due = test.backstop.adopted(&table).due(noon(), Some(2)).await.expect("due rows");
            let keys: Vec<Value> = due.into_iter().map(|row| row.key).collect();
            assert_eq!(keys, [json!(1), json!(2)], "{}", database.url());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_down_is_not_asked_many_times_a_second() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("postgres://nobody@{}/nowhere", listener.local_addr().expect("an address"));
    let backstop = backstop::Backstop::open("memory:").await.expect("a store");
    // Somebody who is gone left a row, so that there is always something to do.
    let left = Swap {
        name: "tables/backlog/desk".to_owned(),
        seen: None,
        version: 1,
        value: Some(br##"{"orphans":["#1"]}"##.to_vec()),
    };
    backstop.store().swap(vec![left]).await.expect("a desk");
    let table = Calls::default().table(Table::new("backlog", &url, "BACKLOG").expect("a table"), |_| false);
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
        let failed = OpenRow { failures: 6, last_failure: Some(now.before(Span::secs(1))), ..fresh(now) };
        insert(&database, Dates::Seconds, &[(1, "ERROR", failed), (2, "NEW", fresh(now))]);
        // Its last tick is long ago.
        let table = table(&database, FIBONACCI).every(Span::days(365)).expect("a period");
        let adopted = backstop.adopted(&table);
        let worker = backstop.worker().table(Calls::default().table(table, |_| false)).start();
        let worker = worker.expect("a worker");
        let began = std::time::Instant::now();
        while states(&adopted, backstop.now()).await != [0, 1, 1] {
            assert!(began.elapsed().as_secs() < 20, "{}", database.url());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        worker.stop();
        worker.stopped().await;
        let as_it_was = Dates::Seconds.literal(now.before(Span::secs(1)));
        let rows = database.count(&format!("BACKLOG WHERE ID = 1 AND LAST_FAILURE = {as_it_was}"));
        assert_eq!(rows, 1, "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_its_owner_changed_becomes_no_dead_letter() {
    const ONCE: &str = r#"{"kind":"exponential","base":"1m","factor":2.0,"cap":"1d","max_attempts":1}"#;
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "NEW", fresh(noon())), (2, "NEW", fresh(noon()))]);
        let (test, database) = (at_noon(), Arc::new(database));
        let owner = Arc::clone(&database);
        let parks = table(&database, ONCE).on_expired(OnExpired::Dead).handler(move |row: Row| {
            let owner = Arc::clone(&owner);
            async move {
                if row.key == json!(1) {
                    let parks = move || owner.sql("UPDATE BACKLOG SET STATUS = 'PARKED' WHERE ID = 1");
                    tokio::task::spawn_blocking(parks).await?;
                }
                Err(Fail::retry("no"))
            }
        });
        let pass = run(&test.backstop.adopted(&parks), noon()).await;
        assert_eq!((pass.failed, pass.overtaken, pass.buried), (1, 1, 1), "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_in_other_letters_counts_as_the_query_takes_it() {
    for database in Database::all() {
        create(&database, Dates::Native);
        insert(&database, Dates::Native, &[(1, "new", fresh(noon())), (2, "NEW", fresh(noon()))]);
        let test = at_noon();
        let adopted = test.backstop.adopted(&table(&database, FIBONACCI));
        let status = adopted.status(noon()).await.expect("a status");
        let due = due(&adopted, noon()).await.len() as u64;
        assert_eq!((status.new, status.other, status.due), (due, 2 - due, due), "{}", database.url());
        assert_eq!(status.undated, 0, "{}", database.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_came_in_together_all_become_dead_letters() {
    for database in Database::all() {
        for dates in [Dates::Native, Dates::Rfc3339, Dates::Millis] {
            let _ = database.sql("DROP TABLE IF EXISTS BACKLOG");
            create(&database, dates);
            let old = fresh(minutes(-31 * 1_440));
            let rows: Vec<(i64, &str, OpenRow)> = (1..=1_100).map(|id| (id, "ERROR", old)).collect();
            insert(&database, dates, &rows);
            let (test, calls) = (at_noon(), Calls::default());
            let table = table(&database, FIBONACCI).on_expired(OnExpired::Dead);
            let adopted = test.backstop.adopted(&calls.table(table, |_| false));
            let mut buried = Vec::new();
            for minute in 0..4 {
                buried.push(run(&adopted, minutes(minute)).await.buried);
            }
            assert_eq!(buried, [500, 500, 100, 0], "{} {dates:?}", database.url());
        }
    }
}
