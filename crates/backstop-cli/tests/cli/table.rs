//! Tables that somebody has already, worked off by the command line.

use crate::place::{Place, ended, json_args, signal, wait_until};
use crate::stores::on_every_store;
use backstop_testkit::servers;
use rusqlite::Connection;
use serde_json::{Value, json};

on_every_store! {
    the_second_of_three_rows_fails_and_the_others_succeed,
    rows_are_tried_by_their_age_and_once_a_tick,
}

/// Noon of the day on which these rows are looked at.
const NOON: &str = "2026-03-01T12:00:00Z";
const MINUTE: &str = "2026-03-01T12:01:00Z";

const INVOICES: &str = r#"
[tables.invoices]
url = "sqlite:app.db"
table = "BACKLOG"
strategy = { kind = "fibonacci", unit = "1m", cap = "1d" }
max_age = "90d"
"#;

const COLUMNS: &str = "ID INTEGER PRIMARY KEY, STATUS TEXT NOT NULL, DATE_INSERTED TEXT NOT NULL";
const FAILED: &str = "FAILURES INTEGER NOT NULL DEFAULT 0, LAST_FAILURE TEXT";
/// The article's: 8 minutes, 5 hours, 3 days and 2 months old.
const ROWS: &str = "INSERT INTO BACKLOG (ID, STATUS, DATE_INSERTED) VALUES (1, 'NEW', '2026-01-01 12:00:00'),
    (2, 'NEW', '2026-02-26 12:00:00'), (3, 'NEW', '2026-03-01 07:00:00'), (4, 'NEW', '2026-03-01 11:52:00');";

fn db(place: &Place) -> Connection {
    Connection::open(place.path("app.db")).unwrap()
}

fn with_rows(place: &Place) {
    place.write("backstop.toml", INVOICES);
    db(place)
        .execute_batch(&format!(
            "CREATE TABLE BACKLOG ({COLUMNS}, {FAILED}); {ROWS}"
        ))
        .unwrap();
}

