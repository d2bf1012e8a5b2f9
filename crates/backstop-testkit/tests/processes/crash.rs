//! Worker processes are killed at random moments, one after another, and nothing is lost.

use crate::fleet::Fleet;
use backstop_testkit::servers::{Postgres, Redis, postgres, redis};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// Processes at one time.
const WORKERS: usize = 2;

/// How much is tried.
struct Trial {
    jobs: usize,
    kills: usize,
}

async fn check(store: &str, trial: Trial) {
    let seed: u64 = rand::random();
    let mut dice = StdRng::seed_from_u64(seed);
    let mut fleet = Fleet::with_jobs(store, trial.jobs).await;
    let mut alive: Vec<usize> = (0..WORKERS).map(|_| fleet.start_worker()).collect();
    for _ in 0..trial.kills {
        tokio::time::sleep(Duration::from_millis(dice.random_range(20..250))).await;
        let victim = dice.random_range(0..WORKERS);
        fleet.kill(alive[victim]);
        alive[victim] = fleet.start_worker();
    }
    assert!(
        fleet.live().await > 0,
        "the last kill must have met work, or it showed nothing"
    );
    fleet.until_ended().await;
    let state = fleet.assert_sound().await;
    let lost: u32 = state.jobs.iter().map(|job| job.lost_leases).sum();
    assert!(
        lost > 0,
        "so many kills must have cost leases, or nothing was shown"
    );
    println!(
        "seed {seed}: {} kills, {lost} lease(s) lost, {:?}",
        trial.kills, state.queues[0].totals
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_nothing_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("crash.db").display());
    check(
        &store,
        Trial {
            jobs: 10_000,
            kills: 50,
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_nothing_on_postgres() {
    let server = Postgres::start(postgres::Settings {
        fsync: postgres::Fsync::On,
        ..Default::default()
    });
    check(
        &server.fresh_url(),
        Trial {
            jobs: 6_000,
            kills: 30,
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_nothing_on_redis() {
    let server = Redis::start(redis::Settings {
        append: redis::Append::Always,
        ..Default::default()
    });
    check(
        &server.fresh_url(),
        Trial {
            jobs: 6_000,
            kills: 30,
        },
    )
    .await;
}
