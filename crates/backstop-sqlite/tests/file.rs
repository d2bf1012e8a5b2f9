//! What only a file can do: be shared, be reopened, be somebody else's database, be damaged.

use backstop_core::amend::{AmendAction, Filter, Selection};
use backstop_core::failure::ErrorReport;
use backstop_core::port::{
    AmendJobsRequest, DamagedJob, EnqueueOutcome, FindingSeverity, JobStore, ListGroupsRequest,
    ListJobsRequest, OperatorStore, PromoteResult, PruneRequest, Retention, SettleOutcome, Store,
    StoreError,
};
use backstop_core::{Fingerprint, Job, JobState, NewJob, Outcome, Overflow, QueueBounds};
use backstop_sqlite::{SqliteDurability, SqliteOpenError, SqliteOptions, SqliteStore, enqueue_in};
use backstop_testkit::given::{self, DONE, START, Scene, job};
use rusqlite::{Connection, TransactionBehavior};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("store.db")
    }

    fn open(&self) -> Arc<SqliteStore> {
        self.open_as(SqliteDurability::Full)
            .expect("the file opens")
    }

    fn open_as(&self, durability: SqliteDurability) -> Result<Arc<SqliteStore>, SqliteOpenError> {
        SqliteStore::open(
            self.path(),
            SqliteOptions {
                durability,
                ..SqliteOptions::default()
            },
        )
        .map(Arc::new)
    }

    async fn store(&self) -> Arc<SqliteStore> {
        let store = self.open();
        store.migrate().await.expect("it migrates");
        store
    }

    /// Somebody else's connection to the same file.
    fn connection(&self) -> Connection {
        let db = Connection::open(self.path()).expect("a connection");
        db.busy_timeout(Duration::from_secs(5)).expect("a timeout");
        db
    }
}

fn jobs(names: &[&str]) -> Vec<NewJob> {
    names.iter().map(|name| job("q", name).into()).collect()
}

async fn listed(store: &SqliteStore) -> BTreeSet<String> {
    let jobs = given::list(store, &Filter::default(), 100, START).await;
    given::listed(&jobs).into_iter().collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn an_unmigrated_store_says_what_to_do() {
    let place = Place::new();
    let store = place.open();
    let answers = [
        store.enqueue(jobs(&["a"]), START).await.map(drop),
        store.promote(1, START).await.map(drop),
        store.job(given::id("a"), START).await.map(drop),
        store.queues(START).await.map(drop),
        store.examine().await.map(drop),
    ];
    for answer in answers {
        let error = answer.expect_err("refused");
        assert!(matches!(error, StoreError::Misuse { .. }), "{error:?}");
        assert!(error.to_string().contains("backstop migrate"), "{error}");
    }
}

#[tokio::test]
async fn a_reopened_store_has_everything() {
    let place = Place::new();
    let store = place.store().await;
    let mut scene = Scene::new(store);
    scene
        .insert([
            job("q", "ready"),
            job("q", "running"),
            job("q", "done"),
            job("q", "later").at(given::at(60)),
        ])
        .await;
    let runs = scene.claim("q", 3).await;
    scene.settle(&runs[2].lease, DONE).await;
    scene
        .settle(&runs[0].lease, Outcome::Released { at: START })
        .await;
    let before = scene.queue("q").await;
    let number = scene.draw();
    drop(scene);
    assert!(
        !place.dir.path().join("store.db-wal").exists(),
        "the file alone is the store"
    );

    let mut scene = Scene::new(place.open());
    assert_eq!(scene.queue("q").await, before);
    for (name, state) in [
        ("ready", JobState::Ready),
        ("running", JobState::Running),
        ("done", JobState::Done),
        ("later", JobState::Scheduled),
    ] {
        assert_eq!(scene.state(name).await, Some(state), "{name}");
    }
    assert_eq!(
        scene.settle(&runs[1].lease, DONE).await,
        SettleOutcome::Applied,
        "a lease outlives the process"
    );
    while scene.draw() != number {}
    assert_eq!(given::names(&scene.claim("q", 9).await), ["ready"]);
}

#[tokio::test]
async fn a_call_with_nothing_to_do_writes_nothing() {
    let place = Place::new();
    let mut scene = Scene::new(place.store().await);
    scene
        .insert([job("q", "a"), job("q", "b").at(given::at(60))])
        .await;
    let runs = scene.claim("q", 9).await;
    scene.settle(&runs[0].lease, DONE).await;
    let full = QueueBounds {
        max_size: Some(1),
        overflow: Overflow::DeadLetterOldest,
        dead_max: 0,
    };
    scene
        .store
        .set_bounds(given::queue("full"), full, START)
        .await
        .expect("bounded");
    scene.insert([job("full", "first")]).await;
    let held = scene.claim_one("full").await;
    let db = place.connection();
    let commits = || {
        db.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0))
            .expect("a number")
    };
    let before = commits();
    assert!(scene.claim("q", 9).await.is_empty());
    assert_eq!(scene.promote().await, 0);
    assert!(scene.seize("w").await.is_empty());
    assert_eq!(
        scene.settle(&runs[0].lease, given::dead()).await,
        SettleOutcome::Stale
    );
    scene.enqueue([job("q", "a")]).await;
    assert_eq!(
        scene.settle(&held.lease, given::dead()).await,
        SettleOutcome::Full
    );
    assert_eq!(
        scene.enqueue([job("full", "second")]).await,
        [EnqueueOutcome::Full]
    );
    assert_eq!(commits(), before);
    scene.enqueue([job("q", "c")]).await;
    assert_ne!(commits(), before);
}

