use super::*;
use crate::{SqliteOptions, SqliteStore};
use backstop_core::amend::{Action, Filter, Selection};
use backstop_core::failure::ErrorReport;
use backstop_core::port::{
    Amendment, GroupQuery, Offered, Operator, Order, PageQuery, QueueStatus, Settled, Store, Streams,
};
use backstop_core::stream::Record;
use backstop_core::{Bounds, Fingerprint, Lease, LeaseNumber, Payload, State, StreamKey, StreamName};
use backstop_testkit::given::{self, START, Scene, at, history};
use rusqlite::params;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const STEPS: [Step; 3] = [
    Step::new("CREATE TABLE backstop_a (x)"),
    Step {
        fill: |db| db.execute_batch("INSERT INTO backstop_a VALUES (1)"),
        ..Step::new("CREATE TABLE backstop_b (x)")
    },
    Step::adding("ALTER TABLE backstop_a ADD COLUMN y; INSERT INTO backstop_b VALUES (1);"),
];

fn rows(db: &Connection) -> (i64, i64) {
    let count = |table| count(db, &format!("SELECT count(*) FROM {table}"));
    (count("backstop_a"), count("backstop_b"))
}

#[test]
fn a_ladder_left_at_any_step_is_climbed_to_its_end() {
    for reached in 0..=STEPS.len() {
        let mut db = Connection::open_in_memory().expect("a database");
        climb(&mut db, &STEPS[..reached]).expect("the first steps");
        let migrated = climb(&mut db, &STEPS).expect("the rest");
        assert_eq!(migrated, Migrated { from: reached as u32, to: 3 });
        assert_eq!(rows(&db), (1, 1), "from {reached}");
        assert_eq!(climb(&mut db, &STEPS), Ok(Migrated { from: 3, to: 3 }));
    }
}

#[test]
fn a_step_cut_short_leaves_nothing_behind() {
    for cut in 0..STEPS.len() {
        let mut db = Connection::open_in_memory().expect("a database");
        let mut broken = STEPS;
        broken[cut].fill = |db| db.execute_batch("CREATE TABLE backstop_c (x); SELECT no_such_function();");
        assert!(climb(&mut db, &broken).is_err(), "the step that is cut");
        assert_eq!(version(&db), Ok(cut as u32));
        climb(&mut db, &STEPS).expect("the second try");
        assert_eq!(rows(&db), (1, 1), "cut in step {cut}");
    }
}

#[test]
fn two_who_migrate_at_once_both_succeed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let all = std::thread::scope(|threads| {
        let climbers: Vec<_> = (0..4)
            .map(|_| {
                threads.spawn(|| {
                    let mut db = crate::open::open(&path, 0).expect("the file opens").writer;
                    migrate(&mut db)
                })
            })
            .collect();
        climbers.into_iter().map(|climber| climber.join().expect("no panic")).collect::<Vec<_>>()
    });
    for migrated in all {
        assert_eq!(migrated.expect("migrated").to, VERSION);
    }
}

#[test]
fn a_newer_store_is_refused_with_what_to_do() {
    let mut db = Connection::open_in_memory().expect("a database");
    migrate(&mut db).expect("migrated");
    db.execute(SCHEMA_SET, [VERSION + 1]).expect("a version of the future");
    db.execute(LEAST_SET, [VERSION + 1]).expect("for programs of the future");
    for answer in [migrate(&mut db).map(drop), check_version(&db, "claiming")] {
        let error = answer.expect_err("refused");
        assert!(matches!(error, StoreError::Misuse { .. }), "{error:?}");
        assert!(error.to_string().contains("use the program that migrated it"), "{error}");
    }
}

