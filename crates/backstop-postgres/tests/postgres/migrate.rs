//! The schema: made once, by many at once. One that this program does not know is refused.

use super::{open, user};
use backstop_core::port::{FindingSeverity, Store, StoreError};
use backstop_postgres::{PostgresDurability, PostgresStore, schema_of};
use backstop_testkit::given::{Scene, job, names};
use backstop_testkit::servers;
use futures_util::future::join_all;

#[tokio::test]
async fn many_that_migrate_at_once_make_one_schema() {
    let address = servers::postgres().fresh_url();
    let stores = (0..6)
        .map(|_| PostgresStore::open(&address, PostgresDurability::Full).expect("an address"));
    let stores: Vec<PostgresStore> = stores.collect();
    let migrated = join_all(stores.iter().map(Store::migrate)).await;
    let made = migrated
        .iter()
        .filter(|migrated| migrated.as_ref().is_ok_and(|made| made.from == 0))
        .count();
    assert_eq!(
        (
            made,
            migrated.iter().filter(|migrated| migrated.is_ok()).count()
        ),
        (1, 6),
        "{migrated:?}"
    );
}

#[tokio::test]
async fn a_schema_that_an_administrator_made_is_used() {
    let address = servers::postgres().fresh_url();
    let schema = schema_of(&address).expect("an address");
    user()
        .await
        .batch_execute(&format!("CREATE SCHEMA {schema}"))
        .await
        .expect("a schema");
    let mut scene = Scene::new(open(&address).await);
    scene.insert([job("q", "a")]).await;
    assert_eq!(names(&scene.claim("q", 1).await), ["a"]);
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let (store, schema) = super::fresh_store().await;
    let newer = format!("UPDATE {schema}.version SET schema_version = 99");
    user()
        .await
        .batch_execute(&newer)
        .await
        .expect("a later version");
    let refused = store.migrate().await.expect_err("it is refused");
    assert!(
        matches!(refused, StoreError::Misuse { .. }) && refused.to_string().contains("99"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_schema_of_a_pre_release_is_refused_and_left_alone() {
    for version in [1, 7] {
        let address = servers::postgres().fresh_url();
        let schema = schema_of(&address).expect("an address");
        let made = format!(
            "CREATE SCHEMA {schema}; CREATE TABLE {schema}.version (number int NOT NULL);
             INSERT INTO {schema}.version VALUES ({version})"
        );
        user().await.batch_execute(&made).await.expect("its mark");
        let store = PostgresStore::open(&address, PostgresDurability::Full).expect("an address");
        let refused = store
            .migrate()
            .await
            .expect_err("its version means something else");
        assert!(matches!(refused, StoreError::Misuse { .. }), "{refused:?}");
        assert!(
            refused
                .to_string()
                .contains("pre-release of backstop. Export"),
            "{refused}"
        );
        let tables = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'");
        let tables = user().await.query_one(&tables, &[]).await.expect("a count");
        assert_eq!(tables.get::<_, i64>(0), 1, "nothing was made beside it");
        let examined = store.examine().await.expect("it is examined");
        let found = examined
            .findings
            .iter()
            .find(|found| found.what.contains("pre-release"));
        assert_eq!(found.expect("it says so").severity, FindingSeverity::Bad);
    }
}

#[tokio::test]
async fn without_a_schema_every_call_says_to_migrate() {
    let store = PostgresStore::open(&servers::postgres().fresh_url(), PostgresDurability::Full)
        .expect("an address");
    let error = Scene::new(std::sync::Arc::new(store))
        .store
        .queues(backstop_core::Time::default())
        .await;
    let error = error.expect_err("there is nothing").to_string();
    assert!(error.contains("backstop migrate"), "{error}");
}
