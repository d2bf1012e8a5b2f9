//! Enqueueing inside a transaction of the user's own.
#![cfg(feature = "sqlite")]

use backstop::core::port::StoreError;
use backstop::rusqlite::{Connection, TransactionBehavior};
use backstop::{Backstop, DraftError, Run};
use std::path::Path;

async fn open(file: &Path) -> Backstop {
    Backstop::open(&format!("sqlite:{}", file.display()))
        .await
        .expect("opened")
}

fn begin(db: &mut Connection) -> backstop::rusqlite::Transaction<'_> {
    db.transaction_with_behavior(TransactionBehavior::Immediate)
        .expect("begun")
}

#[tokio::test]
async fn a_job_comes_into_being_with_the_users_commit_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("shop.db");
    let backstop = open(&file).await;
    let mut db = Connection::open(&file).expect("opened");
    let rolled_back = begin(&mut db);
    backstop.draft("q").push_in(&rolled_back).expect("enqueued");
    drop(rolled_back);
    let committed = begin(&mut db);
    let id = backstop
        .draft("q")
        .push_in(&committed)
        .expect("enqueued")
        .id;
    committed.commit().expect("committed");
    assert!(backstop.job(id).await.expect("read").is_some());
    let worked = backstop
        .worker()
        .handle_raw("q", |_: Run| async { Ok(()) })
        .drain()
        .await
        .expect("drained");
    assert_eq!(worked.done, 1);
}

#[tokio::test]
async fn a_transaction_on_another_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, theirs) = (
        folder.path().join("ours.db"),
        folder.path().join("theirs.db"),
    );
    let (backstop, _other) = (open(&ours).await, open(&theirs).await);
    for mut db in [
        Connection::open(&theirs).expect("opened"),
        Connection::open_in_memory().expect("opened"),
    ] {
        let refused = backstop.draft("q").push_in(&begin(&mut db));
        let Err(DraftError::Store(StoreError::Misuse { cause, .. })) = refused else {
            unreachable!("jobs there would be jobs that nobody works")
        };
        assert!(cause.contains("ours.db"), "{cause}");
    }
}