#[test]
fn steps_that_only_add_leave_the_least_version_as_it_was() {
    let mut db = Connection::open_in_memory().expect("a database");
    for (reached, expected) in [(1, 1), (2, 2), (3, 2)] {
        climb(&mut db, &STEPS[..reached]).expect("climbed");
        assert_eq!(least(&db), Ok(expected), "after step {reached}");
    }
    db.execute_batch("DELETE FROM backstop_meta WHERE key = 'least'").expect("as it was before");
    assert_eq!(least(&db), Ok(3), "where it is not said, only its own version will do");
}

/// The next version, by a step that only adds.
fn climb_past(path: &Path) {
    let mut db = crate::open::open(path, 0).expect("the file opens").writer;
    let step = Step::adding("ALTER TABLE backstop_claim ADD COLUMN note TEXT");
    climb_to(&mut db, VERSION + 1, &step).expect("the next version");
    assert_eq!(version(&db), Ok(VERSION + 1));
}

#[tokio::test]
async fn a_program_goes_on_while_the_next_version_adds_to_its_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).expect("the file opens");
    store.migrate().await.expect("migrated");
    let mut scene = Scene::new(Arc::new(store));
    scene.insert([given::job("q", "before")]).await;
    let run = scene.claim_one("q").await;
    climb_past(&path);
    assert_eq!(scene.beat(std::slice::from_ref(&run.lease), at(90)).await, [], "what it holds stays its own");
    assert_eq!(scene.settle(&run.lease, given::DONE).await, Settled::Applied, "what it did counts");
    scene.insert([given::job("q", "after")]).await;
    let run = scene.claim_one("q").await;
    assert_eq!(scene.settle(&run.lease, given::DONE).await, Settled::Applied);
    assert_eq!(scene.queue("q").await.counts.of(State::Done), 2);
    // And it can be started anew beside the other.
    let next = VERSION + 1;
    let again = SqliteStore::open(&path, SqliteOptions::default()).expect("the file opens");
    assert_eq!(again.migrate().await, Ok(Migrated { from: next, to: next }), "its shape is left alone");
    assert_eq!(again.queues(START).await.expect("queues").len(), 1);
}

#[test]
fn an_unmigrated_store_is_refused_with_what_to_do() {
    let db = Connection::open_in_memory().expect("a database");
    let error = check_version(&db, "claiming").expect_err("refused");
    assert!(matches!(error, StoreError::Misuse { .. }), "{error:?}");
    assert!(error.to_string().contains("backstop migrate"), "{error}");
}

const DEAD: i64 = 2_500;

/// A file as version 1 left it: dead jobs, every fifth of another cause, and one that is ready.
fn version_1(dir: &Path) -> PathBuf {
    let path = dir.join("store.db");
    let mut db = crate::open::open(&path, 0).expect("the file opens").writer;
    climb(&mut db, &LADDER[..1]).expect("the first version");
    let transaction = db.transaction().expect("begun");
    (0..=DEAD).for_each(|no| put(&transaction, no));
    transaction
        .execute(
            "INSERT INTO backstop_queue (id, name, next_seq, ready, dead, total_enqueued, total_dead)
             VALUES (1, 'q', ?1 + 1, 1, ?1, ?1 + 1, ?1)",
            [DEAD],
        )
        .expect("a queue");
    transaction.commit().expect("committed");
    path
}

/// Puts a job where version 1 would have it: dead, and the last one ready.
fn put(db: &Connection, no: i64) {
    let (is_dead, ended_at) = (no < DEAD, at(no).as_micros());
    let message = if no % 5 == 0 { format!("no user {no}") } else { format!("order {no} lost") };
    let (id, history) = (given::id(&no.to_string()), history(&message));
    let job = params![
        no,
        if is_dead { 4 } else { 0 },
        START.as_micros(),
        ended_at,
        is_dead.then_some("attempts_exhausted"),
        history.as_bytes().filter(|_| is_dead),
        id.as_bytes(),
        format!("\"{no}\""),
    ];
    db.execute(
        "INSERT INTO backstop_job VALUES
         (?1, ?2, 3, 0, 0, ?1, ?3, ?4, 7, 4, ?5, ?6, ?7, 1, 2, 'k', NULL, NULL, NULL, ?3, NULL, ?8)",
        job,
    )
    .expect("a job");
    let (line, place) = if is_dead {
        ("INSERT INTO backstop_finished VALUES (1, 4, ?1, ?2)", [ended_at, no])
    } else {
        ("INSERT INTO backstop_ready VALUES (1, 2, ?1, ?2)", [no, no])
    };
    db.execute(line, place).expect("its place");
}

