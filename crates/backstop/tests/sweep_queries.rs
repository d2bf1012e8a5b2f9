//! Sweeps over real tables: SQLite, PostgreSQL and MariaDB give the same findings, and a query can
//! do nothing but read.

mod databases;

use backstop::sweeps::{FindError, Finder, Sweep, SweepQuery, SweepReport};
use backstop::testing;
use backstop::{Payload, Span, Time};
use backstop_testkit::servers::{mariadb, postgres};
use databases::Database;
use serde_json::{Value, json};
use tempfile::TempDir;

const NOON: &str = "2026-03-01T12:00:00Z";

fn noon() -> Time {
    NOON.parse().expect("a time")
}

fn orders(database: &Database) {
    let time = database.dialect("TEXT", "timestamp", "DATETIME(6)");
    let big = database.dialect("TEXT", "numeric(40,0)", "DECIMAL(40,0)");
    database.sql(&format!(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, created_at {time} NOT NULL, processed_at {time}, note VARCHAR(200), half DOUBLE PRECISION, big {big});
         INSERT INTO orders VALUES
           (1, '2026-03-01 10:59:59', NULL, 'old', 1.5, '123456789012345678901234567890'),
           (2, '2026-03-01 11:00:00', NULL, 'at the cutoff', 0.1, NULL),
           (3, '2026-03-01 11:00:01', NULL, 'young', 2, NULL),
           (4, '2026-03-01 09:00:00', '2026-03-01 09:01:00', 'processed', 2, NULL),
           (9007199254740993, '2026-03-01 08:00:00', NULL, 'O''Brien; DROP TABLE orders; -- {{id}} :cutoff', -7.25, '5')"
    ));
}

const QUERY: &str =
    "SELECT id, note, half, big FROM orders WHERE processed_at IS NULL AND created_at <= :cutoff
  AND note <> ':cutoff' /* :cutoff; */ ORDER BY id -- the :cutoff";

fn query(database: &Database, sql: &str) -> SweepQuery {
    let payload = json!({"id": "{id}", "text": "{note}/{half}", "row": {"big": "{big}", "note": "{note}"}, "n": [1, null]});
    SweepQuery::new(&database.url(), sql, "order:{id}", Some(&payload)).expect("a query")
}

async fn report(database: &Database, sql: &str) -> SweepReport {
    let test = testing::start();
    let sweep = Sweep::new("orders", "q", query(database, sql)).expect("a sweep");
    test.backstop
        .sweeper(&sweep)
        .dry_run(noon())
        .await
        .expect("it looks")
}

async fn refusal(database: &Database, sql: &str) -> FindError {
    query(database, sql).find(noon(), 10).await.expect_err(sql)
}

