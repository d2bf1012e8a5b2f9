use super::*;
use crate::{SqliteOptions, SqliteStore};
use backstop_core::JobState;
use backstop_core::port::Store;
use backstop_testkit::given::{Scene, job};
use std::path::Path;
use std::sync::Arc;

/// An upgrade step such as the next version may have.
const NEXT: UpgradeSteps<'_> = UpgradeSteps(&["ALTER TABLE backstop_worker ADD COLUMN note TEXT;
     CREATE TABLE backstop_step (x INTEGER NOT NULL);
     INSERT INTO backstop_step VALUES (1)"]);

fn open(path: &Path) -> Connection {
    crate::open::open(path, 0).expect("the file opens").writer
}

fn version(db: &Connection) -> u32 {
    mark(db)
        .expect("a mark")
        .check(DOING, u32::MAX, INSTEAD)
        .expect("a version")
}

fn count(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).expect("a count")
}

/// Runs `migrate` in four threads at once, each on its own connection to the file; returns their
/// results.
fn at_once(
    path: &Path,
    migrate: impl Fn(&mut Connection) -> StoreResult<MigrationResult> + Sync,
) -> Vec<StoreResult<MigrationResult>> {
    let open: Vec<Connection> = (0..4).map(|_| open(path)).collect();
    std::thread::scope(|threads| {
        let migrate = &migrate;
        let begin = |mut db| threads.spawn(move || migrate(&mut db));
        let begun: Vec<_> = open.into_iter().map(begin).collect();
        begun
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

/// Creates a file of version 1 with one job.
async fn version_1(path: &Path) {
    let store = SqliteStore::open(path, SqliteOptions::default()).expect("the file opens");
    assert_eq!(
        store.migrate().await,
        Ok(MigrationResult { from: 0, to: 1 })
    );
    assert_eq!(
        store.migrate().await,
        Ok(MigrationResult { from: 1, to: 1 })
    );
    let scene = Scene::new(Arc::new(store));
    scene.insert([job("q", "a")]).await;
    assert_eq!(scene.queue("q").await.counts.of(JobState::Ready), 1);
}

#[tokio::test]
async fn a_store_of_version_1_takes_the_next_step_once_and_keeps_its_jobs() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    version_1(&path).await;
    for migrated in at_once(&path, |db| migrate_by(db, NEXT)) {
        assert_eq!(migrated.expect("migrated").to, 2);
    }
    let db = Connection::open(&path).expect("the file opens");
    assert_eq!(
        (
            version(&db),
            count(&db, "SELECT count(*) FROM backstop_step")
        ),
        (2, 1)
    );
    assert_eq!(count(&db, "SELECT count(*) FROM backstop_job"), 1);
}

#[tokio::test]
async fn a_step_that_is_cut_short_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    version_1(&path).await;
    let mut db = open(&path);
    let cut = format!("{}; SELECT no_such_function()", NEXT.0[0]);
    migrate_by(&mut db, UpgradeSteps(&[&cut])).expect_err("it is cut short");
    let steps = "SELECT count(*) FROM sqlite_master WHERE name = 'backstop_step'";
    assert_eq!((version(&db), count(&db, steps)), (1, 0));
    assert_eq!(
        migrate_by(&mut db, NEXT),
        Ok(MigrationResult { from: 1, to: 2 })
    );
}

#[test]
fn a_new_file_is_made_in_the_newest_version_at_once() {
    let mut db = Connection::open_in_memory().expect("a database");
    assert_eq!(
        migrate_by(&mut db, NEXT),
        Ok(MigrationResult { from: 0, to: 2 })
    );
    assert_eq!(version(&db), 2);
}

#[test]
fn many_that_migrate_a_new_file_at_once_all_succeed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    for migrated in at_once(&path, migrate) {
        assert_eq!(migrated.expect("migrated").to, VERSION);
    }
}

#[test]
fn a_store_that_this_program_does_not_know_is_refused_with_what_to_do() {
    let table = [
        (
            "INSERT INTO backstop_schema VALUES (2)",
            "Use the program that migrated it",
        ),
        (
            "DROP TABLE backstop_schema; CREATE TABLE backstop_meta (key, value)",
            "made by a pre-release of backstop. Export what you need",
        ),
    ];
    for (change, expected) in table {
        let mut db = Connection::open_in_memory().expect("a database");
        migrate(&mut db).expect("migrated");
        db.execute_batch("DELETE FROM backstop_schema")
            .expect("no version");
        db.execute_batch(change).expect(change);
        for answer in [migrate(&mut db).map(drop), check_version(&db, "claiming")] {
            let error = answer.expect_err("refused");
            assert!(matches!(error, StoreError::Misuse { .. }), "{error:?}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}

#[test]
fn an_unmigrated_store_is_refused_with_what_to_do() {
    let db = Connection::open_in_memory().expect("a database");
    let error = check_version(&db, "claiming").expect_err("refused");
    assert!(matches!(error, StoreError::Misuse { .. }), "{error:?}");
    assert!(error.to_string().contains("backstop migrate"), "{error}");
}
