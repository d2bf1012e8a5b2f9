//! From versions 1 to 6, with what they left behind, to the one of today.

use super::user;
use backstop_core::port::{Cells, Grade, GroupQuery, PageQuery, Store, Streams, Swap};
use backstop_core::{Fingerprint, JobId, Lease, LeaseNumber, Span, State, Time};
use backstop_postgres::{Durability, PostgresStore, schema_of};
use backstop_testkit::given::{LEASE, Scene, at, filter, history, job, names, queue};
use backstop_testkit::servers;
use futures_util::future::join_all;
use std::sync::Arc;
use uuid::Uuid;

const TABLES_1: &str = include_str!("../../src/sql/tables.sql");
const FUNCTIONS_1: &str = include_str!("version_1.sql");
const TABLES_2: &str = include_str!("../../src/sql/tables_2.sql");
const FUNCTIONS_2: &str = include_str!("version_2.sql");
const TABLES_3: &str = include_str!("../../src/sql/tables_3.sql");
const FUNCTIONS_3: &str = include_str!("version_3.sql");
const TABLES_4: &str = include_str!("../../src/sql/tables_4.sql");
const FUNCTIONS_4: &str = include_str!("version_4.sql");
const TABLES_5: &str = include_str!("../../src/sql/tables_5.sql");
const FUNCTIONS_5: &str = include_str!("version_5.sql");
const TABLES_6: &str = include_str!("../../src/sql/tables_6.sql");
const FUNCTIONS_6: &str = include_str!("version_6.sql");
/// More than are given their fingerprints at once.
const DEAD: i64 = 250;

/// A schema of version 1 with a ready job, and dead ones that had run under it; and its address.
async fn version_1() -> (String, String) {
    let address = servers::postgres().fresh_url();
    let schema = schema_of(&address).expect("an address");
    let client = user().await;
    let make = format!(
        "CREATE SCHEMA {schema}; SET search_path = {schema}, pg_temp; SET check_function_bodies = off; {TABLES_1} {FUNCTIONS_1}"
    );
    client.batch_execute(&make).await.expect("version 1");
    let bytes = history("boom 7").as_bytes().expect("a failure").to_vec();
    let died = format!(
        "WITH run AS (SELECT * FROM claim(7, 'w', 90000000000, '{{q}}', '{{{DEAD}}}', 5)),
           many AS (SELECT array_agg(id) AS ids, array_agg(queue) AS queues FROM run)
         SELECT settle('{{}}', '{{}}', '{{}}', '{{}}', 2::smallint, true, ids, queues, array_fill(7::bigint, n), array_fill(4::smallint, n),
           array_fill(5::smallint, n), array_fill(1, n), array_fill(0, n), array_fill(false, n), array_fill(NULL::bigint, n),
           array_fill('rejected'::text, n), array_fill(true, n), array_fill($1::bytea, n), array_fill(false, n), 9)
         FROM many, LATERAL (SELECT ARRAY[cardinality(ids)]) x(n)"
    );
    let push = format!("SELECT enqueue('q', 'k', '{{}}') FROM generate_series(1, {DEAD})");
    client.batch_execute(&push).await.expect("jobs");
    client.query(&died, &[&bytes]).await.expect("deaths");
    client.batch_execute("SELECT enqueue('q', 'alive', '{}')").await.expect("a job");
    (address, schema)
}

/// A schema of version 2 with a ready job and a cell; and its address.
async fn version_2() -> (String, String) {
    let address = servers::postgres().fresh_url();
    let schema = schema_of(&address).expect("an address");
    let make = format!(
        "CREATE SCHEMA {schema}; SET search_path = {schema}, pg_temp; SET check_function_bodies = off; {TABLES_1} {TABLES_2} {FUNCTIONS_2};
         SELECT enqueue('q', 'alive', '{{}}'), swap('{{a}}', '{{NULL}}', '{{5}}', '{{x}}')"
    );
    user().await.batch_execute(&make).await.expect("version 2");
    (address, schema)
}

/// A schema of version 3 with a claim that runs, a job that is done and one that is ready; and its address.
async fn version_3() -> (String, String) {
    with_a_run(&format!("{TABLES_1} {TABLES_2} {TABLES_3} {FUNCTIONS_3}")).await
}

/// The same of version 4.
async fn version_4() -> (String, String) {
    with_a_run(&format!("{TABLES_1} {TABLES_2} {TABLES_3} {TABLES_4} {FUNCTIONS_4}")).await
}

/// The same of version 5.
async fn version_5() -> (String, String) {
    with_a_run(&format!("{TABLES_1} {TABLES_2} {TABLES_3} {TABLES_4} {TABLES_5} {FUNCTIONS_5}")).await
}