#[tokio::test(flavor = "multi_thread")]
async fn three_databases_give_the_same_findings() {
    let payload =
        |payload: &Payload| -> Value { serde_json::from_slice(payload.as_bytes()).expect("JSON") };
    for database in Database::all() {
        orders(&database);
        let found = report(&database, QUERY).await.found;
        assert_eq!(
            found,
            [json!(1), json!(2), json!(9_007_199_254_740_993_u64)],
            "{}",
            database.url()
        );
        let found = query(&database, QUERY)
            .find(noon().before(Span::hours(1)), 10)
            .await
            .expect("found");
        let keys: Vec<&str> = found
            .findings
            .iter()
            .map(|finding| finding.key.as_str())
            .collect();
        assert_eq!(keys, ["order:1", "order:2", "order:9007199254740993"]);
        let first = payload(&found.findings[0].payload);
        let big = "123456789012345678901234567890";
        assert_eq!(
            first,
            json!({"id": 1, "text": "old/1.5", "row": {"big": big, "note": "old"}, "n": [1, null]})
        );
        let last = payload(&found.findings[2].payload);
        let hostile = "O'Brien; DROP TABLE orders; -- {id} :cutoff";
        assert_eq!(last["id"], json!(9_007_199_254_740_993_u64));
        assert_eq!(last["row"]["note"], hostile, "what a column says is data");
        assert_eq!(last["text"], format!("{hostile}/-7.25"));
        assert_eq!(
            payload(&found.findings[1].payload)["row"]["big"],
            Value::Null
        );
        assert_eq!(
            query(&database, QUERY)
                .find(noon(), 2)
                .await
                .expect("found")
                .findings
                .len(),
            2,
            "at most"
        );
        assert_eq!(database.count("orders"), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_known_by_its_first_column_if_none_is_called_id() {
    for database in Database::all() {
        orders(&database);
        let sql = "SELECT note, id AS number FROM orders WHERE created_at <= :cutoff AND id < 3 ORDER BY 2";
        let query = SweepQuery::new(&database.url(), sql, "n:{number}", None).expect("a query");
        let found = query.find(noon(), 10).await.expect("found").findings;
        assert_eq!(found[0].row, json!("old"));
        let row: Value = serde_json::from_slice(found[0].payload.as_bytes()).expect("JSON");
        assert_eq!(
            row,
            json!({"note": "old", "number": 1}),
            "without a payload the row is it"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_writes_is_refused() {
    for database in Database::all() {
        for sql in [
            "DELETE FROM orders WHERE created_at <= :cutoff RETURNING id, note, half, big",
            "UPDATE orders SET note = 'x' WHERE created_at <= :cutoff",
            "CREATE TABLE made AS SELECT * FROM orders WHERE created_at <= :cutoff",
        ] {
            let refused = SweepQuery::new(&database.url(), sql, "order:{id}", None)
                .expect_err(sql)
                .to_string();
            assert!(refused.contains("must be a SELECT"), "{sql}: {refused}");
        }
        // What begins like one and writes all the same is refused by the database, or by its
        // read-only transaction.
        orders(&database);
        let hidden = database.dialect(
            "WITH old AS (SELECT :cutoff AS at) DELETE FROM orders WHERE created_at <= (SELECT at FROM old) RETURNING id, note, half, big",
            "WITH gone AS (DELETE FROM orders WHERE created_at <= :cutoff RETURNING *) SELECT * FROM gone",
            "WITH old AS (SELECT :cutoff AS at) DELETE FROM orders WHERE created_at <= (SELECT at FROM old)",
        );
        let refused = refusal(&database, hidden).await.to_string();
        assert_eq!(database.count("orders"), 5, "{hidden}: {refused}");
    }
    let refused = SweepQuery::new(
        "sqlite:x.db",
        "SELECT :cutoff; DROP TABLE orders",
        "k:{id}",
        None,
    );
    assert!(
        refused
            .expect_err("two statements")
            .to_string()
            .contains("one statement")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_hangs_is_stopped_at_its_limit() {
    for database in Database::all() {
        orders(&database);
        let sql = database.dialect(
            "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT max(id) AS id FROM n WHERE :cutoff <> ''",
            "SELECT 1 AS id FROM pg_sleep(60) WHERE now() >= :cutoff",
            "SELECT count(*) AS id FROM seq_1_to_1000000 a, seq_1_to_1000000 b WHERE a.seq + b.seq > 0 AND NOW() >= :cutoff",
        );
        let query = SweepQuery::new(&database.url(), sql, "k:{id}", None).expect("a query");
        let query = query.timeout(Span::millis(300)).expect("a limit");
        let began = std::time::Instant::now();
        let stopped = query.find(noon(), 10).await;
        assert!(matches!(stopped, Err(FindError::TooSlow(_))), "{stopped:?}");
        assert!(
            began.elapsed() < std::time::Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_query_says_what_is_wrong_and_enqueues_nothing() {
    for database in Database::all() {
        orders(&database);
        let unknown = refusal(
            &database,
            "SELECT id FROM nowhere WHERE created_at <= :cutoff",
        )
        .await
        .to_string();
        assert!(unknown.contains("nowhere"), "{unknown}");
        let broken = refusal(&database, "SELECT id FROM WHERE :cutoff")
            .await
            .to_string();
        assert!(broken.to_lowercase().contains("syntax"), "{broken}");
        // The payload asks for columns that are not there; told also where no row is found.
        let none = "SELECT id FROM orders WHERE created_at <= :cutoff AND id < 0";
        let missing = refusal(&database, none).await.to_string();
        assert_eq!(
            missing,
            "there is no column `big` in the query; it has `id`",
            "{}",
            database.url()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_key_is_told_and_keeps_back_no_other() {
    for database in Database::all() {
        orders(&database);
        database.sql(&format!(
            "UPDATE orders SET note = NULL WHERE id = 1; UPDATE orders SET note = '{}' WHERE id = 2",
            "n".repeat(200)
        ));
        let sql = "SELECT id, note, half, big FROM orders WHERE created_at <= :cutoff ORDER BY id";
        let payload = json!("{id}");
        let key = "{note}{note}{note}";
        let query = SweepQuery::new(&database.url(), sql, key, Some(&payload)).expect("a query");
        let found = query.find(noon(), 10).await.expect("found");
        let told: Vec<&str> = found
            .unusable
            .iter()
            .map(|unusable| unusable.why.as_str())
            .collect();
        assert_eq!(found.unusable[0].row, json!(1));
        assert!(
            told[0].contains("`note` is NULL") && told[1].contains("unique key has 1 to 512"),
            "{told:?}"
        );
        assert_eq!(found.findings.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_error_shows_a_password() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("its address");
    let wrong = [
        format!("mysql://backstop:s3cret@{}/x", mariadb().addr()),
        format!("mysql://backstop:s3cret@{closed}/x"),
        format!(
            "postgres://nobody:s3cret@{}/x?sslmode=disable",
            postgres().addr()
        ),
        format!("postgres://nobody:s3cret@{closed}/x?sslmode=disable"),
        "mysql://backstop:s3cret@127.0.0.1:notaport/x".to_owned(),
        "postgres://backstop:s3cret@127.0.0.1:notaport/x".to_owned(),
        "mysql://backstop:s3cret@127.0.0.1/x?nonsense=s3cret".to_owned(),
    ];
    for url in wrong {
        let query = SweepQuery::new(
            &url,
            "SELECT 1 AS id WHERE :cutoff IS NOT NULL",
            "k:{id}",
            None,
        )
        .expect("a query");
        let shown = format!("{query:?}");
        let failed = query
            .find(noon(), 1)
            .await
            .expect_err("nobody is there")
            .to_string();
        assert!(
            !failed.contains("s3cret") && !shown.contains("s3cret"),
            "{failed} {shown}"
        );
        assert!(failed.contains("[redacted]@127.0.0.1"), "{failed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_at_a_file_that_is_not_there_does_not_make_it() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("none.db");
    let url = format!("sqlite:{}", file.display());
    let query = SweepQuery::new(&url, "SELECT 1 AS id WHERE :cutoff <> ''", "k:{id}", None)
        .expect("a query");
    assert!(query.find(noon(), 1).await.is_err());
    assert!(!file.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_compared_in_utc_whatever_the_database_is_set_to() {
    for database in Database::all() {
        let time = database.dialect("TEXT", "timestamptz", "TIMESTAMP NULL");
        database.sql(&format!(
            "CREATE TABLE zoned (id INT, created_at {time}); INSERT INTO zoned VALUES (1, '2026-03-01 11:59:59'), (2, '2026-03-01 12:00:01')"
        ));
        let sql = "SELECT id FROM zoned WHERE created_at <= :cutoff";
        let query = SweepQuery::new(&database.url(), sql, "k:{id}", None).expect("a query");
        let found = query.find(noon(), 10).await.expect("found").findings;
        assert_eq!(
            found
                .iter()
                .map(|finding| finding.row.clone())
                .collect::<Vec<_>>(),
            [json!(1)],
            "{}",
            database.url()
        );
    }
}