fn count(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).expect("a count")
}

async fn status(store: &SqliteStore) -> QueueStatus {
    store.queues(START).await.expect("queues").remove(0)
}

#[tokio::test]
async fn the_dead_of_version_1_are_grouped_after_the_upgrade() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(version_1(dir.path()), SqliteOptions::default()).expect("the file opens");
    let refused = store.queues(START).await.expect_err("not migrated");
    assert!(refused.to_string().contains("backstop migrate"), "{refused}");
    assert_eq!(store.migrate().await, Ok(Migrated { from: 1, to: VERSION }));
    assert_eq!(store.migrate().await, Ok(Migrated { from: VERSION, to: VERSION }));

    let groups = store.groups(GroupQuery { queue: None, limit: 9 }, START).await.expect("groups");
    let fingerprint = |message| Fingerprint::of(&ErrorReport::message(message));
    let seen: Vec<_> = groups.iter().map(|group| (group.fingerprint, group.count, group.sample)).collect();
    let expected = [
        (fingerprint("order 1 lost"), 2_000, given::id("2499")),
        (fingerprint("no user 1"), 500, given::id("2495")),
    ];
    assert_eq!(seen, expected);
    assert_eq!((groups[1].first_at, groups[1].last_at), (at(0), at(2_495)));

    let before = status(&store).await;
    assert_eq!((before.counts.of(State::Dead), before.bounds), (DEAD.unsigned_abs(), Bounds::default()));
    let users =
        Filter { fingerprint: Some(groups[1].fingerprint), ..given::filter(Some("q"), Some(State::Dead)) };
    let query = PageQuery { filter: users.clone(), limit: 2, order: Order::Oldest, cursor: None };
    let page = store.jobs(query, START).await.expect("a page");
    assert_eq!(given::listed(&page.jobs), ["0", "5"]);
    let (selection, action) = (Selection::Matching(users), Action::Retry);
    let amendment = Amendment { selection, action, only: Some(State::Dead), cursor: None, max: 1_000 };
    assert_eq!(store.amend(amendment, START).await.expect("amended").applied, 500);
    let after = status(&store).await;
    assert_eq!((after.counts.of(State::Dead), after.counts.of(State::Ready)), (2_000, 501));
}

#[test]
fn an_upgrade_that_is_killed_leaves_version_1_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = version_1(dir.path());
    let mut db = crate::open::open(&path, 0).expect("the file opens").writer;
    let mut killed = LADDER;
    killed[1].fill = |db| {
        fingerprints::fill(db)?;
        db.execute_batch("SELECT no_such_function()")
    };
    assert!(climb(&mut db, &killed).is_err());
    let tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('backstop_dead', 'backstop_cell')";
    assert_eq!((version(&db), count(&db, tables)), (Ok(1), 0));
    assert_eq!(migrate(&mut db), Ok(Migrated { from: 1, to: VERSION }));
    assert_eq!(count(&db, "SELECT count(*) FROM backstop_dead"), DEAD);
}

/// A file as version 2 left it, with what [`version_1`] has in it.
fn version_2(dir: &Path) -> PathBuf {
    let path = version_1(dir);
    let mut db = crate::open::open(&path, 0).expect("the file opens").writer;
    climb(&mut db, &LADDER[..2]).expect("the second version");
    path
}