/// The same of version 6.
async fn version_6() -> (String, String) {
    with_a_run(&format!("{TABLES_1} {TABLES_2} {TABLES_3} {TABLES_4} {TABLES_5} {TABLES_6} {FUNCTIONS_6}"))
        .await
}

async fn with_a_run(version: &str) -> (String, String) {
    let address = servers::postgres().fresh_url();
    let schema = schema_of(&address).expect("an address");
    let make = format!(
        "CREATE SCHEMA {schema}; SET search_path = {schema}, pg_temp; SET check_function_bodies = off; {version};
         SELECT enqueue('q', 'done', '{{}}', id => '019f0000-0000-7000-8000-000000000001'), enqueue('q', 'runs', '{{}}', id => '019f0000-0000-7000-8000-000000000002');
         SELECT count(*) FROM claim(7, 'w', 90000000000, '{{q}}', '{{2}}', 5);
         SELECT settle('{{019f0000-0000-7000-8000-000000000001}}', '{{1}}', '{{q}}', '{{7}}', 1::smallint, true, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}',
           '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', 6);
         SELECT enqueue('q', 'alive', '{{}}')"
    );
    user().await.batch_execute(&make).await.expect("an older version");
    (address, schema)
}

async fn check_dead(scene: &Scene) {
    let query = GroupQuery { queue: Some(queue("q")), limit: 9 };
    let groups = scene.store.groups(query, scene.now).await.expect("groups");
    let counted: Vec<_> = groups.iter().map(|group| (group.fingerprint, group.count)).collect();
    let error = backstop_core::failure::ErrorReport::message("boom 8");
    assert_eq!(counted, [(Fingerprint::of(&error), DEAD.unsigned_abs())]);
    assert_eq!(scene.queue("q").await.counts.of(State::Dead), DEAD.unsigned_abs());
}

#[tokio::test]
async fn many_that_upgrade_at_once_make_one_upgrade_and_lose_nothing() {
    let (address, _schema) = version_1().await;
    let stores = (0..4).map(|_| PostgresStore::open(&address, Durability::Full).expect("an address"));
    let stores: Vec<PostgresStore> = stores.collect();
    let migrated = join_all(stores.iter().map(Store::migrate)).await;
    let made = migrated.iter().filter(|migrated| migrated.as_ref().is_ok_and(|made| made.from == 1)).count();
    assert_eq!((made, migrated.iter().filter(|migrated| migrated.is_ok()).count()), (1, 4), "{migrated:?}");
    let mut scene = Scene::new(super::open(&address).await);
    check_dead(&scene).await;
    let runs = scene.claim("q", 9).await;
    assert_eq!((runs.len(), runs[0].kind.as_str()), (1, "alive"));
    assert_eq!(scene.queue("q").await.bounds, backstop_core::Bounds::default());
}

#[tokio::test]
async fn an_upgraded_schema_is_as_it_was_made() {
    let versions = [
        version_1().await,
        version_2().await,
        version_3().await,
        version_4().await,
        version_5().await,
        version_6().await,
    ];
    for (address, _schema) in versions {
        let examined = super::open(&address).await.examine().await.expect("it can be examined");
        let found = examined.findings.iter().find(|found| found.what.starts_with("version 7 of 7"));
        assert_eq!(found.expect("a version").grade, Grade::Good, "{examined:?}");
    }
}

#[tokio::test]
async fn what_version_2_left_behind_is_there_and_streams_are_too() {
    let (address, _schema) = version_2().await;
    let store = PostgresStore::open(&address, Durability::Full).expect("an address");
    assert_eq!(store.migrate().await.expect("it migrates").from, 2);
    assert_eq!(store.migrate().await.expect("nothing to do").from, 7);
    let mut scene = Scene::new(Arc::new(store));
    assert_eq!(scene.claim("q", 9).await.len(), 1);
    let cells = scene.store.cells(vec!["a".to_owned()]).await.expect("cells");
    assert_eq!(cells[0].as_ref().map(|cell| cell.version), Some(5));
    assert_eq!(scene.store.streams().await.expect("streams"), []);
}

/// Its statements are prepared, and the functions behind them are dropped and made anew under them.
#[tokio::test]
async fn a_store_that_worked_on_an_older_version_works_on() {
    for (version, (address, _schema)) in
        [(3, version_3().await), (4, version_4().await), (5, version_5().await), (6, version_6().await)]
    {
        let store = PostgresStore::open(&address, Durability::Full).expect("an address");
        let before = Scene::new(Arc::new(store));
        before.insert([job("q", "before")]).await;
        let seen = before.job("before").await;
        assert_eq!((seen.state, seen.held_by), (State::Ready, None));
        assert_eq!(before.store.migrate().await.expect("it migrates").from, version);
        before.insert([job("q", "after")]).await;
        let status = before.queue("q").await;
        let counts = [State::Ready, State::Running, State::Done].map(|state| status.counts.of(state));
        assert_eq!(counts, [3, 1, 1]);
        let mut scene = Scene::new(super::open(&address).await);
        assert_eq!(scene.claim("q", 9).await.len(), 3);
    }
}