#[tokio::test]
async fn a_job_that_succeeds_is_overwritten_in_place() {
    let place = Place::new();
    let mut scene = Scene::new(place.store().await);
    scene
        .insert((0..50).map(|n| job("q", &format!("job-{n}"))))
        .await;
    let db = place.connection();
    let width = || {
        let sql = "SELECT sum(payload) FROM dbstat WHERE name = 'backstop_job'";
        db.query_row(sql, [], |row| row.get::<_, i64>(0))
            .expect("the bytes of the rows")
    };
    let before = width();
    let runs = scene.claim("q", 50).await;
    scene
        .settle_all(runs.iter().map(|run| (&run.lease, DONE)))
        .await;
    assert_eq!(width(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_on_one_file_share_the_work() {
    const JOBS: usize = 2_000;
    let place = Place::new();
    let (first, second) = (place.store().await, place.open());
    let names: Vec<String> = (0..JOBS).map(|n| format!("job-{n}")).collect();
    for batch in names.chunks(100) {
        let batch = batch.iter().map(|name| job("q", name).into()).collect();
        first.enqueue(batch, START).await.expect("enqueued");
    }
    let workers = [first.clone(), second.clone(), first.clone(), second]
        .into_iter()
        .enumerate();
    let workers: Vec<_> = workers
        .map(|(worker, store)| tokio::spawn(work_off(store, worker as u64)))
        .collect();
    let mut handled = Vec::new();
    for worker in workers {
        handled.extend(worker.await.expect("no panic"));
    }
    handled.sort_unstable();
    let mut expected = names;
    expected.sort_unstable();
    assert_eq!(handled, expected, "every job once");
    let status = &first.queues(START).await.expect("queues")[0];
    assert_eq!(status.counts.of(JobState::Done), JOBS as u64);
}

async fn work_off(store: Arc<SqliteStore>, worker: u64) -> Vec<String> {
    let mut scene = Scene::new(store);
    // Each worker draws numbers of its own.
    for _ in 0..worker * 100_000 {
        scene.draw();
    }
    let mut handled = Vec::new();
    loop {
        let runs = scene.claim("q", 7).await;
        if runs.is_empty() {
            return handled;
        }
        let answers = scene
            .settle_all(runs.iter().map(|run| (&run.lease, DONE)))
            .await;
        assert!(
            answers
                .iter()
                .all(|answer| *answer == SettleOutcome::Applied)
        );
        handled.extend(given::names(&runs));
    }
}

#[tokio::test]
async fn a_job_of_another_process_gives_a_hint() {
    let place = Place::new();
    let (store, other) = (place.store().await, place.open());
    let mut hints = store.watch();
    // What the store does itself is no news from others; the writer has looked at least once by
    // now.
    tokio::time::sleep(Duration::from_millis(60)).await;
    other.enqueue(jobs(&["a"]), START).await.expect("enqueued");
    tokio::time::timeout(Duration::from_secs(5), hints.next())
        .await
        .expect("a hint");
}

#[tokio::test]
async fn an_enqueue_follows_the_users_transaction() {
    let place = Place::new();
    let store = place.store().await;
    let mut db = place.connection();
    db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .expect("a table of the user's");

    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .expect("begun");
    transaction
        .execute("INSERT INTO orders VALUES (1)", [])
        .expect("an order");
    let answers = enqueue_in(&transaction, &jobs(&["kept"]), START);
    assert_eq!(answers, Ok(vec![EnqueueOutcome::Inserted]));
    transaction.commit().expect("committed");

    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .expect("begun");
    transaction
        .execute("INSERT INTO orders VALUES (2)", [])
        .expect("an order");
    let again: Vec<NewJob> = vec![
        job("q", "kept").into(),
        job("q", "lost").unique("k").into(),
        job("q", "twin").unique("k").into(),
    ];
    let answers = enqueue_in(&transaction, &again, START);
    let duplicate = EnqueueOutcome::Duplicate(given::id("lost"));
    assert_eq!(
        answers,
        Ok(vec![
            EnqueueOutcome::Same,
            EnqueueOutcome::Inserted,
            duplicate
        ])
    );
    transaction.rollback().expect("rolled back");

    assert_eq!(listed(&store).await, set(&["kept"]));
    let status = &store.queues(START).await.expect("queues")[0];
    assert_eq!(
        (status.counts.of(JobState::Ready), status.totals.enqueued),
        (1, 1)
    );
    let mut scene = Scene::new(store);
    assert_eq!(given::names(&scene.claim("q", 9).await), ["kept"]);
}

#[tokio::test]
async fn a_users_transaction_heeds_the_bounds() {
    let place = Place::new();
    let store = place.store().await;
    let mut db = place.connection();
    for (overflow, answer, ready) in [
        (Overflow::Reject, EnqueueOutcome::Full, 2),
        (Overflow::DropOldest, EnqueueOutcome::Inserted, 2),
        (Overflow::DeadLetterOldest, EnqueueOutcome::Inserted, 2),
    ] {
        let bounds = QueueBounds {
            max_size: Some(2),
            overflow,
            dead_max: 1,
        };
        let queue = given::queue(overflow.as_str());
        store
            .set_bounds(queue.clone(), bounds, START)
            .await
            .expect("bounded");
        let name = |n| format!("{overflow}-{n}");
        let jobs: Vec<NewJob> = (0..3)
            .map(|n| job(overflow.as_str(), &name(n)).into())
            .collect();
        let transaction = db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .expect("begun");
        let answers = enqueue_in(&transaction, &jobs[..2], START);
        assert_eq!(answers, Ok(vec![EnqueueOutcome::Inserted; 2]));
        assert_eq!(
            enqueue_in(&transaction, &jobs[1..], START),
            Ok(vec![EnqueueOutcome::Same, answer])
        );
        transaction.commit().expect("committed");
        let statuses = store.queues(START).await.expect("queues");
        let status = statuses
            .iter()
            .find(|status| status.name == queue)
            .expect("the queue");
        assert_eq!(
            (status.counts.of(JobState::Ready), status.counts.live()),
            (ready, 2),
            "{overflow}"
        );
    }
    let groups = store
        .groups(
            ListGroupsRequest {
                queue: None,
                limit: 9,
            },
            START,
        )
        .await
        .expect("groups");
    assert_eq!(groups.len(), 1);
    assert_eq!(
        (groups[0].fingerprint, groups[0].sample),
        (
            Fingerprint::of_overflow(),
            given::id("dead_letter_oldest-0")
        )
    );
}

#[tokio::test]
async fn an_enqueue_that_fails_leaves_the_users_transaction_as_it_was() {
    let place = Place::new();
    let store = place.store().await;
    let mut db = place.connection();
    refuse_kind(&db, "bad");
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .expect("begun");
    enqueue_in(&transaction, &jobs(&["a"]), START).expect("enqueued");
    let faulty: Vec<NewJob> = vec![job("q", "b").into(), job("q", "c").kind("bad").into()];
    assert!(enqueue_in(&transaction, &faulty, START).is_err());
    transaction.commit().expect("committed");
    assert_eq!(listed(&store).await, set(&["a"]));
    assert_eq!(
        store.queues(START).await.expect("queues")[0]
            .counts
            .of(JobState::Ready),
        1
    );
}

#[tokio::test]
async fn a_file_that_was_removed_or_replaced_takes_nothing_in_until_it_is_back() {
    let place = Place::new();
    let store = place.store().await;
    store.enqueue(jobs(&["a"]), START).await.expect("enqueued");
    let aside = place.path().with_extension("aside");
    let mut refused = Vec::new();
    std::fs::rename(place.path(), &aside).expect("removed");
    refused.push(
        store
            .enqueue(jobs(&["b"]), START)
            .await
            .expect_err("nothing is there")
            .to_string(),
    );
    refused.push(
        store
            .queues(START)
            .await
            .expect_err("nothing is there")
            .to_string(),
    );
    std::fs::write(place.path(), b"").expect("replaced");
    refused.push(
        store
            .enqueue(jobs(&["b"]), START)
            .await
            .expect_err("another is there")
            .to_string(),
    );
    for (error, what) in
        refused
            .iter()
            .zip(["was removed", "was removed", "was replaced by another"])
    {
        assert!(error.contains(what), "{error}");
    }
    std::fs::rename(&aside, place.path()).expect("put back");
    store.enqueue(jobs(&["b"]), START).await.expect("enqueued");
    assert_eq!(listed(&store).await, set(&["a", "b"]));
}

/// Makes every job of this kind fail inside the store.
fn refuse_kind(db: &Connection, kind: &str) {
    let trigger = format!(
        "CREATE TRIGGER refuse BEFORE INSERT ON backstop_job WHEN new.kind = '{kind}'
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    );
    db.execute_batch(&trigger).expect("a trigger");
}

/// Asks for many enqueues while the file is locked, so that they wait for each other's company.
async fn enqueue_grouped(
    place: &Place,
    store: &Arc<SqliteStore>,
    batches: Vec<Vec<NewJob>>,
) -> Vec<Result<(), StoreError>> {
    let lock = place.connection();
    lock.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let first = jobs(&["first"]);
    let calls: Vec<_> = std::iter::once(first)
        .chain(batches)
        .map(|batch| {
            let store = Arc::clone(store);
            tokio::spawn(async move { store.enqueue(batch, START).await.map(drop) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    lock.execute_batch("COMMIT").expect("unlocked");
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("no panic"));
    }
    answers.split_off(1)
}

#[tokio::test]
async fn of_a_group_only_the_faulty_request_fails() {
    let place = Place::new();
    let store = place.store().await;
    refuse_kind(&place.connection(), "bad");
    let batches = vec![
        jobs(&["a"]),
        vec![job("q", "b").into(), job("q", "bad").kind("bad").into()],
        jobs(&["c"]),
        jobs(&["d"]),
    ];
    let answers = enqueue_grouped(&place, &store, batches).await;
    let failed: Vec<bool> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, false]);
    assert_eq!(listed(&store).await, set(&["first", "a", "c", "d"]));
    assert_eq!(
        store.queues(START).await.expect("queues")[0]
            .counts
            .of(JobState::Ready),
        4
    );
}

#[tokio::test]
async fn a_commit_that_fails_acknowledges_nothing() {
    let place = Place::new();
    let store = place.store().await;
    // A constraint that is only looked at when the transaction is to be committed.
    place
        .connection()
        .execute_batch(
            "CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER doom AFTER INSERT ON backstop_job WHEN new.kind = 'doomed'
             BEGIN INSERT INTO child VALUES (1); END",
        )
        .expect("a trap");
    let doomed = vec![job("q", "doomed").kind("doomed").into()];
    let error = store
        .enqueue(doomed, START)
        .await
        .expect_err("not committed");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    store
        .enqueue(jobs(&["a"]), START)
        .await
        .expect("the writer goes on");
    assert_eq!(listed(&store).await, set(&["a"]));
}

#[tokio::test]
async fn a_claim_nobody_waits_for_takes_nothing() {
    let place = Place::new();
    let store = place.store().await;
    store.enqueue(jobs(&["a"]), START).await.expect("enqueued");
    let lock = place.connection();
    lock.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let busy = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.enqueue(jobs(&["b"]), START).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut scene = Scene::new(Arc::clone(&store) as Arc<dyn Store>);
    let abandoned = scene.claim_of(&[("q", 9)]);
    let claim = store.claim(abandoned, START);
    assert!(
        tokio::time::timeout(Duration::from_millis(20), claim)
            .await
            .is_err()
    );
    lock.execute_batch("COMMIT").expect("unlocked");
    busy.await.expect("no panic").expect("enqueued");
    assert_eq!(given::names(&scene.claim("q", 9).await), ["a", "b"]);
}

#[tokio::test]
async fn a_locked_file_is_unavailable_and_then_works_again() {
    let place = Place::new();
    let store = place.store().await;
    let lock = place.connection();
    lock.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let error = store
        .enqueue(jobs(&["a"]), START)
        .await
        .expect_err("locked out");
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(store.queues(START).await, Ok(vec![]), "readers do not mind");
    lock.execute_batch("COMMIT").expect("unlocked");
    store.enqueue(jobs(&["a"]), START).await.expect("enqueued");
}

#[tokio::test]
async fn a_damaged_row_does_not_keep_its_neighbours_waiting() {
    let place = Place::new();
    let store = place.store().await;
    store
        .enqueue(jobs(&["a", "b", "c"]), START)
        .await
        .expect("enqueued");
    place
        .connection()
        .execute_batch("UPDATE backstop_job SET kind = '' WHERE no = 2")
        .expect("damage");
    let mut scene = Scene::new(store);
    assert_eq!(given::names(&scene.claim("q", 9).await), ["a", "c"]);
    let job: Job = scene.job("b").await;
    assert_eq!(job.state, JobState::Dead);
    let failures = job.history.failures();
    assert_eq!(
        failures[0].error.error_type.as_deref(),
        Some("UnreadableRow")
    );
    let counts = scene.queue("q").await.counts;
    assert_eq!(
        [JobState::Ready, JobState::Running, JobState::Dead].map(|state| counts.of(state)),
        [0, 2, 1]
    );
}

/// A store with the dead letters `a`, `b` and `c`, of which `b` is damaged by hand.
async fn three_dead_one_damaged(place: &Place, damage: &str) -> Scene {
    let mut scene = Scene::new(place.store().await);
    for name in ["a", "b", "c"] {
        scene.insert_and_end(job("q", name), given::dead()).await;
    }
    place
        .connection()
        .execute_batch(&format!("UPDATE backstop_job SET {damage} WHERE no = 2"))
        .expect(damage);
    scene
}

async fn dead_letters(scene: &Scene, filter: Filter) -> (Vec<String>, Vec<DamagedJob>) {
    let query = ListJobsRequest {
        filter,
        limit: 9,
        ..ListJobsRequest::default()
    };
    let page = scene.store.jobs(query, scene.now).await.expect("a page");
    assert_eq!(page.next, None);
    (given::listed(&page.jobs), page.damaged)
}

#[tokio::test]
async fn a_damaged_dead_letter_hides_nothing_and_can_be_deleted() {
    for (damage, why) in [
        ("reason = 'nonsense'", "reason: `nonsense` is not a reason"),
        ("reason = x'ff'", "reason: invalid utf-8"),
        ("kind = ''", "kind: "),
        ("kind = x'ff'", "kind: invalid utf-8"),
        ("level = 9", "level: 9 is none"),
        ("state = 99", "state: 99 is none"),
        (
            "attempts = 'many'",
            "attempts: it is not a number that fits",
        ),
        ("lost = -1", "lost: it is not a number that fits"),
        ("run_at = x'00'", "run_at: it is not a number that fits"),
        (
            "finished_at = 'then'",
            "finished_at: it is not a number that fits",
        ),
        ("payload = 5", "payload: it is a number"),
        (
            "history = 5, reason = 'x'",
            "history: it is a number; reason: `x` is not a reason",
        ),
    ] {
        let place = Place::new();
        let scene = three_dead_one_damaged(&place, damage).await;
        let fingerprint = Fingerprint::of(&ErrorReport::message("boom"));
        for filter in [
            given::filter(None, None),
            given::filter(Some("q"), Some(JobState::Dead)),
            Filter {
                fingerprint: Some(fingerprint),
                ..Filter::default()
            },
            Filter {
                fingerprint: Some(fingerprint),
                ..given::filter(Some("q"), Some(JobState::Dead))
            },
        ] {
            let (listed, damaged) = dead_letters(&scene, filter).await;
            assert_eq!(listed, ["c", "a"], "{damage}");
            let [
                DamagedJob {
                    id,
                    queue,
                    why: seen,
                },
            ] = &damaged[..]
            else {
                panic!("{damage}: {damaged:?}")
            };
            assert_eq!(
                (id, queue),
                (&Some(given::id("b")), &Some(given::queue("q"))),
                "{damage}"
            );
            assert!(seen.starts_with(why), "{damage}: {seen}");
        }
        check_dead(&scene, 3, damage).await;
        let only = Some(JobState::Dead);
        let selection = Selection::Ids(vec![given::id("b")]);
        let delete = AmendJobsRequest {
            selection,
            action: AmendAction::Delete,
            only,
            cursor: None,
            max: 1,
        };
        let amended = scene.store.amend(delete, scene.now).await.expect("amended");
        assert_eq!((amended.applied, amended.refused), (1, vec![]), "{damage}");
        check_dead(&scene, 2, damage).await;
        let left = dead_letters(&scene, given::filter(Some("q"), Some(JobState::Dead))).await;
        assert_eq!(
            left,
            (vec!["c".to_owned(), "a".to_owned()], vec![]),
            "{damage}"
        );
        check_nothing_is_left_behind(&place, damage);
    }
}

#[tokio::test]
async fn a_dead_letter_that_has_lost_its_queue_is_deleted_from_where_it_lay() {
    let place = Place::new();
    let scene = three_dead_one_damaged(&place, "queue = 99, finished_at = 0").await;
    let (listed, damaged) =
        dead_letters(&scene, given::filter(Some("q"), Some(JobState::Dead))).await;
    assert_eq!(listed, ["c", "a"]);
    assert_eq!(
        (damaged[0].id, &damaged[0].queue),
        (Some(given::id("b")), &None)
    );
    let amended = scene
        .amend(Selection::Ids(vec![given::id("b")]), AmendAction::Delete)
        .await;
    assert_eq!(amended.applied, 1);
    check_dead(&scene, 2, "queue").await;
    check_nothing_is_left_behind(&place, "queue");
    assert_eq!(
        scene.store.queues(scene.now).await.expect("queues").len(),
        1,
        "no queue was made up"
    );
}

/// One group and one count of so many dead letters.
async fn check_dead(scene: &Scene, expected: u64, damage: &str) {
    let groups = scene
        .store
        .groups(
            ListGroupsRequest {
                queue: None,
                limit: 9,
            },
            scene.now,
        )
        .await
        .expect("groups");
    let sizes: Vec<u64> = groups.iter().map(|group| group.count).collect();
    assert_eq!(
        (sizes, groups[0].sample),
        (vec![expected], given::id("c")),
        "{damage}"
    );
    assert_eq!(
        scene.queue("q").await.counts.of(JobState::Dead),
        expected,
        "{damage}"
    );
}

/// Lines and jobs agree.
fn check_nothing_is_left_behind(place: &Place, damage: &str) {
    let db = place.connection();
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        db.query_row(&sql, [], |row| row.get::<_, i64>(0))
            .expect("a count")
    };
    let counts = ["backstop_job", "backstop_finished", "backstop_dead"].map(count);
    assert_eq!(counts, [2; 3], "{damage}");
}

#[tokio::test]
async fn a_damaged_dead_letter_can_be_requeued_and_pruned() {
    let place = Place::new();
    let mut scene = three_dead_one_damaged(&place, "reason = 'nonsense'").await;
    let amended = scene
        .amend(Selection::Ids(vec![given::id("b")]), AmendAction::Retry)
        .await;
    assert_eq!(amended.applied, 1);
    assert_eq!(given::names(&scene.claim("q", 9).await), ["b"]);
    place
        .connection()
        .execute_batch("UPDATE backstop_job SET reason = 'nonsense' WHERE no = 1")
        .expect("damage");
    scene.pass(backstop_core::Span::days(1));
    let shelf = Retention {
        dead_for: backstop_core::Span::hours(1),
        ..Retention::default()
    };
    let retention = PruneRequest {
        default: Some(shelf),
        queues: Vec::new(),
        max: 9,
    };
    let pruned = scene
        .store
        .prune(retention, scene.now)
        .await
        .expect("pruned");
    assert_eq!((pruned.dead, pruned.more), (2, false));
    assert_eq!(scene.queue("q").await.counts.of(JobState::Dead), 0);
    let groups = scene
        .store
        .groups(
            ListGroupsRequest {
                queue: None,
                limit: 9,
            },
            scene.now,
        )
        .await;
    assert_eq!(groups, Ok(vec![]));
}

#[tokio::test]
async fn a_place_in_line_without_a_job_is_dropped() {
    let place = Place::new();
    let store = place.store().await;
    let later = job("q", "later").at(given::at(1)).into();
    store
        .enqueue([jobs(&["a", "b"]), vec![later]].concat(), START)
        .await
        .expect("enqueued");
    place
        .connection()
        .execute_batch("DELETE FROM backstop_job WHERE no IN (1, 3)")
        .expect("damage");
    let mut scene = Scene::new(store);
    assert_eq!(given::names(&scene.claim("q", 9).await), ["b"]);
    let promoted = scene.store.promote(9, given::at(2)).await;
    assert_eq!(promoted, Ok(PromoteResult::default()));
}

#[tokio::test]
async fn jobs_of_a_queue_whose_row_is_lost_go_on() {
    let place = Place::new();
    let store = place.store().await;
    let later = job("gone", "later").at(given::at(1)).into();
    store
        .enqueue([jobs(&["a"]), vec![later]].concat(), START)
        .await
        .expect("enqueued");
    place
        .connection()
        .execute_batch("DELETE FROM backstop_queue WHERE name = 'gone'")
        .expect("damage");
    let mut scene = Scene::new(store);
    scene.pass(backstop_core::Span::secs(2));
    assert_eq!(scene.promote().await, 1);
    assert_eq!(
        given::names(&scene.claim("recovered-2", 9).await),
        ["later"]
    );
    assert_eq!(given::names(&scene.claim("q", 9).await), ["a"]);
}

#[tokio::test]
async fn an_examination_tells_the_promise_that_holds() {
    for (durability, promise) in [
        (
            SqliteDurability::Full,
            "a power cut, if the disk honours fsync",
        ),
        (SqliteDurability::Relaxed, "a power cut may lose"),
    ] {
        let place = Place::new();
        let store = place.open_as(durability).expect("the file opens");
        store.migrate().await.expect("it migrates");
        let examination = store.examine().await.expect("an examination");
        assert!(examination.promise.contains(promise), "{examination:?}");
        let level = if durability == SqliteDurability::Full {
            "synchronous = full"
        } else {
            "synchronous = normal"
        };
        for what in [
            level,
            "journal_mode = wal",
            "integrity checked",
            "version 1 of 1",
        ] {
            assert!(
                examination
                    .findings
                    .iter()
                    .any(|finding| finding.what == what),
                "{what}: {examination:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_examination_finds_tables_and_indexes_that_somebody_changed() {
    for (change, name) in [
        ("DROP INDEX backstop_job_id", "backstop_job_id"),
        ("ALTER TABLE backstop_due ADD COLUMN extra", "backstop_due"),
        ("CREATE INDEX mine ON backstop_job (kind)", "mine"),
        (
            "DROP INDEX backstop_stream_key_due",
            "backstop_stream_key_due",
        ),
    ] {
        let place = Place::new();
        let store = place.store().await;
        place.connection().execute_batch(change).expect(change);
        let examination = store.examine().await.expect("an examination");
        let bad: Vec<_> = examination
            .findings
            .iter()
            .filter(|finding| finding.severity == FindingSeverity::Bad)
            .collect();
        assert_eq!(bad.len(), 1, "{examination:?}");
        assert!(
            bad[0].what.ends_with(&format!("makes it: {name}")),
            "{change}: {}",
            bad[0].what
        );
    }
}

#[tokio::test]
async fn a_future_store_cannot_be_opened() {
    let place = Place::new();
    drop(place.store().await);
    place
        .connection()
        .execute_batch("UPDATE backstop_schema SET version = 999")
        .expect("the future");
    let error = place.open_as(SqliteDurability::Full).expect_err("refused");
    assert!(
        matches!(error, SqliteOpenError::Newer { version: 999, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_store_migrated_under_our_feet_is_left_alone() {
    let place = Place::new();
    let store = place.store().await;
    place
        .connection()
        .execute_batch("UPDATE backstop_schema SET version = 999")
        .expect("the future");
    for answer in [
        store.enqueue(jobs(&["a"]), START).await.map(drop),
        store.queues(START).await.map(drop),
    ] {
        assert!(
            matches!(answer, Err(StoreError::Misuse { .. })),
            "{answer:?}"
        );
    }
}
