//! Jobs that come into being with the user's own transaction.

use super::{fresh_store, user};
use backstop_core::port::EnqueueOutcome;
use backstop_core::{JobState, NewJob, Priority};
use backstop_postgres::{enqueue_in, enqueue_statement};
use backstop_testkit::given::{Scene, at, id, job, names};
use tokio_postgres::error::SqlState;

fn jobs(named: &[&str]) -> Vec<NewJob> {
    named.iter().map(|name| job("q", name).into()).collect()
}

#[tokio::test]
async fn jobs_and_the_users_rows_commit_together() {
    let (store, schema) = fresh_store().await;
    let (mut scene, mut client) = (Scene::new(store), user().await);
    client
        .batch_execute(&format!(
            "CREATE TABLE {schema}.orders (id int PRIMARY KEY)"
        ))
        .await
        .expect("a table");
    let transaction = client.transaction().await.expect("a transaction");
    transaction
        .batch_execute(&format!("INSERT INTO {schema}.orders VALUES (1)"))
        .await
        .expect("a row");
    let answers = enqueue_in(&transaction, &schema, &jobs(&["a", "b", "a"]), at(0))
        .await
        .expect("jobs");
    assert_eq!(
        answers,
        [
            EnqueueOutcome::Inserted,
            EnqueueOutcome::Inserted,
            EnqueueOutcome::Same
        ]
    );
    assert_eq!(scene.find("a").await, None);
    transaction.commit().await.expect("it commits");
    assert_eq!(names(&scene.claim("q", 10).await), ["a", "b"]);
}

#[tokio::test]
async fn the_function_keeps_the_bounds_of_jobs() {
    let (store, schema) = fresh_store().await;
    let client = user().await;
    let steps = |count: usize| {
        let delays = vec!["\"1s\""; count].join(",");
        format!("retry => '{{\"kind\":\"steps\",\"delays\":[{delays}]}}'")
    };
    let ahead = |days: u32| format!("run_at => clock_timestamp() + interval '{days} days'");
    for (sound, over) in [(steps(100), steps(101)), (ahead(3_659), ahead(3_661))] {
        let call = |with: &str| format!("SELECT {schema}.enqueue('q', 'k', '1', {with})");
        client.query_one(&call(&sound), &[]).await.expect("a job");
        let refused = client.query_one(&call(&over), &[]).await;
        let refused = refused.expect_err(&over);
        assert_eq!(
            refused.code(),
            Some(&SqlState::INVALID_PARAMETER_VALUE),
            "{over}"
        );
    }
    assert_eq!(Scene::new(store).queue("q").await.totals.enqueued, 2);
}

#[tokio::test]
async fn the_function_serves_whoever_speaks_sql() {
    let (store, schema) = fresh_store().await;
    let (scene, client) = (Scene::new(store), user().await);
    let call = format!(
        "SELECT {schema}.enqueue('q', 'mail', '{{\"to\" :  1.10}}', priority => 'high', unique_key => 'k', \
         retry => '{{\"max_attempts\":5}}')"
    );
    let first: uuid::Uuid = client.query_one(&call, &[]).await.expect("a job").get(0);
    let again: uuid::Uuid = client
        .query_one(&call, &[])
        .await
        .expect("the same job")
        .get(0);
    assert_eq!(first, again, "the holder of the key answers");
    let job = scene
        .store
        .job(backstop_core::JobId::from_bytes(*first.as_bytes()), at(0))
        .await
        .expect("a job");
    let job = job.expect("it is there");
    assert_eq!(
        (job.state, job.kind.as_str(), job.priority),
        (JobState::Ready, "mail", Priority::High)
    );
    assert_eq!(
        job.payload.as_bytes(),
        br#"{"to" :  1.10}"#,
        "byte for byte"
    );
    assert_eq!(job.unique_key.expect("a key").as_str(), "k");
    assert_eq!(
        job.options.retry().and_then(|policy| policy.max_attempts()),
        Some(5)
    );
}

#[tokio::test]
async fn the_function_says_what_is_wrong() {
    let (_store, schema) = fresh_store().await;
    let client = user().await;
    for (arguments, says) in [
        ("'no spaces', 'k', '{}'", "a queue name has"),
        ("'q', '', '{}'", "a kind has"),
        ("'q', 'k', NULL", "a job has a payload"),
        (
            "'q', 'k', to_json(repeat('x', 1048576))",
            "a payload is JSON of at most 1 MiB",
        ),
        (
            "'q', 'k', '{}', retry => '{\"kind\":\"nope\"}'",
            "is not a retry policy",
        ),
        ("'q', 'k', '{}', retry => '[]'", "is not a retry policy"),
        ("'q', 'k', '{}', retry => '7'", "is not a retry policy"),
        (
            "'q', 'k', '{}', priority => 'urgent'",
            "critical, high, normal or low",
        ),
        ("'q', 'k', '{}', unique_key => ''", "a unique key has"),
    ] {
        let error = client
            .query_one(&format!("SELECT {schema}.enqueue({arguments})"), &[])
            .await;
        let error = error.expect_err(arguments);
        let said = error.as_db_error().expect("the server says it").message();
        assert!(said.contains(says), "{arguments}: {said}");
    }
}

