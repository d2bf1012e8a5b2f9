//! After a write or fsync failed: who closes the file, who recovers it, and what callers are told
//! meanwhile. How it fails is the business of `power.rs`; here a marker beside the file says so, as
//! another process leaves it.

use backstop_core::NewJob;
use backstop_core::amend::Filter;
use backstop_core::port::{JobStore, OperatorStore, Store, StoreError};
use backstop_sqlite::{SqliteOptions, SqliteStore, enqueue_in};
use backstop_testkit::given::{self, START, job};
use rusqlite::{Connection, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store.db")
    }

    fn marker(&self) -> PathBuf {
        self.0.path().join("store.db-failed")
    }

    async fn open(&self) -> SqliteStore {
        let store =
            SqliteStore::open(self.path(), SqliteOptions::default()).expect("the file opens");
        store.migrate().await.expect("it migrates");
        store
    }
}

async fn push(store: &SqliteStore, name: &str) -> Result<(), StoreError> {
    let jobs: Vec<NewJob> = vec![job("q", name).into()];
    store.enqueue(jobs, START).await.map(drop)
}

/// Pushes until the store takes it.
async fn push_surely(store: &SqliteStore, name: &str) {
    let began = Instant::now();
    while let Err(error) = push(store, name).await {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "not recovered: {error}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn names(store: &SqliteStore) -> Vec<String> {
    let mut names = given::listed(&given::list(store, &Filter::default(), 100, START).await);
    names.sort_unstable();
    names
}

fn fail(marker: &Path) {
    std::fs::write(marker, "as another process does").expect("a marker");
}

#[tokio::test]
async fn every_process_closes_the_file_and_one_recovers_it_for_all() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    push(&one, "before").await.expect("pushed");
    fail(&place.marker());
    push_surely(&one, "one").await;
    push_surely(&other, "other").await;
    assert!(!place.marker().exists(), "recovered");
    for store in [&one, &other] {
        assert_eq!(names(store).await, ["before", "one", "other"]);
    }
}

#[tokio::test]
async fn while_another_program_has_the_file_open_callers_are_refused_and_told_why() {
    let place = Place::new();
    let store = place.open().await;
    push(&store, "before").await.expect("pushed");
    let other = Connection::open(place.path()).expect("a connection");
    other
        .query_row("SELECT count(*) FROM backstop_job", [], |_| Ok(()))
        .expect("it reads");
    fail(&place.marker());
    let refused = push(&store, "refused").await.expect_err("refused");
    assert!(
        matches!(refused, StoreError::Unavailable { .. }),
        "{refused:?}"
    );
    let refused = refused.to_string();
    for part in [
        "store.db",
        "another program, or another connection",
        "Nothing is acknowledged",
        "by itself",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    let refused = store
        .queues(START)
        .await
        .expect_err("a read is refused, too");
    assert!(
        matches!(refused, StoreError::Unavailable { .. }),
        "{refused:?}"
    );
    drop(other);
    push_surely(&store, "after").await;
    assert_eq!(names(&store).await, ["after", "before"]);
}

#[tokio::test]
async fn a_store_recovers_by_itself_when_nobody_asks_it() {
    let place = Place::new();
    let store = place.open().await;
    fail(&place.marker());
    let began = Instant::now();
    while place.marker().exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "not recovered");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    push_surely(&store, "after").await;
}

#[tokio::test]
async fn whoever_opens_a_file_after_a_failure_recovers_it_first() {
    let place = Place::new();
    let store = place.open().await;
    push(&store, "before").await.expect("pushed");
    drop(store);
    fail(&place.marker());
    let store = place.open().await;
    assert!(!place.marker().exists(), "recovered");
    assert_eq!(names(&store).await, ["before"]);
}

#[tokio::test]
async fn a_users_transaction_takes_jobs_in_only_when_the_file_is_recovered() {
    let place = Place::new();
    drop(place.open().await);
    let enqueue = |name| {
        let mut db = Connection::open(place.path()).expect("a connection");
        let transaction = db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .expect("begun");
        enqueue_in(&transaction, &[job("q", name).into()], START)?;
        transaction.commit().expect("committed");
        Ok(())
    };
    fail(&place.marker());
    let refused: StoreError = enqueue("refused").expect_err("refused");
    assert!(
        matches!(refused, StoreError::Unavailable { .. }),
        "{refused:?}"
    );
    let refused = refused.to_string();
    assert!(refused.contains("close this connection"), "{refused}");
    let store = place.open().await;
    assert!(!place.marker().exists(), "recovered");
    enqueue("taken").expect("enqueued");
    assert_eq!(names(&store).await, ["taken"]);
}

/// The writer does it itself, because SQLite would not say that an fsync failed meanwhile.
#[tokio::test]
async fn a_log_that_is_long_enough_is_folded_into_the_file_and_begins_anew() {
    let place = Place::new();
    let options = SqliteOptions {
        log_pages: 40,
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(place.path(), options).expect("the file opens");
    store.migrate().await.expect("it migrates");
    for n in 0..200 {
        push(&store, &n.to_string()).await.expect("pushed");
    }
    let log = place
        .0
        .path()
        .join("store.db-wal")
        .metadata()
        .expect("a log")
        .len();
    // Each push adds at least three pages.
    assert!(log < 250 * 4_120, "{log} bytes");
}