/// Nobody wrote down when it was claimed, and nobody makes that up: not even whoever beats for it.
#[tokio::test]
async fn a_lease_of_an_older_version_is_read_kept_and_seized() {
    for (address, _schema) in [version_3().await, version_4().await, version_5().await] {
        let mut scene = Scene::new(super::open(&address).await);
        scene.now = Time::from_micros(80_000_000_000);
        let running =
            PageQuery { filter: filter(Some("q"), Some(State::Running)), limit: 9, ..PageQuery::default() };
        let page = scene.store.jobs(running, scene.now).await.expect("a list");
        let lease = Lease { queue: queue("q"), job: page.jobs[0].id, number: LeaseNumber::from_i64(7) };
        let claimant = async |scene: &Scene| {
            let job = scene.store.job(lease.job, scene.now).await.expect("the store looks").expect("a job");
            let held_by = job.held_by.expect("it runs");
            (held_by.worker.as_str().to_owned(), held_by.since)
        };
        assert_eq!(claimant(&scene).await, ("w".to_owned(), None));
        let until = scene.now.after(LEASE);
        assert_eq!(scene.beat_as("w", std::slice::from_ref(&lease), until).await, []);
        assert_eq!(claimant(&scene).await, ("w".to_owned(), None));
        scene.now = Time::from_micros(90_000_000_001).max(until.after(Span::secs(1)));
        assert_eq!(scene.seize("rescuer").await.len(), 1);
        assert_eq!(claimant(&scene).await, ("rescuer".to_owned(), Some(scene.now)));
        let run = scene.claim_one("q").await;
        let job = scene.store.job(run.lease.job, scene.now).await.expect("the store looks").expect("a job");
        assert_eq!(job.started_at(), Some(scene.now));
    }
}

/// A process of version 5 goes on beside the upgraded schema: it calls by name, and its claims are dated by the functions.
#[tokio::test]
async fn a_claim_as_version_5_makes_it_is_dated_after_the_upgrade() {
    let (address, schema) = version_5().await;
    let scene = Scene::new(super::open(&address).await);
    let claim = format!("SELECT id FROM {schema}.claim(8, 'former', 90000000000, '{{q}}', '{{1}}', 5)");
    let id: Uuid = user().await.query_one(&claim, &[]).await.expect("it claims").get(0);
    let job = scene.store.job(JobId::from_bytes(*id.as_bytes()), scene.now).await.expect("the store looks");
    let held_by = job.and_then(|job| job.held_by).expect("it runs");
    assert_eq!((held_by.worker.as_str(), held_by.since), ("former", Some(Time::from_micros(5))));
}

/// Where its claims stand, what was given back, what is late and what was counted: all of it is where the next claim and the next count look.
#[tokio::test]
async fn places_and_counts_of_version_4_are_kept() {
    let (address, schema) = version_4().await;
    let (client, mut late) = (user().await, user().await);
    let pushes = |id: u8| {
        format!(
            "SELECT {schema}.enqueue('q', 'late', '{{}}', id => '019f0000-0000-7000-8000-00000000000{id}')"
        )
    };
    let transaction = late.transaction().await.expect("a transaction");
    transaction.batch_execute(&pushes(4)).await.expect("a place is drawn");
    let passes = format!(
        "{}; SET search_path = {schema}; SELECT count(*) FROM claim(8, 'w', 90000000000, '{{q}}', '{{9}}', 5);
         SELECT settle('{{}}', '{{}}', '{{}}', '{{}}', 1::smallint, true, '{{019f0000-0000-7000-8000-000000000005}}', '{{q}}', '{{8}}', '{{6}}', '{{1}}',
           '{{0}}', '{{f}}', '{{0}}', '{{t}}', '{{6}}', '{{NULL}}', '{{NULL}}', '{{f}}', '{{NULL}}', '{{f}}', 6)",
        pushes(5)
    );
    client.batch_execute(&passes).await.expect("the cursor passes it, and a job is given back");
    transaction.commit().await.expect("it is late");
    let mut scene = Scene::new(super::open(&address).await);
    let status = scene.queue("q").await;
    assert_eq!([State::Ready, State::Running, State::Done].map(|state| status.counts.of(state)), [2, 2, 1]);
    assert_eq!(scene.claim("q", 9).await.len(), 2, "the one given back and the one that is late");
}

