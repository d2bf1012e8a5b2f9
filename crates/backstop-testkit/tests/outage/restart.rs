//! Servers that go away and come back by themselves.

use crate::stream::Stream;
use backstop_testkit::servers::{Postgres, Redis, postgres, redis};

/// How often each fault comes.
const TIMES: usize = 3;

/// Lets `fault` happen to a store under load, a few times. When it returns, the store answers again.
async fn check(name: &str, store: &str, fault: impl Fn()) {
    let mut stream = Stream::start(store).await;
    for _ in 0..TIMES {
        tokio::task::block_in_place(&fault);
        stream.assert_at_work_again(name).await;
    }
    stream.finish().await.assert_sound();
}

fn durable_postgres() -> Postgres {
    Postgres::start(postgres::Settings { fsync: postgres::Fsync::On, ..Default::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_is_restarted() {
    let server = durable_postgres();
    check("PostgreSQL restarted", &server.fresh_url(), || server.restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_is_killed() {
    let server = durable_postgres();
    check("PostgreSQL killed", &server.fresh_url(), || {
        server.kill();
        server.restart();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_sessions_of_postgres_are_ended() {
    let server = durable_postgres();
    check("sessions ended", &server.fresh_url(), || server.kill_backends()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_is_killed() {
    let server = Redis::start(redis::Settings { append: redis::Append::Always, ..Default::default() });
    check("Redis killed", &server.fresh_url(), || {
        server.kill();
        server.restart();
    })
    .await;
}
