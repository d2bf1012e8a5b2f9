//! Sweeps and comparisons, the same on every store.

use crate::place::{Place, ended, json_args, signal, wait_until};
use crate::stores::on_every_store;
use backstop_testkit::servers;
use rusqlite::Connection;
use serde_json::{Value, json};

on_every_store! {
    a_lost_row_is_found_told_and_enqueued_once,
    a_row_whose_job_is_dead_is_in_dead,
    rows_and_jobs_are_compared_in_both_directions,
    a_worker_sweeps_by_itself,
}

const SWEEP: &str = r#"
[sweeps.content_changes]
url = "sqlite:app.db"
query = "SELECT id FROM content_changes WHERE processed_at IS NULL AND created_at <= :cutoff ORDER BY id"
older_than = "1h"
every = "30m"
queue = "content"
kind = "ProcessContentChange"
unique_key = "content_change:{id}"
payload = { id = "{id}" }
"#;

fn sql(place: &Place, statements: &str) {
    Connection::open(place.path("app.db"))
        .unwrap()
        .execute_batch(statements)
        .unwrap();
}

/// Four rows: two old, one of another day, one that is processed.
fn with_rows(place: &Place) {
    place.write("backstop.toml", SWEEP);
    sql(
        place,
        "CREATE TABLE content_changes (id INTEGER PRIMARY KEY, created_at TEXT, processed_at TEXT);
         INSERT INTO content_changes VALUES (1, '2026-03-01 10:00:00', NULL), (2, '2026-03-01 10:59:59', NULL),
           (3, '2026-03-01 11:30:00', NULL), (4, '2026-03-01 09:00:00', '2026-03-01 09:00:01')",
    );
}

const NOON: [&str; 2] = ["--at", "2026-03-01T12:00:00Z"];

fn dry_run(place: &Place) -> Value {
    place.json(
        ["sweep", "content_changes", "--dry-run"]
            .into_iter()
            .chain(NOON),
    )
}

fn a_lost_row_is_found_told_and_enqueued_once(place: &Place) {
    with_rows(place);
    assert_eq!(
        dry_run(place),
        json!({ "found": [1, 2], "alive": [], "would_enqueue": [1, 2], "dead": [] })
    );
    let push = [
        "push",
        "content",
        "{}",
        "--kind",
        "ProcessContentChange",
        "--unique-key",
        "content_change:1",
    ];
    place.json(push);
    let alive = json!({ "found": [1, 2], "alive": [1], "would_enqueue": [2], "dead": [] });
    assert_eq!(
        dry_run(place),
        alive,
        "what was enqueued in the first place is known"
    );
    let swept = place.json(["sweep", "content_changes"].into_iter().chain(NOON));
    let done =
        json!({ "found": [1, 2], "alive": [1], "would_enqueue": [2], "dead": [], "enqueued": [2] });
    assert_eq!(swept, done);
    let jobs = place.json(["job", "list", "--queue", "content"]);
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 2);
    let job = jobs["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|job| job["unique_key"] == "content_change:2")
        .unwrap();
    assert_eq!(
        (&job["payload"], &job["kind"]),
        (&json!({ "id": 2 }), &json!("ProcessContentChange"))
    );
    let again = place.json(["sweep"].into_iter().chain(NOON));
    assert_eq!(again["sweeps"]["content_changes"]["enqueued"], json!([]));
    assert_eq!(again["sweeps"]["content_changes"]["alive"], json!([1, 2]));
    let told = place.run(["sweep", "--history"]).succeeded().stdout;
    assert!(told.contains("SWEEP\tWHEN"), "{told}");
    let runs = place.json(["sweep", "content_changes", "--history"]);
    let runs = runs["sweeps"]["content_changes"]["runs"]
        .as_array()
        .unwrap();
    assert_eq!(
        (runs.len(), &runs[1]["enqueued"], &runs[0]["alive"]),
        (2, &json!(1), &json!(2))
    );
}

fn a_row_whose_job_is_dead_is_in_dead(place: &Place) {
    with_rows(place);
    let swept = place
        .run(["sweep"].into_iter().chain(NOON))
        .succeeded()
        .stdout;
    assert!(
        swept.contains("content_changes: 2 found, 0 alive, 0 dead, 2 enqueued"),
        "{swept}"
    );
    let line = r#"read p; [ "$p" = '{"id":1}' ] && exit 65; exit 0"#;
    place
        .run(["work", "content", "--exec", line, "--until-empty"])
        .exits(1);
    sql(
        place,
        "UPDATE content_changes SET processed_at = '2026-03-01 12:00:00' WHERE id = 2",
    );
    assert_eq!(
        dry_run(place),
        json!({ "found": [1], "alive": [], "would_enqueue": [], "dead": [1] })
    );
    let told = place
        .run(["sweep", "content_changes"].into_iter().chain(NOON))
        .succeeded();
    assert!(
        told.stderr.contains("backstop dead list --queue content"),
        "{told:#?}"
    );
    place.json(["dead", "requeue", "--queue", "content"]);
    assert_eq!(dry_run(place)["alive"], json!([1]));
}

