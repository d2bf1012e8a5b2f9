use super::ReaderPool;
use crate::{SqliteOptions, SqliteStore};
use backstop_core::port::{
    BeatRequest, CellStore, JobStore, KeyFilter, ListJobsRequest, ListKeysRequest, OperatorStore,
    Store, StoreResult, StreamStore,
};
use backstop_core::{JobId, Span, StreamKey, StreamName, Time, WorkerName};
use std::sync::{Arc, Mutex, mpsc};
use tempfile::TempDir;
use tokio::task::JoinHandle;

async fn store() -> (Arc<SqliteStore>, TempDir) {
    let dir = tempfile::tempdir().expect("a directory for the file");
    let store = SqliteStore::open(dir.path().join("backstop.db"), SqliteOptions::default());
    let store = Arc::new(store.expect("the file opens"));
    store.migrate().await.expect("the store migrates");
    (store, dir)
}

/// Readers that a test keeps busy until it releases them.
struct HeldReaders {
    release: mpsc::Sender<()>,
    reads: Vec<JoinHandle<StoreResult<()>>>,
}

impl HeldReaders {
    /// Keeps every reader of this pool busy.
    async fn hold(store: &Arc<SqliteStore>, of: fn(&SqliteStore) -> &ReaderPool) -> Self {
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let count = SqliteOptions::default().readers;
        let hold = |_| {
            let (store, started, released) =
                (Arc::clone(store), started.clone(), Arc::clone(&released));
            tokio::spawn(async move {
                let read = move |_: &rusqlite::Connection| {
                    let _ = started.send(());
                    let _ = released.lock().expect("nobody panics").recv();
                    Ok(())
                };
                of(&store).call("holding a reader", read).await
            })
        };
        let reads = (0..count).map(hold).collect();
        for _ in 0..count {
            starts.recv().await.expect("a read begins");
        }
        Self { release, reads }
    }

    async fn release(self) {
        drop(self.release);
        for read in self.reads {
            assert_eq!(read.await.expect("no read panics"), Ok(()));
        }
    }
}

#[tokio::test]
async fn workers_and_health_checks_never_wait_behind_lists() {
    let (store, _dir) = store().await;
    let held = HeldReaders::hold(&store, |store| &store.lists).await;
    let list = || {
        let store = Arc::clone(&store);
        let query = ListJobsRequest {
            limit: 1,
            ..ListJobsRequest::default()
        };
        tokio::spawn(async move { store.jobs(query, Time::default()).await })
    };
    let waiting: Vec<_> = (0..8).map(|_| list()).collect();
    let now = store.time().await.expect("the store tells the time");
    let beat = BeatRequest {
        worker: WorkerName::new("w"),
        queues: Vec::new(),
        leases: Vec::new(),
        until: now.after(Span::secs(5)),
    };
    assert!(store.beat(beat, now).await.is_ok());
    assert_eq!(store.cells(vec!["ready".to_owned()]).await, Ok(vec![None]));
    assert_eq!(store.job(JobId::named("none"), now).await, Ok(None));
    assert!(
        waiting.iter().all(|list| !list.is_finished()),
        "the lists still wait"
    );
    held.release().await;
    for list in waiting {
        assert!(list.await.expect("no list panics").is_ok());
    }
}

#[tokio::test]
async fn lists_take_no_reader_of_workers() {
    let (store, _dir) = store().await;
    let held = HeldReaders::hold(&store, |store| &store.readers).await;
    let now = Time::default();
    let stream = StreamName::new("s").expect("a name");
    let keys = ListKeysRequest {
        stream: stream.clone(),
        after: None,
        filter: KeyFilter::All,
        limit: 9,
    };
    assert_eq!(store.workers(Span::secs(9), now).await, Ok(Vec::new()));
    assert_eq!(store.queues(now).await, Ok(Vec::new()));
    assert_eq!(store.streams().await, Ok(Vec::new()));
    assert_eq!(store.stream_keys(keys, now).await, Ok(Vec::new()));
    let key = StreamKey::new("k").expect("a key");
    assert_eq!(store.stream_key(stream, key).await, Ok(None));
    held.release().await;
}
