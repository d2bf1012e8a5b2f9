use super::*;
use crate::file_identity::FileIdentity;
use crate::migrate::migrate;
use crate::open::SqliteDurability;
use std::sync::Arc;
use std::time::Duration;

fn writer() -> WriterHandle {
    let mut db = Connection::open_in_memory().expect("a database in memory");
    migrate(&mut db).expect("it migrates");
    start(db, SqliteDurability::Full, Notifier::new())
}

fn start(db: Connection, durability: SqliteDurability, notifier: Notifier) -> WriterHandle {
    let options = SqliteOptions {
        durability,
        ..SqliteOptions::default()
    };
    let file = WriterFile::new(db, file_identity(), Arc::default());
    WriterHandle::start(file, options, notifier).expect("a thread")
}

/// A database in memory cannot be removed, so any file that stays will do.
fn file_identity() -> Arc<FileIdentity> {
    let program = std::env::current_exe().expect("this program has a path");
    Arc::new(FileIdentity::at(&program).expect("this program is there"))
}

/// The values that `PRAGMA synchronous` returns.
const NORMAL: i64 = 1;
const FULL: i64 = 2;
const TASK: WriteTask = WriteTask {
    doing: "testing",
    durability: WriteDurability::Durable,
    rows: 1,
};

#[tokio::test]
async fn a_panic_hangs_nobody_and_stops_nothing() {
    let writer = writer();
    let panicked = writer
        .call(TASK, |_| -> Result<()> { panic!("as the test wants") })
        .await;
    assert!(
        matches!(panicked, Err(StoreError::Unavailable { .. })),
        "{panicked:?}"
    );
    let panicked = writer
        .call_exclusive("testing", |_| -> StoreResult<()> {
            panic!("as the test wants")
        })
        .await;
    assert!(
        matches!(panicked, Err(StoreError::Unavailable { .. })),
        "{panicked:?}"
    );
    assert_eq!(writer.call(TASK, |_| Ok(7)).await, Ok(7));
}

#[tokio::test]
async fn what_a_failed_request_wrote_is_undone() {
    let writer = writer();
    let failed = writer.call(TASK, |tx| {
        tx.db
            .execute("INSERT INTO backstop_queue (name) VALUES ('half')", [])?;
        Err::<(), _>(rusqlite::Error::InvalidQuery)
    });
    assert!(matches!(failed.await, Err(StoreError::Corrupt { .. })));
    let count = |tx: &mut WriteTransaction<'_>| {
        tx.db
            .query_row("SELECT count(*) FROM backstop_queue", [], |row| {
                row.get::<_, i64>(0)
            })
    };
    assert_eq!(writer.call(TASK, count).await, Ok(0));
}

#[tokio::test]
async fn only_what_must_be_on_disk_waits_for_it() {
    let check = async |durability, effort, expected: i64| {
        let mut db = Connection::open_in_memory().expect("a database in memory");
        migrate(&mut db).expect("it migrates");
        let writer = start(db, durability, Notifier::new());
        let level = |tx: &mut WriteTransaction<'_>| {
            tx.db.query_row("PRAGMA synchronous", [], |row| row.get(0))
        };
        let level: StoreResult<i64> = writer
            .call(
                WriteTask {
                    durability: effort,
                    ..TASK
                },
                level,
            )
            .await;
        assert_eq!(level, Ok(expected), "{durability:?} {effort:?}");
    };
    check(SqliteDurability::Full, WriteDurability::Durable, FULL).await;
    check(SqliteDurability::Full, WriteDurability::Light, NORMAL).await;
    check(SqliteDurability::Full, WriteDurability::Claim, NORMAL).await;
    check(SqliteDurability::Relaxed, WriteDurability::Durable, NORMAL).await;
}

#[tokio::test]
async fn a_writer_that_is_dropped_does_what_it_was_asked() {
    let writer = writer();
    let (sent, seen) = std::sync::mpsc::channel();
    for number in 0..100 {
        let sent = sent.clone();
        let call = writer.call(TASK, move |_| Ok(sent.send(number).is_ok()));
        // The request is sent, and nobody waits for it.
        drop(tokio::time::timeout(Duration::ZERO, call).await);
    }
    drop((writer, sent));
    assert_eq!(
        seen.iter().collect::<Vec<i32>>(),
        (0..100).collect::<Vec<_>>()
    );
}

/// An answer that no caller waits for. The reply drops it, and at this moment it subscribes to
/// hints.
struct UnreadReply(
    Notifier,
    std::sync::mpsc::Sender<Box<dyn backstop_core::port::HintSubscription>>,
);

impl Drop for UnreadReply {
    fn drop(&mut self) {
        self.1.send(self.0.subscribe()).expect("the test waits");
    }
}

#[tokio::test]
async fn a_hint_comes_when_the_replies_are_out() {
    let mut db = Connection::open_in_memory().expect("a database in memory");
    migrate(&mut db).expect("it migrates");
    let notifier = Notifier::new();
    let writer = start(db, SqliteDurability::Full, notifier.clone());
    let (go, wait) = std::sync::mpsc::channel();
    let (replied, listening) = std::sync::mpsc::channel();
    let call = writer.call(TASK, move |tx| {
        wait.recv().expect("the test says when");
        tx.mark_new_work();
        Ok(UnreadReply(notifier.clone(), replied.clone()))
    });
    assert!(
        tokio::time::timeout(Duration::ZERO, call).await.is_err(),
        "asked for, and not waited for"
    );
    go.send(()).expect("the writer waits");
    let mut hints = listening.recv().expect("a reply");
    let hint = tokio::time::timeout(Duration::from_secs(5), hints.next()).await;
    assert!(hint.is_ok(), "the hint came before the reply");
}