/// Ids and states, newest first.
fn states(place: &Place) -> Vec<(i64, String)> {
    let db = db(place);
    let mut asked = db
        .prepare("SELECT ID, STATUS FROM BACKLOG ORDER BY DATE_INSERTED DESC")
        .unwrap();
    let rows = asked
        .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

fn due(place: &Place, at: &str) -> Value {
    place.json(["table", "due", "invoices", "--at", at])
}

/// A command that fails for these ids, which stand in the row that it gets.
fn failing(ids: &str) -> String {
    format!(
        r#"read row; for id in {ids}; do case "$row" in *'"ID":'$id,*) echo "no $id" >&2; exit 1;; esac; done"#
    )
}

fn the_second_of_three_rows_fails_and_the_others_succeed(place: &Place) {
    with_rows(place);
    db(place)
        .execute("DELETE FROM BACKLOG WHERE ID = 1", ())
        .unwrap();
    assert_eq!(due(place, NOON), json!({ "due": [4, 3, 2] }));
    let pass = place.json([
        "table",
        "run",
        "invoices",
        "--at",
        NOON,
        "--exec",
        &failing("3"),
    ]);
    assert_eq!(
        (&pass["due"], &pass["succeeded"], &pass["failed"]),
        (&json!(3), &json!(2), &json!(1)),
        "{pass}"
    );
    assert_eq!(pass["failures"], json!([{ "id": 3, "error": "no 3" }]));
    let became =
        [(4, "SUCCESS"), (3, "ERROR"), (2, "SUCCESS")].map(|(id, state)| (id, state.to_owned()));
    assert_eq!(states(place), became);
    assert_eq!(due(place, "2026-03-01T12:00:59Z"), json!({ "due": [] }));
    assert_eq!(
        due(place, MINUTE),
        json!({ "due": [3] }),
        "a minute after its first failure, to the second"
    );
    let written: (i64, String) = db(place)
        .query_row(
            "SELECT FAILURES, LAST_FAILURE FROM BACKLOG WHERE ID = 3",
            (),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(
        written,
        (1, "2026-03-01 12:00:00".to_owned()),
        "in the form in which the table writes its dates"
    );
    let told = place
        .run(["table", "run", "invoices", "--at", MINUTE, "--exec", "true"])
        .succeeded()
        .stdout;
    assert!(
        told.starts_with("invoices: 1 due, 1 succeeded, 0 failed in "),
        "{told}"
    );
}

fn rows_are_tried_by_their_age_and_once_a_tick(place: &Place) {
    place.write(
        "backstop.toml",
        &INVOICES.replace(
            "{ kind = \"fibonacci\", unit = \"1m\", cap = \"1d\" }",
            "{ kind = \"progressive\" }",
        ),
    );
    db(place)
        .execute_batch(&format!("CREATE TABLE BACKLOG ({COLUMNS}); {ROWS}"))
        .unwrap();
    let run = |at: &str| {
        let pass = place.json(["table", "run", "invoices", "--at", at, "--exec", "exit 1"]);
        pass["failed"].as_u64().unwrap()
    };
    assert_eq!(
        due(place, NOON),
        json!({ "due": [4, 3, 2, 1] }),
        "nobody was ever here"
    );
    assert_eq!(run(NOON), 4);
    assert_eq!(run(NOON), 0, "that tick is over");
    assert_eq!(due(place, "2026-03-01T12:04:59Z"), json!({ "due": [] }));
    assert_eq!(due(place, "2026-03-01T12:05:00Z"), json!({ "due": [4, 3] }));
    assert_eq!(
        due(place, "2026-03-01T13:00:00Z"),
        json!({ "due": [4, 3, 2] })
    );
    assert_eq!(run("2026-03-01T12:05:00Z"), 2);
    let status = place.json([
        "table",
        "status",
        "invoices",
        "--at",
        "2026-03-01T12:05:00Z",
    ]);
    assert_eq!(
        (&status["due"], &status["next_due"]),
        (&json!(0), &json!("2026-03-01T12:10:00Z")),
        "{status}"
    );
    assert_eq!(
        status["bands"][0],
        json!({ "until": "1d", "every": "5m", "new": 0, "error": 2 })
    );
}

#[test]
fn newer_rows_that_are_not_due_do_not_starve_an_older_one_that_is() {
    let place = Place::new();
    place.write("backstop.toml", INVOICES);
    db(&place)
        .execute_batch(&format!(
            "CREATE TABLE BACKLOG ({COLUMNS}, {FAILED});
             WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n <= 100)
             INSERT INTO BACKLOG SELECT n, 'ERROR', '2026-03-01 11:00:00', 6, '2026-03-01 11:59:00' FROM n;
             INSERT INTO BACKLOG VALUES (1, 'ERROR', '2026-02-20 12:00:00', 6, '2026-03-01 11:52:00');"
        ))
        .unwrap();
    assert_eq!(due(&place, NOON), json!({ "due": [1] }));
    let pass = place.json(["table", "run", "invoices", "--at", NOON, "--exec", "true"]);
    assert_eq!(
        (&pass["due"], &pass["succeeded"]),
        (&json!(1), &json!(1)),
        "{pass}"
    );
}

#[test]
fn status_counts_by_state_and_age_and_lists_what_is_expired() {
    let place = Place::new();
    with_rows(&place);
    place.write("backstop.toml", &INVOICES.replace("90d", "30d"));
    place.json([
        "table",
        "run",
        "invoices",
        "--at",
        NOON,
        "--exec",
        &failing("4"),
    ]);
    let status = place.json(["table", "status", "invoices", "--at", NOON, "--expired"]);
    assert_eq!(
        status["states"],
        json!({ "new": 1, "error": 1, "success": 2, "other": 0 }),
        "{status}"
    );
    assert_eq!(
        (&status["expired"], &status["expired_rows"]),
        (&json!(1), &json!([1]))
    );
    assert_eq!((&status["due"], &status["waiting"]), (&json!(0), &json!(1)));
    assert_eq!(
        (&status["next_due"], &status["last_pass"]),
        (&json!(MINUTE), &json!(NOON))
    );
    let bands = status["bands"].as_array().unwrap();
    assert_eq!(bands[0]["error"], 1, "{status}");
    assert_eq!(
        bands
            .iter()
            .map(|band| band["new"].as_u64().unwrap())
            .sum::<u64>(),
        1
    );
    let told = place
        .run(["table", "status", "invoices", "--at", NOON])
        .succeeded();
    for part in [
        "invoices: 1 new, 1 error, 2 success",
        "0 due, 1 waiting, 1 expired; the next is due in 1m",
        "AGE\t",
        "up to 1d\t",
    ] {
        assert!(told.stdout.contains(part), "{part}: {told:#?}");
    }
    assert!(
        told.stderr
            .contains("backstop table status invoices --expired"),
        "{told:#?}"
    );
    let listed = place
        .run(["table", "status", "invoices", "--at", NOON, "--expired"])
        .succeeded()
        .stdout;
    assert!(listed.ends_with("EXPIRED ROW\n1\n"), "{listed}");
    place.write(
        "backstop.toml",
        &(INVOICES.replace("90d", "30d") + "on_expired = \"dead\"\n"),
    );
    let pass = place.json(["table", "run", "invoices", "--at", NOON, "--exec", "true"]);
    assert_eq!(
        (&pass["expired"], &pass["buried"]),
        (&json!(1), &json!(1)),
        "{pass}"
    );
    assert_eq!(
        place.json(["dead", "stats"])["queues"],
        json!({ "tables.invoices": 1 })
    );
}

#[test]
fn check_prints_what_is_missing_and_the_index_that_helps() {
    let place = Place::new();
    place.write("backstop.toml", INVOICES);
    db(&place)
        .execute_batch(&format!("CREATE TABLE BACKLOG ({COLUMNS}); {ROWS}"))
        .unwrap();
    let short = place
        .run(json_args(["table", "check", "invoices"]))
        .exits(1)
        .json();
    assert_eq!(short["fine"], false);
    let missing = short["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 2, "{short}");
    let told = place.run(["table", "check", "invoices"]).exits(1).stdout;
    assert!(
        told.contains("FAILURES (not there)") && told.contains(missing[0].as_str().unwrap()),
        "{told}"
    );
    for statement in missing {
        db(&place)
            .execute_batch(statement.as_str().unwrap())
            .unwrap();
    }
    let fine = place.json(["table", "check", "invoices", "--at", NOON]);
    assert_eq!(
        (&fine["fine"], &fine["missing"]),
        (&json!(true), &json!([])),
        "{fine}"
    );
    let plan = |checked: &Value, of: &str| checked[of].to_string();
    assert!(plan(&fine, "plan").contains("SCAN"), "{fine}");
    assert!(
        plan(&fine, "plan_indexed").contains("INDEX backlog_"),
        "{fine}"
    );
    let check = ["table", "check", "invoices", "--at", NOON];
    let told = place.run(check).succeeded().stdout;
    for part in [
        "CREATE INDEX",
        "How the database finds what is due:\n  by a look at every row, ",
        "How it would with these indexes:\n  by backlog_due, ",
        "It can be worked off as it is.",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.lines().count() < 30, "{told}");
    assert_eq!(
        told.matches("a look at every row").count(),
        1,
        "with the indexes there is none: {told}"
    );
    let whole = place
        .run(["table", "check", "invoices", "--plans"])
        .succeeded()
        .stdout;
    let lines = fine["plan_indexed"].as_array().unwrap();
    assert!(
        lines
            .iter()
            .all(|line| whole.contains(line.as_str().unwrap())),
        "{whole}"
    );
    for index in fine["indexes"].as_array().unwrap() {
        assert_eq!(index["existing"], Value::Null);
        db(&place)
            .execute_batch(index["ddl"].as_str().unwrap())
            .unwrap();
    }
    let indexed = place.json(["table", "check", "invoices"]);
    assert!(
        indexed["indexes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|index| index["existing"].is_string()),
        "{indexed}"
    );
    assert!(
        plan(&indexed, "plan").contains("INDEX backlog_"),
        "{indexed}"
    );
    assert_eq!(due(&place, NOON), json!({ "due": [4, 3, 2, 1] }));
}

#[test]
fn a_table_that_is_not_there_is_named_with_those_that_are() {
    let place = Place::new();
    place.run(["table", "due", "invoices"]).complains(
        2,
        &["no table invoices", "there are none", "[tables.invoices]"],
    );
    with_rows(&place);
    for command in ["check", "due", "run", "status"] {
        place
            .run(["table", command, "nonsense"])
            .complains(2, &["no table nonsense", "there are invoices"]);
    }
    place
        .run(["table", "due", "invoices", "--at", "noon"])
        .complains(2, &["RFC 3339"]);
    place.run(["table", "run", "invoices"]).complains(
        2,
        &["table invoices has no handler", "--exec CMD | --http URL"],
    );
    place
        .run(["table", "run", "invoices", "--http", "nowhere"])
        .complains(2, &["--http"]);
    place
        .run([
            "table",
            "run",
            "invoices",
            "--exec",
            "true",
            "--http",
            "http://127.0.0.1:1",
        ])
        .complains(2, &["--http"]);
    place.write(
        "backstop.toml",
        &INVOICES.replace("\"BACKLOG\"", "\"BACKLOG; DROP TABLE BACKLOG\""),
    );
    for command in [
        vec!["due"],
        vec!["check"],
        vec!["status"],
        vec!["run", "--exec", "true"],
    ] {
        let args = ["table", command[0], "invoices"]
            .into_iter()
            .chain(command[1..].iter().copied());
        place.run(args).complains(
            1,
            &["there is no table BACKLOG; DROP TABLE BACKLOG", "BACKLOG"],
        );
    }
    assert_eq!(states(&place).len(), 4);
    place.write("backstop.toml", &INVOICES.replace("max_age", "maxage"));
    place
        .run(["table", "due", "invoices"])
        .complains(2, &["unknown field `maxage`"]);
}

#[test]
fn passes_that_fail_are_told_since_when_and_of_what() {
    let place = Place::new();
    with_rows(&place);
    place.write(
        "backstop.toml",
        &(INVOICES.to_owned() + "every = \"1s\"\nhandler = { exec = [\"true\"] }\n"),
    );
    assert_eq!(
        place.json(["table", "status", "invoices"])["failing"],
        Value::Null
    );
    db(&place)
        .execute_batch("ALTER TABLE BACKLOG RENAME TO AWAY")
        .unwrap();
    for _ in 0..2 {
        place.run(["table", "run", "invoices"]).exits(1);
    }
    let told = place.run(["table", "status", "invoices"]).exits(1);
    assert!(
        told.stderr.contains("2 passes failed since ") && told.stderr.contains("no table BACKLOG"),
        "{told:#?}"
    );
    db(&place)
        .execute_batch("ALTER TABLE AWAY RENAME TO BACKLOG")
        .unwrap();
    let told = place
        .run(["table", "status", "invoices"])
        .succeeded()
        .stdout;
    assert!(
        told.contains("2 passes failed since ") && told.contains("no table BACKLOG"),
        "{told}"
    );
    let failing = place.json(["table", "status", "invoices"])["failing"].clone();
    assert_eq!(failing["passes"], 2, "{failing}");
    assert!(
        failing["since"].as_str().unwrap() < failing["at"].as_str().unwrap(),
        "{failing}"
    );
    place.run(["table", "run", "invoices"]).succeeded();
    assert_eq!(
        place.json(["table", "status", "invoices"])["failing"],
        Value::Null,
        "the next pass did not fail"
    );
}

#[test]
fn a_worker_works_off_its_tables_by_itself() {
    let place = Place::new();
    with_rows(&place);
    place.write(
        "backstop.toml",
        &(INVOICES.replace("90d", "365d") + "every = \"1s\"\nhandler = { exec = [\"true\"] }\n"),
    );
    // As old as they were at noon of their day, whenever this test runs.
    db(&place)
        .execute_batch(
            "UPDATE BACKLOG SET DATE_INSERTED = datetime('now', (ID * 8 - 40) || ' minutes')",
        )
        .unwrap();
    let worker = place.start(["work"]);
    wait_until("all rows are a success", || {
        states(&place).iter().all(|(_, state)| state == "SUCCESS")
    });
    signal(&worker, "TERM");
    let told = ended(worker).succeeded();
    assert!(
        told.stderr
            .contains("table invoices is worked off every 1s"),
        "{told:#?}"
    );
    place.write("backstop.toml", INVOICES);
    place
        .run(["work"])
        .complains(2, &["no queue and no table has a handler"]);
}

#[test]
fn a_pass_that_is_told_to_stop_lets_its_handlers_end_and_leaves_the_rest() {
    let place = Place::new();
    with_rows(&place);
    place.write(
        "backstop.toml",
        &(INVOICES.to_owned() + "concurrency = 1\n"),
    );
    let line = "touch begun; while [ ! -e enough ]; do sleep 0.05; done";
    let running = place.start([
        "table", "run", "invoices", "--at", NOON, "--json", "--exec", line,
    ]);
    wait_until("the first is at work", || place.path("begun").exists());
    signal(&running, "TERM");
    std::thread::sleep(std::time::Duration::from_millis(300));
    place.write("enough", "");
    let told = ended(running).succeeded();
    let pass = told.json();
    assert_eq!(
        (&pass["succeeded"], &pass["failed"]),
        (&json!(1), &json!(0)),
        "{told:#?}"
    );
    assert!(told.stderr.contains("handlers may end"), "{told:#?}");
    assert_eq!(
        due(&place, NOON),
        json!({ "due": [3, 2, 1] }),
        "what was not begun is as it was"
    );
}

#[test]
fn tables_on_servers_are_worked_off_and_no_password_is_shown() {
    let maria = servers::mariadb().fresh_url();
    let columns = "id BIGINT PRIMARY KEY, status VARCHAR(16), date_inserted TIMESTAMP NULL, failures INT, last_failure TIMESTAMP NULL";
    let rows = format!(
        "CREATE TABLE table_cli ({columns});
         INSERT INTO table_cli VALUES (9007199254740993, 'NEW', '2026-03-01 11:52:00', 0, NULL), (2, 'ERROR', '2026-03-01 07:00:00', 1, '2026-03-01 11:59:00'),
           (3, 'ERROR', '2026-03-01 11:00:00', 6, '2026-03-01 11:55:00'), (4, 'SUCCESS', '2026-03-01 11:00:00', 0, NULL)"
    );
    servers::postgres().sql(&format!("SET ROLE backstop; {rows}"));
    servers::mariadb().sql_in(&maria, &format!("SET time_zone = '+00:00'; {rows}"));
    for url in [servers::postgres().url(), maria.clone()] {
        let place = Place::new();
        place.write(
            "backstop.toml",
            &INVOICES
                .replace("sqlite:app.db", &url)
                .replace("BACKLOG", "table_cli"),
        );
        let checked = place.json(["table", "check", "invoices"]);
        assert_eq!(checked["fine"], true, "{url}");
        let is_told = |notes: &Value| {
            notes
                .to_string()
                .contains("the store is a file of this machine")
        };
        assert!(is_told(&checked["notes"]), "{checked}");
        let told = place.run(["table", "check", "invoices"]).succeeded().stderr;
        assert!(
            told.contains("note: the table is on a server, and the store is a file"),
            "{told}"
        );
        assert_eq!(
            due(&place, NOON),
            json!({ "due": [9_007_199_254_740_993_i64, 2] }),
            "{url}"
        );
        let pass = place.json([
            "table",
            "run",
            "invoices",
            "--at",
            NOON,
            "--exec",
            "grep -q 9007199254740993",
        ]);
        assert_eq!(
            (&pass["succeeded"], &pass["failed"]),
            (&json!(1), &json!(1)),
            "{pass}"
        );
        assert!(is_told(&pass["notes"]), "{pass}");
        let told = place
            .run(["table", "run", "invoices", "--at", NOON, "--exec", "true"])
            .succeeded()
            .stderr;
        assert!(
            told.contains("give all runners of the table one store"),
            "{told}"
        );
        let status = place.json(["table", "status", "invoices", "--at", NOON]);
        assert_eq!(
            status["states"],
            json!({ "new": 0, "error": 2, "success": 2, "other": 0 }),
            "{url}"
        );
        assert_eq!(status["next_due"], MINUTE, "two failures wait a minute");
    }
    let wrong = maria.replace(servers::mariadb::PASSWORD, "n0t-this-one");
    let place = Place::new();
    place.write("backstop.toml", &INVOICES.replace("sqlite:app.db", &wrong));
    for command in ["check", "due", "status"] {
        let told = place
            .run(["table", command, "invoices"])
            .complains(1, &["[redacted]@127.0.0.1"]);
        assert!(!told.stderr.contains("n0t-this-one"), "{told:#?}");
    }
}

#[test]
fn bench_finds_what_is_due_without_indexes_and_with_them_and_leaves_nothing_behind() {
    let place = Place::new();
    let maria = servers::mariadb().fresh_url();
    let check = |url: Option<&str>| {
        let url = url.into_iter().flat_map(|url| ["--url", url]);
        let report = place.json(["bench", "tables", "--quick"].into_iter().chain(url));
        assert_eq!(
            (&report["rows"], &report["due"]),
            (&json!(100_000), &json!(1_000))
        );
        for looks in ["without_indexes", "with_indexes", "opening"] {
            assert!(report[looks]["p50_ms"].as_f64().unwrap() > 0.0, "{report}");
            assert!(
                report["by_age"][looks]["p50_ms"].as_f64().unwrap() > 0.0,
                "{report}"
            );
        }
        // What is left of a look without its opening: on a busy machine nothing may be.
        for selecting in [&report["selecting"], &report["by_age"]["selecting"]] {
            assert!(selecting["p50_ms"].is_f64(), "{report}");
        }
    };
    check(None);
    check(Some(&servers::postgres().url()));
    check(Some(&maria));
    assert_eq!(
        std::fs::read_dir(place.path(".")).unwrap().count(),
        0,
        "the file of its own is gone"
    );
    let left = servers::postgres()
        .sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'backstop_bench%'");
    assert_eq!(
        (
            left.trim(),
            servers::mariadb().sql_in(&maria, "SHOW TABLES").trim()
        ),
        ("0", "")
    );
    place
        .run(["bench", "--url", "sqlite:app.db"])
        .complains(2, &["--url is about tables", "backstop bench tables"]);
}

#[test]
fn a_table_that_lacks_columns_is_told_how_to_name_those_and_no_others() {
    let place = Place::new();
    place.write("backstop.toml", INVOICES);
    db(&place)
        .execute_batch(&format!("CREATE TABLE BACKLOG ({COLUMNS})"))
        .unwrap();
    let told = place.run(["table", "check", "invoices"]).exits(1).stdout;
    let entry = r#"columns = { failures = "…", last_failure = "…" }"#;
    assert!(told.contains(entry), "{told}");
}

#[test]
fn a_table_with_other_names_is_told_how_to_map_them_before_anything_is_added() {
    let place = Place::new();
    place.write("backstop.toml", INVOICES);
    db(&place)
        .execute_batch(
            "CREATE TABLE BACKLOG (id INTEGER PRIMARY KEY, status TEXT, created_at TEXT, attempts INTEGER, failed_at TEXT);
             INSERT INTO BACKLOG VALUES (1, 'open', '2026-02-01 12:00:00', 0, NULL), (2, 'paid', '2026-02-01 12:00:00', 0, NULL)",
        )
        .unwrap();
    let told = place.run(["table", "check", "invoices"]).exits(1).stdout;
    let columns = r#"columns = { inserted = "created_at", failures = "attempts", last_failure = "failed_at" }"#;
    let (proposal, statement) = (told.find(columns), told.find("ALTER TABLE"));
    assert!(proposal.is_some() && proposal < statement, "{told}");
    place.write("backstop.toml", &format!("{INVOICES}{columns}\n"));
    let answer = place.run(["table", "check", "invoices"]).exits(1);
    let words = "1 row has the status open, 1 paid: none is NEW, ERROR or SUCCESS; see `states`";
    assert!(answer.stderr.contains(words), "{answer:#?}");
    assert!(
        !answer.stdout.contains("It can be worked off as it is."),
        "{answer:#?}"
    );
    let shape = place
        .run(json_args(["table", "check", "invoices"]))
        .exits(1)
        .json();
    assert_eq!(
        shape["words"][0],
        json!({ "word": "open", "rows": 1, "undated": 0 })
    );
    let states = "states = { new = \"open\", success = \"paid\" }";
    place.write("backstop.toml", &format!("{INVOICES}{columns}\n{states}\n"));
    let check = ["table", "check", "invoices", "--at", NOON];
    let told = place.run(check).succeeded().stdout;
    assert!(told.contains("It can be worked off as it is."), "{told}");
    let later = place.run(["table", "check", "invoices", "--at", "2026-11-01T12:00:00Z"]);
    let later = later.succeeded();
    assert!(
        later
            .stdout
            .contains("no row is there to be worked off now")
            && later
                .stderr
                .contains("1 open rows are older than `max_age`"),
        "{later:#?}"
    );
    db(&place)
        .execute("UPDATE BACKLOG SET status = 'paid'", ())
        .unwrap();
    let told = place.run(["table", "check", "invoices"]).succeeded().stdout;
    assert!(
        told.contains("no row is there to be worked off now") && !told.contains("It can be"),
        "{told}"
    );
}

#[test]
fn what_a_handler_of_a_row_says_is_shown_without_its_secrets() {
    let place = Place::new();
    with_rows(&place);
    let line = "echo 'login failed, password=hunter2 Authorization: Bearer abcdef' >&2; exit 1";
    for format in [&["--json"][..], &[]] {
        let run = ["table", "run", "invoices", "--at", NOON, "--exec", line];
        let answer = place.run(format.iter().copied().chain(run)).succeeded();
        let told = format!("{}{}", answer.stdout, answer.stderr);
        assert!(
            told.contains("login failed") && told.contains("[redacted]"),
            "{told}"
        );
        assert!(
            !told.contains("hunter2") && !told.contains("abcdef"),
            "{told}"
        );
        db(&place)
            .execute(
                "UPDATE BACKLOG SET STATUS = 'NEW', FAILURES = 0, LAST_FAILURE = NULL",
                (),
            )
            .unwrap();
    }
}
