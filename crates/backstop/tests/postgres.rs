//! The library on PostgreSQL: transactions of the user's own, and handlers that misbehave.
#![cfg(feature = "postgres")]

use backstop::core::port::StoreError;
use backstop::{Backstop, DraftError, JobState, QueueSettings, Run, Span, postgres};
use backstop_testkit::servers;
use std::time::Duration;

#[tokio::test]
async fn a_job_comes_into_being_with_the_users_commit_or_not_at_all() {
    let address = servers::postgres().fresh_url();
    let backstop = Backstop::open(&address).await.expect("opened");
    let mut client = postgres::connect(&address).await.expect("connected");
    let rolled_back = client.transaction().await.expect("begun");
    backstop
        .draft("q")
        .push_in_postgres(&rolled_back)
        .await
        .expect("enqueued");
    rolled_back.rollback().await.expect("rolled back");
    let committed = client.transaction().await.expect("begun");
    let id = backstop
        .draft("q")
        .push_in_postgres(&committed)
        .await
        .expect("enqueued")
        .id;
    committed.commit().await.expect("committed");
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
async fn a_transaction_elsewhere_is_refused() {
    let backstop = Backstop::open("memory:").await.expect("opened");
    let mut client = postgres::connect(&servers::postgres().url())
        .await
        .expect("connected");
    let transaction = client.transaction().await.expect("begun");
    let refused = backstop.draft("q").push_in_postgres(&transaction).await;
    assert!(
        matches!(refused, Err(DraftError::Store(StoreError::Misuse { .. }))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_handler_that_blocks_the_only_thread_keeps_its_lease() {
    let backstop = Backstop::open(&servers::postgres().fresh_url())
        .await
        .expect("opened");
    let id = backstop.draft("q").push().await.expect("pushed").id;
    let block = |_: Run| async {
        std::thread::sleep(Duration::from_secs(8));
        Ok(())
    };
    let settings = QueueSettings {
        lease: Span::secs(3),
        ..QueueSettings::default()
    };
    let worker = backstop
        .worker()
        .handle_raw("q", block)
        .queue("q", settings)
        .start()
        .expect("started");
    let is_done = async {
        while backstop
            .job(id)
            .await
            .expect("read")
            .is_none_or(|job| job.state != JobState::Done)
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), is_done)
        .await
        .expect("done");
    worker.stop();
    let progress = worker.stopped().await;
    assert_eq!(
        (progress.started, progress.lost, progress.recovered),
        (1, 0, 0)
    );
}

#[test]
fn a_store_outlives_the_runtime_it_was_opened_on() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let address = servers::postgres().fresh_url();
    let backstop = runtime()
        .block_on(Backstop::open(&address))
        .expect("opened");
    let id = runtime()
        .block_on(backstop.draft("q").push())
        .expect("pushed")
        .id;
    assert!(
        runtime()
            .block_on(backstop.job(id))
            .expect("read")
            .is_some()
    );
}
