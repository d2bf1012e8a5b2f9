use crate::{SqliteOptions, SqliteStore};
use backstop_core::port::{Backlog, Beat, Cells, Operator, PageQuery, Store};
use backstop_core::{JobId, Span, Time, WorkerName};
use std::sync::{Arc, Mutex, mpsc};

#[tokio::test]
async fn workers_and_health_checks_never_wait_behind_lists() {
    let dir = tempfile::tempdir().expect("a directory for the file");
    let store = SqliteStore::open(dir.path().join("backstop.db"), SqliteOptions::default());
    let store = Arc::new(store.expect("the file opens"));
    store.migrate().await.expect("the store migrates");
    let (started, starts) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let mut starts = starts;
    let readers = SqliteOptions::default().readers;
    // Every reader of lists is held up, and more lists wait behind them.
    let stuck: Vec<_> = (0..readers)
        .map(|_| {
            let (store, started, released) =
                (Arc::clone(&store), started.clone(), Arc::clone(&released));
            tokio::spawn(async move {
                let read = move |_: &rusqlite::Connection| {
                    let _ = started.send(());
                    let _ = released.lock().expect("nobody panics").recv();
                    Ok(())
                };
                store.lists.call("listing", read).await
            })
        })
        .collect();
    for _ in 0..readers {
        starts.recv().await.expect("a list begins");
    }
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            let now = Time::default();
            tokio::spawn(async move {
                store
                    .jobs(
                        PageQuery {
                            limit: 1,
                            ..PageQuery::default()
                        },
                        now,
                    )
                    .await
            })
        })
        .collect();
    let now = store.time().await.expect("the store tells the time");
    let beat = Beat {
        worker: WorkerName::new("w"),
        queues: Vec::new(),
        leases: Vec::new(),
        until: now.after(Span::secs(5)),
    };
    assert!(store.beat(beat, now).await.is_ok());
    assert_eq!(store.cells(vec!["ready".to_owned()]).await, Ok(vec![None]));
    assert_eq!(store.job(JobId::named("none"), now).await, Ok(None));
    assert_eq!(
        store
            .workers(Span::secs(9), now)
            .await
            .map(|workers| workers.len()),
        Ok(1)
    );
    assert!(
        waiting.iter().all(|list| !list.is_finished()),
        "the lists still wait"
    );
    drop(release);
    for list in stuck {
        assert_eq!(list.await.expect("no list panics"), Ok(()));
    }
    for list in waiting {
        assert!(list.await.expect("no list panics").is_ok());
    }
}