#[tokio::test]
async fn the_statement_is_text_with_parameters() {
    let (store, schema) = fresh_store().await;
    let (scene, client) = (Scene::new(store), user().await);
    let statement = enqueue_statement(&schema);
    let prepared = client.prepare(&statement.text).await.expect("it prepares");
    let types: Vec<&str> = prepared
        .params()
        .iter()
        .map(tokio_postgres::types::Type::name)
        .collect();
    assert_eq!(types, statement.parameters.map(|(_, kind)| kind));
    let text = format!(
        "{}::text",
        statement
            .text
            .replace("$3::json", "$3::text::json")
            .replace("$9::uuid", "$9::text::uuid")
    );
    let nothing = None::<&str>;
    let named = id("x").to_string();
    let row = client
        .query_one(
            &text
                .replace("$4::timestamptz", "$4::text::timestamptz")
                .replace("$7::interval", "$7::text::interval")
                .replace("$8::json", "$8::text::json"),
            &[
                &"q",
                &"k",
                &"{}",
                &"tomorrow",
                &nothing,
                &nothing,
                &nothing,
                &nothing,
                &named,
            ],
        )
        .await
        .expect("it runs");
    assert_eq!(row.get::<_, String>(0), named);
    assert_eq!(scene.state("x").await, Some(JobState::Scheduled));
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn a_transaction_of_sqlx_takes_jobs_in() {
    use backstop_testkit::servers;
    use sqlx_core::connection::Connection;
    let (store, schema) = fresh_store().await;
    let mut scene = Scene::new(store);
    let mut connection = sqlx_postgres::PgConnection::connect(&servers::postgres().url())
        .await
        .expect("a connection");
    let mut undone = connection.begin().await.expect("a transaction");
    backstop_postgres::enqueue_in_sqlx(&mut undone, &schema, &jobs(&["undone"]), at(0))
        .await
        .expect("jobs");
    undone.rollback().await.expect("it rolls back");
    let mut transaction = connection.begin().await.expect("a transaction");
    let all = [
        job("q", "a").unique("k").into(),
        job("q", "b").unique("k").at(at(60)).into(),
    ];
    let answers = backstop_postgres::enqueue_in_sqlx(&mut transaction, &schema, &all, at(0))
        .await
        .expect("jobs");
    assert_eq!(
        answers,
        [EnqueueOutcome::Inserted, EnqueueOutcome::Duplicate(id("a"))]
    );
    transaction.commit().await.expect("it commits");
    assert_eq!(names(&scene.claim("q", 10).await), ["a"]);
    assert_eq!(scene.find("undone").await, None);
}

#[tokio::test]
async fn twenty_thousand_jobs_in_one_transaction_take_one_lock() {
    let (store, schema) = fresh_store().await;
    let client = user().await;
    client
        .batch_execute("SET statement_timeout = 0")
        .await
        .expect("as long as it takes");
    let many =
        format!("SELECT count({schema}.enqueue('q', 'k', '{{}}')) FROM generate_series(1, 20000)");
    client
        .batch_execute(&many)
        .await
        .expect("the server's table of locks has room for one");
    assert_eq!(
        Scene::new(store)
            .queue("q")
            .await
            .counts
            .of(JobState::Ready),
        20_000
    );
}

#[tokio::test]
async fn a_transaction_with_an_old_snapshot_is_refused_with_what_to_do() {
    let (_store, schema) = fresh_store().await;
    let mut client = user().await;
    let serializable = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::Serializable);
    let transaction = serializable.start().await.expect("a transaction");
    let refused = enqueue_in(&transaction, &schema, &jobs(&["a"]), at(0))
        .await
        .expect_err("it is refused");
    assert!(refused.to_string().contains("READ COMMITTED"), "{refused}");
}

#[tokio::test]
async fn one_id_pushed_for_now_and_for_later_at_once_is_one_job() {
    let (store, schema) = fresh_store().await;
    let (scene, mut client) = (Scene::new(store), user().await);
    scene.insert([job("q", "other")]).await;
    let transaction = client.transaction().await.expect("a transaction");
    enqueue_in(&transaction, &schema, &jobs(&["x"]), at(0))
        .await
        .expect("a job");
    let (later, committed) = tokio::join!(scene.enqueue([job("q", "x").at(at(60))]), async {
        tokio::task::yield_now().await;
        transaction.commit().await
    });
    committed.expect("it commits");
    assert_eq!(later, [EnqueueOutcome::Same]);
    assert_eq!(scene.queue("q").await.counts.live(), 2);
}

#[tokio::test]
async fn who_is_refused_a_key_keeps_nobody_from_ending() {
    let (store, schema) = fresh_store().await;
    let (mut scene, mut client) = (Scene::new(store), user().await);
    scene.insert([job("q", "holder").unique("k")]).await;
    let run = scene.claim_one("q").await;
    let transaction = client.transaction().await.expect("a transaction");
    let twin = [job("q", "twin").unique("k").into()];
    let refused = enqueue_in(&transaction, &schema, &twin, at(0))
        .await
        .expect("an answer");
    assert_eq!(refused, [EnqueueOutcome::Duplicate(id("holder"))]);
    let gone = backstop_core::Outcome::Done(backstop_core::verdict::DoneRetention::Gone);
    assert_eq!(
        scene.settle(&run.lease, gone).await,
        backstop_core::port::SettleOutcome::Applied
    );
    transaction.commit().await.expect("it commits");
}
