//! `/schedules`, `/sweeps` and `/tables`.

use crate::given::{given, given_with};
use backstop::Span;
use backstop::rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

const DAILY: &str = "[schedules.daily]\ncron = \"30 8 * * *\"\nqueue = \"digests\"\n";

#[tokio::test]
async fn schedules_are_listed_with_what_became_of_their_instants() {
    let api = given_with(DAILY);
    let listed = api.get("/v1/schedules").await.ok()["schedules"][0].clone();
    assert_eq!(
        (&listed["name"], &listed["next"], &listed["paused"]),
        (
            &json!("daily"),
            &json!("2026-01-01T08:30:00Z"),
            &json!(false)
        )
    );
    let config = crate::given::config(DAILY);
    let schedules: Vec<_> = config.schedules.into_values().collect();
    api.backstop.schedules().look(&schedules).await.unwrap();
    api.clock.advance(Span::hours(9));
    api.backstop.schedules().look(&schedules).await.unwrap();
    let runs = api.get("/v1/schedules/daily/runs?limit=-1").await.ok();
    assert_eq!(
        (&runs["schedule"], &runs["runs"][0]["instant"]),
        (&json!("daily"), &json!("2026-01-01T08:30:00Z"))
    );
    assert!(runs["runs"][0]["job"].is_string(), "{runs}");
}

#[tokio::test]
async fn a_schedule_that_is_not_there_is_not_found() {
    let api = given();
    assert_eq!(
        api.get("/v1/schedules").await.ok(),
        json!({ "schedules": [] })
    );
    assert!(
        api.get("/v1/schedules/nobody/runs")
            .await
            .problem(404)
            .contains("[schedules.nobody]")
    );
    api.get("/v1/schedules/a%20b/runs").await.problem(400);
    api.get("/v1/schedules/nobody/runs?limit=NaN")
        .await
        .problem(400);
}

/// A database with two rows that nobody has processed, and one that somebody has.
pub(crate) fn database() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let connection = Connection::open(&file).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE changes (id INTEGER PRIMARY KEY, processed_at TEXT, created_at TEXT NOT NULL);
             INSERT INTO changes VALUES (1, NULL, '2025-12-31 22:00:00'), (2, NULL, '2025-12-31 22:30:00'), (3, 'x', '2025-12-31 22:00:00');
             CREATE TABLE BACKLOG (ID INTEGER PRIMARY KEY, STATUS TEXT NOT NULL, DATE_INSERTED TEXT NOT NULL, FAILURES INTEGER NOT NULL DEFAULT 0, LAST_FAILURE TEXT);
             INSERT INTO BACKLOG (ID, STATUS, DATE_INSERTED) VALUES (1, 'NEW', '2025-12-31 23:00:00'), (2, 'SUCCESS', '2025-12-31 23:00:00');",
        )
        .unwrap();
    let address = format!("sqlite:{}", file.display());
    (folder, address)
}

pub(crate) fn sweep(address: &str, query: &str) -> String {
    format!(
        "[sweeps.changes]\nurl = \"{address}\"\nquery = \"{query}\"\nolder_than = \"1h\"\nevery = \"30m\"\nqueue = \"content\"\nunique_key = \"change:{{id}}\"\n"
    )
}

pub(crate) const UNPROCESSED: &str =
    "SELECT id FROM changes WHERE processed_at IS NULL AND created_at <= :cutoff";

#[tokio::test]
async fn a_sweep_gives_lost_rows_a_job_once() {
    let (_folder, address) = database();
    let api = given_with(&sweep(&address, UNPROCESSED));
    let dry = api
        .post("/v1/sweeps/changes/run", json!({ "dry_run": true }))
        .await
        .ok();
    assert_eq!(
        (&dry["would_enqueue"], dry.get("enqueued")),
        (&json!([1, 2]), None)
    );
    assert!(api.audit().await.is_empty(), "a look is no change");
    let run = api
        .ask(axum::http::Method::POST, "/v1/sweeps/changes/run", "")
        .await
        .ok();
    assert_eq!(run["enqueued"], json!([1, 2]));
    let again = api.post("/v1/sweeps/changes/run", json!({})).await.ok();
    assert_eq!(
        (&again["alive"], &again["enqueued"]),
        (&json!([1, 2]), &json!([]))
    );
    let listed = api.get("/v1/sweeps").await.ok()["sweeps"]["changes"].clone();
    assert_eq!(
        (
            &listed["queue"],
            &listed["every"],
            listed["runs"].as_array().unwrap().len()
        ),
        (&json!("content"), &json!("30m"), 2)
    );
    let told: Vec<_> = api
        .audit()
        .await
        .into_iter()
        .map(|entry| (entry.what, entry.count))
        .collect();
    assert!(
        told.contains(&("sweep run".to_owned(), Some(2)))
            && told.contains(&("sweep run".to_owned(), Some(0))),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_sweep_that_fails_says_whose_fault_it_is() {
    let (_folder, address) = database();
    let api = given_with(&sweep(
        &address,
        "SELECT id FROM nothing WHERE x <= :cutoff",
    ));
    let detail = api
        .post("/v1/sweeps/changes/run", json!({}))
        .await
        .problem(502);
    assert!(detail.contains("nothing"), "{detail}");
    assert!(
        api.post("/v1/sweeps/nobody/run", json!({}))
            .await
            .problem(404)
            .contains("changes")
    );
    assert!(
        api.post("/v1/sweeps/changes/run", json!({ "dryrun": true }))
            .await
            .problem(400)
            .contains("unknown field `dryrun`")
    );
}

#[tokio::test]
async fn tables_are_counted_and_one_that_cannot_be_hides_no_other() {
    let (_folder, address) = database();
    let table = |name: &str, table: &str| {
        format!(
            "[tables.{name}]\nurl = \"{address}\"\ntable = \"{table}\"\nstrategy = {{ kind = \"fibonacci\", unit = \"1m\", cap = \"1d\" }}\nmax_age = \"30d\"\n"
        )
    };
    let api = given_with(&(table("broken", "NOTHING") + &table("invoices", "BACKLOG")));
    let tables = api.get("/v1/tables").await.ok()["tables"].clone();
    assert_eq!(
        (&tables[0]["name"], &tables[0]["status"]),
        (&json!("broken"), &Value::Null)
    );
    assert!(
        tables[0]["error"]
            .as_str()
            .unwrap()
            .contains("there is no table NOTHING"),
        "{tables}"
    );
    assert_eq!(
        (
            &tables[1]["table"],
            &tables[1]["status"]["due"],
            &tables[1]["status"]["states"]["success"]
        ),
        (&json!("BACKLOG"), &json!(1), &json!(1))
    );
    assert_eq!(
        given().get("/v1/tables").await.ok(),
        json!({ "tables": [] })
    );
}
