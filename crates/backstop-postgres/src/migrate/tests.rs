use super::*;
use crate::{PostgresDurability, PostgresStore, connect};
use backstop_core::port::{FindingSeverity, Store};
use backstop_testkit::given::{Scene, job, names};
use backstop_testkit::servers;
use futures_util::future::join_all;
use std::sync::Arc;

/// An upgrade step such as the next version may have.
const NEXT: UpgradeSteps<'_> = UpgradeSteps(&["ALTER TABLE worker ADD COLUMN note text;
     CREATE FUNCTION note() RETURNS void LANGUAGE sql AS '';
     CREATE TABLE step (x int NOT NULL);
     INSERT INTO step VALUES (1)"]);

fn link(address: &str) -> PostgresLink {
    PostgresLink::new(address.parse().expect("an address")).expect("a link")
}

/// Creates a schema of version 1 with one job; returns its address and the store.
async fn version_1() -> (String, Arc<dyn Store>) {
    let address = servers::postgres().fresh_url();
    let store =
        Arc::new(PostgresStore::open(&address, PostgresDurability::Full).expect("an address"));
    assert_eq!(
        store.migrate().await,
        Ok(MigrationResult { from: 0, to: 1 })
    );
    assert_eq!(
        store.migrate().await,
        Ok(MigrationResult { from: 1, to: 1 })
    );
    Scene::new(store.clone()).insert([job("q", "a")]).await;
    (address, store)
}

async fn count(link: &PostgresLink, what: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM \"{}\".{what}", link.schema());
    row::get(&link.rows(DOING, &sql, &[]).await.expect(what)[0], 0).expect("a count")
}

#[tokio::test]
async fn a_store_of_version_1_takes_the_next_step_once_and_keeps_its_jobs() {
    let (address, store) = version_1().await;
    let links: Vec<PostgresLink> = (0..4).map(|_| link(&address)).collect();
    let migrated = join_all(links.iter().map(|link| migrate_by(link, NEXT))).await;
    let migrated: Vec<MigrationResult> = migrated
        .into_iter()
        .map(|made| made.expect("migrated"))
        .collect();
    let taken = migrated.iter().filter(|made| made.from == 1).count();
    assert_eq!(
        (taken, migrated.iter().filter(|made| made.to == 2).count()),
        (1, 4),
        "{migrated:?}"
    );
    assert_eq!(mark(&links[0]).await, Ok(SchemaMark::Version(2)));
    assert_eq!(count(&links[0], "step").await, 1);
    assert_eq!(
        count(&links[0], "drift()").await,
        0,
        "it is as the step made it"
    );
    assert_eq!(names(&Scene::new(store).claim("q", 9).await), ["a"]);
}

#[tokio::test]
async fn a_step_that_is_cut_short_leaves_nothing_behind() {
    let (address, store) = version_1().await;
    let link = link(&address);
    let cut = format!("{}; SELECT 1 / 0", NEXT.0[0]);
    migrate_by(&link, UpgradeSteps(&[&cut]))
        .await
        .expect_err("it is cut short");
    assert_eq!(version(&link).await, Ok(1));
    let examined = store.examine().await.expect("it is examined");
    let found = examined
        .findings
        .iter()
        .find(|found| found.what == "version 1 of 1");
    assert_eq!(
        found.expect("its version").severity,
        FindingSeverity::Good,
        "{examined:?}"
    );
    assert_eq!(
        migrate_by(&link, NEXT).await,
        Ok(MigrationResult { from: 1, to: 2 })
    );
}

#[tokio::test]
async fn a_second_one_that_migrates_waits_for_the_step_of_the_first() {
    let (address, _store) = version_1().await;
    let link = link(&address);
    let first = connect(&address).await.expect("a connection");
    let text = transaction_of(NEXT.0[0], false, 2, link.schema());
    first
        .batch_execute(&format!("BEGIN; {text}"))
        .await
        .expect("a step that is not committed");
    let ending = async {
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE wait_event = 'advisory' AND query LIKE '%' || $1 || '%'";
        let schema = link.schema();
        loop {
            // Within a transaction this view is a snapshot, so clear it.
            first
                .batch_execute("SELECT pg_stat_clear_snapshot()")
                .await
                .expect("a new snapshot");
            let row = first.query_one(waits, &[&schema]).await.expect("a count");
            if row.get::<_, i64>(0) > 0 {
                break;
            }
        }
        first
            .batch_execute("COMMIT")
            .await
            .expect("the step is there");
    };
    let (second, ()) = tokio::join!(migrate_by(&link, NEXT), ending);
    assert_eq!(
        second,
        Ok(MigrationResult { from: 2, to: 2 }),
        "it found the step taken"
    );
    assert_eq!(count(&link, "step").await, 1);
}

#[tokio::test]
async fn a_new_schema_is_made_in_the_newest_version_at_once() {
    let link = link(&servers::postgres().fresh_url());
    assert_eq!(
        migrate_by(&link, NEXT).await,
        Ok(MigrationResult { from: 0, to: 2 })
    );
    assert_eq!(mark(&link).await, Ok(SchemaMark::Version(2)));
}
