//! Full queues, as those see them who push from a transaction of their own; and what the search for
//! a victim costs.

use super::{fresh_store, user};
use backstop_core::port::EnqueueOutcome::{Full, Inserted};
use backstop_core::{JobState, NewJob, Overflow, QueueBounds};
use backstop_postgres::enqueue_in;
use backstop_testkit::given::{Scene, at, job, queue};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

async fn bounded(max_size: u64, overflow: Overflow) -> (Scene, String) {
    let (store, schema) = fresh_store().await;
    let scene = Scene::new(store);
    let bounds = QueueBounds {
        max_size: Some(max_size),
        overflow,
        ..QueueBounds::default()
    };
    scene
        .store
        .set_bounds(queue("q"), bounds, scene.now)
        .await
        .expect("bounds");
    (scene, schema)
}

fn jobs(named: &[&str]) -> Vec<NewJob> {
    named.iter().map(|name| job("q", name).into()).collect()
}

#[tokio::test]
async fn a_push_in_a_transaction_is_told_that_the_queue_is_full() {
    let (scene, schema) = bounded(2, Overflow::Reject).await;
    let mut client = user().await;
    let transaction = client.transaction().await.expect("a transaction");
    let answers = enqueue_in(&transaction, &schema, &jobs(&["a", "b", "c"]), at(0))
        .await
        .expect("jobs");
    assert_eq!(answers, [Inserted, Inserted, Full]);
    transaction.commit().await.expect("it commits");
    assert_eq!(scene.queue("q").await.counts.of(JobState::Ready), 2);
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn a_push_in_a_transaction_of_sqlx_is_told_that_the_queue_is_full() {
    use backstop_testkit::servers;
    use sqlx_core::connection::Connection;
    let (_scene, schema) = bounded(1, Overflow::Reject).await;
    let url = servers::postgres().url();
    let mut connection = sqlx_postgres::PgConnection::connect(&url)
        .await
        .expect("a connection");
    let answers =
        backstop_postgres::enqueue_in_sqlx(&mut connection, &schema, &jobs(&["a", "b"]), at(0))
            .await;
    assert_eq!(answers.expect("answers"), [Inserted, Full]);
}

#[tokio::test]
async fn the_function_raises_an_error_of_its_own() {
    let (scene, schema) = bounded(1, Overflow::Reject).await;
    let client = user().await;
    let call = format!("SELECT {schema}.enqueue('q', 'k', '{{}}')");
    client.query_one(&call, &[]).await.expect("a job");
    let error = client.query_one(&call, &[]).await.expect_err("it is full");
    let said = error.as_db_error().expect("the server says it");
    assert_eq!(
        (said.code().code(), said.message()),
        ("BS002", "queue q is full")
    );
    assert!(
        said.hint().is_some_and(|hint| hint.contains("max_size")),
        "{said:?}"
    );
    assert_eq!(scene.queue("q").await.totals.enqueued, 1);
}

#[tokio::test]
async fn an_id_that_another_queue_holds_raises_an_error_of_its_own() {
    let (_store, schema) = fresh_store().await;
    let client = user().await;
    let push = async |queue: &str| {
        let id = "00000000-0000-4000-8000-000000000001";
        let call = format!("SELECT {schema}.enqueue('{queue}', 'k', '{{}}', id => '{id}')");
        client.query_one(&call, &[]).await
    };
    push("q").await.expect("a job");
    let error = push("other").await.expect_err("queue q holds the id");
    // BS003 means too many queues.
    assert_eq!(error.code().map(SqlState::code), Some("BS004"));
}

#[tokio::test]
async fn pushes_to_other_queues_beside_a_full_one_go_in() {
    let (scene, _schema) = bounded(0, Overflow::DropOldest).await;
    let answers = scene
        .enqueue([
            job("q", "a"),
            job("other", "b"),
            job("q", "c"),
            job("new", "d"),
        ])
        .await;
    assert_eq!(answers, [Full, Inserted, Full, Inserted]);
}

#[tokio::test]
async fn a_victim_is_found_at_once_however_long_a_snapshot_is_held() {
    let (scene, schema) = bounded(10, Overflow::DropOldest).await;
    scene
        .insert((0..10).map(|n| job("q", &n.to_string())))
        .await;
    let (client, idle) = (user().await, user().await);
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    idle.batch_execute(snapshot).await.expect("a snapshot");
    let before = blocks(&client, &schema).await;
    for round in 0..20 {
        let answers = scene
            .enqueue((0..100).map(|n| job("q", &format!("{round}-{n}"))))
            .await;
        assert_eq!(answers, [Inserted; 100]);
    }
    let after = blocks(&client, &schema).await;
    assert!(
        after <= before * 3 / 2,
        "{before} blocks at first, {after} after 2,000 victims"
    );
    drop(idle);
}

/// Blocks that giving way touches.
async fn blocks(client: &Client, schema: &str) -> i64 {
    let search = format!(
        "SET LOCAL search_path = {schema}; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"
    );
    client
        .batch_execute(&format!("BEGIN; {search}"))
        .await
        .expect("a transaction");
    let explain =
        "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT give_way(1, 6::smallint, 1)";
    // The first call of a connection also reads the catalogue.
    client.simple_query(explain).await.expect("it explains");
    let said = client.simple_query(explain).await.expect("it explains");
    client
        .batch_execute("ROLLBACK")
        .await
        .expect("it rolls back");
    let plan = said.iter().find_map(|line| match line {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan = plan.expect("a plan");
    let count = |name: &str| {
        let from = plan.find(name).expect("it is counted") + name.len();
        let digits: String = plan[from..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse::<i64>().expect("a number")
    };
    count("\"Shared Hit Blocks\": ") + count("\"Shared Read Blocks\": ")
}