fn rows_and_jobs_are_compared_in_both_directions(place: &Place) {
    with_rows(place);
    let apart = place.run(json_args(["reconcile"])).exits(1).json();
    assert_eq!(apart["matches"], false);
    assert_eq!(
        apart["sweeps"]["content_changes"]["rows_without_jobs"],
        json!([1, 2, 3])
    );
    place.json(["sweep"]);
    let matching = place.json(["reconcile"]);
    assert_eq!(matching["matches"], true);
    sql(
        place,
        "UPDATE content_changes SET processed_at = created_at WHERE id = 3",
    );
    let young = place.json(["reconcile"]);
    let loose = &young["sweeps"]["content_changes"]["jobs_without_rows"];
    assert_eq!(
        (loose[0]["unique_key"].as_str(), &young["matches"]),
        (Some("content_change:3"), &json!(true))
    );
    place.write(
        "backstop.toml",
        &SWEEP.replace("older_than = \"1h\"", "older_than = \"1ms\""),
    );
    let told = place.run(["reconcile"]).exits(1).stdout;
    assert!(
        told.contains("1 live jobs without a row") && told.contains("content_change:3"),
        "{told}"
    );
}

fn a_worker_sweeps_by_itself(place: &Place) {
    with_rows(place);
    let worker = place.start(["work", "content", "--exec", "exit 0"]);
    wait_until("all three are done", || place.count("content", "done") == 3);
    signal(&worker, "TERM");
    let told = ended(worker);
    assert!(
        told.stderr
            .contains("lost work is looked for by content_changes"),
        "{told:#?}"
    );
}

#[test]
fn ids_keep_their_type() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        &SWEEP
            .replace("SELECT id FROM", "SELECT name, id AS number FROM")
            .replace("{id}", "{number}"),
    );
    sql(
        &place,
        "CREATE TABLE content_changes (id INTEGER PRIMARY KEY, name TEXT, created_at TEXT, processed_at TEXT);
         INSERT INTO content_changes VALUES (1, 'a \"b\"', '2026-03-01 10:00:00', NULL)",
    );
    assert_eq!(dry_run(&place)["found"], json!(["a \"b\""]));
}

#[test]
fn a_sweep_that_fails_says_why_and_exits_1() {
    let place = Place::new();
    with_rows(&place);
    place.write(
        "backstop.toml",
        &SWEEP.replace("FROM content_changes", "FROM nowhere"),
    );
    place
        .run(["sweep", "content_changes", "--dry-run"])
        .complains(1, &["sweep content_changes", "no such table: nowhere"]);
    let all = place.run(json_args(["sweep"])).exits(1).json();
    assert!(
        all["sweeps"]["content_changes"]["error"]
            .as_str()
            .unwrap()
            .contains("nowhere"),
        "{all}"
    );
    let compared = place.run(json_args(["reconcile"])).exits(1).json();
    assert!(
        compared["sweeps"]["content_changes"]["error"]
            .as_str()
            .unwrap()
            .contains("nowhere"),
        "{compared}"
    );
    place.write(
        "backstop.toml",
        &SWEEP.replace("content_change:{id}", "content_change:{key}"),
    );
    place
        .run(["sweep", "--dry-run", "content_changes"])
        .complains(1, &["no column `key`", "it has `id`"]);
}

#[test]
fn a_sweep_that_is_not_there_is_named_with_those_that_are() {
    let place = Place::new();
    place.run(["sweep"]).complains(
        2,
        &["there are no sweeps in the configuration", "[sweeps.NAME]"],
    );
    place
        .run(["reconcile"])
        .complains(2, &["there are no sweeps"]);
    with_rows(&place);
    place
        .run(["sweep", "nonsense"])
        .complains(2, &["no sweep nonsense", "there are content_changes"]);
    place
        .run(["sweep", "content_changes", "--at", "noon"])
        .complains(2, &["RFC 3339"]);
    place.write("backstop.toml", &SWEEP.replace("older_than", "olderthan"));
    place
        .run(["sweep"])
        .complains(2, &["unknown field `olderthan`", ":5:"]);
}

#[test]
fn tables_on_servers_are_swept_and_no_password_is_shown() {
    let place = Place::new();
    let rows = "CREATE TABLE sweep_cli (id BIGINT PRIMARY KEY, created_at TIMESTAMP NULL, processed_at TIMESTAMP NULL);
         INSERT INTO sweep_cli VALUES (1, '2026-03-01 10:00:00', NULL), (2, '2026-03-01 11:30:00', NULL)";
    servers::postgres().sql(&format!("SET ROLE backstop; {rows}"));
    let maria = servers::mariadb().fresh_url();
    servers::mariadb().sql_in(&maria, &format!("SET time_zone = '+00:00'; {rows}"));
    for url in [servers::postgres().url(), maria.clone()] {
        place.write(
            "backstop.toml",
            &SWEEP
                .replace("sqlite:app.db", &url)
                .replace("FROM content_changes", "FROM sweep_cli"),
        );
        assert_eq!(dry_run(&place)["would_enqueue"], json!([1]), "{url}");
    }
    let wrong = maria.replace(servers::mariadb::PASSWORD, "n0t-this-one");
    place.write("backstop.toml", &SWEEP.replace("sqlite:app.db", &wrong));
    let told = place
        .run(["sweep", "content_changes"])
        .complains(1, &["[redacted]@127.0.0.1"]);
    assert!(!told.stderr.contains("n0t-this-one"), "{told:#?}");
}
