use super::*;
use crate::migrate::migrate;
use crate::moored::Moored;
use crate::open::Durability;
use std::sync::Arc;
use std::time::Duration;

fn writer() -> Writer {
    let mut db = Connection::open_in_memory().expect("a database in memory");
    migrate(&mut db).expect("it migrates");
    start(db, Durability::Full, Bell::new())
}

fn start(db: Connection, durability: Durability, bell: Bell) -> Writer {
    let options = SqliteOptions {
        durability,
        ..SqliteOptions::default()
    };
    let file = WriterFile::new(db, moored(), Arc::default());
    Writer::start(file, options, bell).expect("a thread")
}

/// What is in memory cannot be removed: any file that stays will do.
fn moored() -> Arc<Moored> {
    let program = std::env::current_exe().expect("this program has a path");
    Arc::new(Moored::at(&program).expect("this program is there"))
}

/// What `PRAGMA synchronous` answers.
const NORMAL: i64 = 1;
const FULL: i64 = 2;
const TASK: Task = Task {
    doing: "testing",
    effort: Effort::Durable,
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
        .alone("testing", |_| -> Answer<()> { panic!("as the test wants") })
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
    let failed = writer.call(TASK, |work| {
        work.db
            .execute("INSERT INTO backstop_queue (name) VALUES ('half')", [])?;
        Err::<(), _>(rusqlite::Error::InvalidQuery)
    });
    assert!(matches!(failed.await, Err(StoreError::Corrupt { .. })));
    let count = |work: &mut Work<'_>| {
        work.db
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
        let writer = start(db, durability, Bell::new());
        let level = |work: &mut Work<'_>| {
            work.db
                .query_row("PRAGMA synchronous", [], |row| row.get(0))
        };
        let level: Answer<i64> = writer.call(Task { effort, ..TASK }, level).await;
        assert_eq!(level, Ok(expected), "{durability:?} {effort:?}");
    };
    check(Durability::Full, Effort::Durable, FULL).await;
    check(Durability::Full, Effort::Light, NORMAL).await;
    check(Durability::Full, Effort::Claim, NORMAL).await;
    check(Durability::Relaxed, Effort::Durable, NORMAL).await;
}

#[tokio::test]
async fn a_writer_that_is_dropped_does_what_it_was_asked() {
    let writer = writer();
    let (sent, seen) = std::sync::mpsc::channel();
    for number in 0..100 {
        let sent = sent.clone();
        let call = writer.call(TASK, move |_| Ok(sent.send(number).is_ok()));
        // Asked for, and not waited for.
        drop(tokio::time::timeout(Duration::ZERO, call).await);
    }
    drop((writer, sent));
    assert_eq!(
        seen.iter().collect::<Vec<i32>>(),
        (0..100).collect::<Vec<_>>()
    );
}

/// An answer that nobody waits for: it is dropped in the very moment of the reply, and begins to
/// listen then.
struct Unheard(
    Bell,
    std::sync::mpsc::Sender<Box<dyn backstop_core::port::Hints>>,
);

impl Drop for Unheard {
    fn drop(&mut self) {
        self.1.send(self.0.listen()).expect("the test waits");
    }
}

#[tokio::test]
async fn a_hint_comes_when_the_replies_are_out() {
    let mut db = Connection::open_in_memory().expect("a database in memory");
    migrate(&mut db).expect("it migrates");
    let bell = Bell::new();
    let writer = start(db, Durability::Full, bell.clone());
    let (go, wait) = std::sync::mpsc::channel();
    let (replied, listening) = std::sync::mpsc::channel();
    let call = writer.call(TASK, move |work| {
        wait.recv().expect("the test says when");
        work.stir();
        Ok(Unheard(bell.clone(), replied.clone()))
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