#[tokio::test]
async fn an_upgrade_that_fails_leaves_version_2_as_it_was() {
    let (address, schema) = version_2().await;
    let client = user().await;
    client
        .batch_execute(&format!("CREATE TABLE {schema}.stream_tally ()"))
        .await
        .expect("something in the way");
    let store = PostgresStore::open(&address, Durability::Full).expect("an address");
    store.migrate().await.expect_err("it is in the way");
    let count = format!("SELECT count(*) FROM {schema}.claim(8, 'w', 90000000000, '{{q}}', '{{9}}', 5)");
    assert_eq!(client.query_one(&count, &[]).await.expect("version 2 works").get::<_, i64>(0), 1);
    client.batch_execute(&format!("DROP TABLE {schema}.stream_tally")).await.expect("out of the way");
    assert_eq!(store.migrate().await.expect("it goes now").from, 2);
}

/// What an administrator took from a role on purpose does not come back with an upgrade.
#[tokio::test]
async fn an_upgrade_grants_what_is_new_and_nothing_that_was_taken_away() {
    let (address, schema) = version_2().await;
    let worker = super::roles::role(
        &schema,
        "worker",
        &[
            "GRANT USAGE ON SCHEMA SCHEMA_NAME TO ROLE_NAME",
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA SCHEMA_NAME TO ROLE_NAME",
            "REVOKE EXECUTE ON FUNCTION SCHEMA_NAME.swap FROM ROLE_NAME",
            "GRANT SELECT ON SCHEMA_NAME.version TO ROLE_NAME",
        ],
    );
    super::open(&address).await;
    let working = PostgresStore::open(&worker, Durability::Full).expect("an address");
    assert_eq!(working.streams().await.expect("it may look"), []);
    let swap = Swap { name: "a".to_owned(), seen: Some(5), version: 6, value: None };
    working.swap(vec![swap]).await.expect_err("it may not");
}

#[tokio::test]
async fn an_upgrade_that_was_killed_half_way_goes_on() {
    let (address, schema) = version_1().await;
    super::open(&address).await;
    let killed = format!(
        "UPDATE {schema}.finished SET fingerprint = NULL WHERE no % 2 = 0; INSERT INTO {schema}.version VALUES (-2)"
    );
    user().await.batch_execute(&killed).await.expect("as if it had been killed");
    check_dead(&Scene::new(super::open(&address).await)).await;
    let left = format!("SELECT count(*) FROM {schema}.version WHERE number < 0");
    assert_eq!(user().await.query_one(&left, &[]).await.expect("a count").get::<_, i64>(0), 0);
}

#[tokio::test]
async fn an_upgrade_that_fails_leaves_version_1_as_it_was() {
    let (address, schema) = version_1().await;
    let client = user().await;
    client.batch_execute(&format!("CREATE TABLE {schema}.cell ()")).await.expect("something in the way");
    let store = PostgresStore::open(&address, Durability::Full).expect("an address");
    store.migrate().await.expect_err("it is in the way");
    let count = format!("SELECT count(*) FROM {schema}.claim(8, 'w', 90000000000, '{{q}}', '{{9}}', 5)");
    assert_eq!(client.query_one(&count, &[]).await.expect("version 1 works").get::<_, i64>(0), 1);
    client.batch_execute(&format!("DROP TABLE {schema}.cell")).await.expect("out of the way");
    assert_eq!(store.migrate().await.expect("it goes now").from, 1);
}

#[tokio::test]
async fn roles_may_do_after_an_upgrade_what_they_might_before() {
    let (address, schema) = version_1().await;
    let worker = super::roles::role(
        &schema,
        "worker",
        &[
            "GRANT USAGE ON SCHEMA SCHEMA_NAME TO ROLE_NAME",
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA SCHEMA_NAME TO ROLE_NAME",
            "GRANT SELECT ON SCHEMA_NAME.version TO ROLE_NAME",
        ],
    );
    let producer = super::roles::role(
        &schema,
        "producer",
        &[
            "GRANT USAGE ON SCHEMA SCHEMA_NAME TO ROLE_NAME",
            "GRANT EXECUTE ON FUNCTION SCHEMA_NAME.enqueue, SCHEMA_NAME.enqueue_jobs TO ROLE_NAME",
            "GRANT SELECT ON SCHEMA_NAME.version TO ROLE_NAME",
        ],
    );
    super::open(&address).await;
    let store = |address: &str| -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(address, Durability::Full).expect("an address"))
    };
    let producing = Scene::new(store(&producer));
    assert_eq!(producing.store.migrate().await.expect("nothing to do").from, 7);
    producing.insert([job("other", "a")]).await;
    producing.store.groups(GroupQuery { queue: None, limit: 1 }, at(0)).await.expect_err("it may not look");
    let mut working = Scene::new(store(&worker));
    assert_eq!(names(&working.claim("other", 1).await), ["a"]);
    check_dead(&working).await;
    assert_eq!(working.store.cells(vec!["a".to_owned()]).await.expect("it may look"), [None]);
}