#[tokio::test]
async fn a_store_of_version_2_keeps_streams_after_the_upgrade() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(version_2(dir.path()), SqliteOptions::default()).expect("the file opens");
    let refused = store.streams().await.expect_err("not migrated");
    assert!(refused.to_string().contains("backstop migrate"), "{refused}");
    assert_eq!(store.migrate().await, Ok(Migrated { from: 2, to: VERSION }));
    assert_eq!(status(&store).await.counts.of(State::Dead), DEAD.unsigned_abs());
    let stream = StreamName::new("s").expect("a name");
    let record = Record {
        key: StreamKey::new("k").expect("a key"),
        position: 1,
        step: 1,
        tenant: None,
        payload: Payload::stored(b"1".to_vec()),
    };
    assert_eq!(store.offer(stream, vec![record], START).await, Ok(vec![Offered::Held]));
    assert_eq!(store.streams().await.expect("streams")[0].records, 1);
}

#[test]
fn an_upgrade_that_is_killed_leaves_version_2_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = version_2(dir.path());
    let mut db = crate::open::open(&path, 0).expect("the file opens").writer;
    let mut killed = LADDER;
    killed[2].fill = |db| db.execute_batch("SELECT no_such_function()");
    assert!(climb(&mut db, &killed).is_err());
    let tables = "SELECT count(*) FROM sqlite_master WHERE name GLOB 'backstop_stream*'";
    assert_eq!((version(&db), count(&db, tables)), (Ok(2), 0));
    assert_eq!(migrate(&mut db), Ok(Migrated { from: 2, to: VERSION }));
    assert_eq!(count(&db, "SELECT count(*) FROM backstop_dead"), DEAD);
}

/// A file as version 4 left it: a job that runs under a claim whose beginning nobody wrote down.
fn version_4(dir: &Path) -> PathBuf {
    let path = dir.join("store.db");
    let mut db = crate::open::open(&path, 0).expect("the file opens").writer;
    climb(&mut db, &LADDER[..4]).expect("the fourth version");
    put(&db, DEAD);
    let id = given::id(&DEAD.to_string());
    db.execute_batch(
        "INSERT INTO backstop_queue (id, name, next_seq, running, total_enqueued) VALUES (1, 'q', 2501, 1, 1);
         DELETE FROM backstop_ready",
    )
    .expect("a queue");
    db.execute(
        "INSERT INTO backstop_running (id, no, lease, queue, level, seq) VALUES (?1, ?2, 7, 1, 2, ?2)",
        params![id.as_bytes(), DEAD],
    )
    .expect("a run");
    db.execute("INSERT INTO backstop_claim VALUES (7, 'old', ?1, 1)", [at(60).as_micros()]).expect("a claim");
    path
}

#[tokio::test]
async fn a_claim_of_version_4_is_read_kept_seized_and_ended_after_the_upgrade() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = version_4(dir.path());
    let store = SqliteStore::open(&path, SqliteOptions::default()).expect("the file opens");
    assert_eq!(store.migrate().await, Ok(Migrated { from: 4, to: VERSION }));
    let mut scene = Scene::new(Arc::new(store));
    let name = DEAD.to_string();
    let old = scene.job(&name).await.held_by.expect("it runs");
    assert_eq!((old.worker.as_str(), old.since, old.until), ("old", None, at(60)));
    let lease = Lease { queue: given::queue("q"), job: given::id(&name), number: LeaseNumber::from_i64(7) };
    assert_eq!(scene.beat_as("old", &[lease], at(90)).await, []);
    let kept = scene.job(&name).await.held_by.expect("it runs");
    assert_eq!((kept.since, kept.until), (None, at(90)));
    scene.now = at(100);
    let seized = scene.seize("rescuer").await;
    assert_eq!(seized[0].vanished.worker.as_str(), "old");
    assert_eq!(scene.job(&name).await.started_at(), Some(at(100)));
    assert_eq!(scene.settle(&seized[0].run.lease, given::DONE).await, Settled::Applied);
}
