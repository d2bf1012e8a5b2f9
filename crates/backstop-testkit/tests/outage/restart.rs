//! Servers that go away and come back by themselves.

use crate::stream::{Outcome, Stream};
use backstop_testkit::servers::{Postgres, Redis, postgres, redis};

/// How often each fault comes.
const TIMES: usize = 3;

/// Lets `fault` happen to a store under load, a few times. When it returns, the store answers
/// again.
async fn check(name: &str, store: &str, fault: impl Fn()) -> Outcome {
    let mut stream = Stream::start(store).await;
    for _ in 0..TIMES {
        tokio::task::block_in_place(&fault);
        stream.assert_at_work_again(name).await;
    }
    stream.finish().await
}

fn durable_postgres() -> Postgres {
    Postgres::start(postgres::Settings {
        fsync: postgres::Fsync::On,
        ..Default::default()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_is_restarted() {
    let server = durable_postgres();
    check("PostgreSQL restarted", &server.fresh_url(), || {
        server.restart();
    })
    .await
    .assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_is_killed() {
    let server = durable_postgres();
    let fault = || {
        server.kill();
        server.restart();
    };
    check("PostgreSQL killed", &server.fresh_url(), fault)
        .await
        .excusing_forgotten_runs()
        .assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_sessions_of_postgres_are_ended() {
    let server = durable_postgres();
    let fault = || assert!(server.kill_backends() > 0, "there were none to end");
    check("sessions ended", &server.fresh_url(), fault)
        .await
        .assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_is_killed() {
    let server = Redis::start(redis::Settings {
        append: redis::Append::Always,
        ..Default::default()
    });
    let fault = || {
        server.kill();
        server.restart();
    };
    check("Redis killed", &server.fresh_url(), fault)
        .await
        .assert_sound();
}
