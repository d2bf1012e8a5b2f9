//! One job kills every process that runs it, among many that do not: it alone is given up, and the
//! others are done.

use crate::fleet::Fleet;
use backstop::JobState;
use backstop::core::verdict::EndReason;
use backstop_testkit::servers;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Enough for each process to hold many beside the poison.
const INNOCENTS: usize = 400;
const WORKERS: usize = 2;
/// Losses of leases take their time: three leases and what lies between them are a few seconds.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_job_alone_is_given_up_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    a_poison_job_alone_is_given_up(&format!(
        "sqlite:{}",
        folder.path().join("poison.db").display()
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_job_alone_is_given_up_on_postgres() {
    a_poison_job_alone_is_given_up(&servers::postgres().fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_job_alone_is_given_up_on_redis() {
    a_poison_job_alone_is_given_up(&servers::redis().fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_job_alone_is_given_up_on_cluster() {
    a_poison_job_alone_is_given_up(&servers::cluster().fresh_url()).await;
}

async fn a_poison_job_alone_is_given_up(store: &str) {
    let mut fleet = Fleet::with_jobs(store, INNOCENTS).await;
    let poison = fleet.push_poison().await;
    let mut alive: Vec<usize> = (0..WORKERS).map(|_| fleet.start_worker()).collect();
    let deadline = Instant::now() + PATIENCE;
    let mut deaths = 0;
    while fleet.live().await > 0 {
        assert!(
            Instant::now() < deadline,
            "{} jobs are left after {PATIENCE:?}",
            fleet.live().await
        );
        for worker in &mut alive {
            // As a supervisor does: what dies is started again.
            if fleet.has_died(*worker) {
                deaths += 1;
                *worker = fleet.start_worker();
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    fleet.until_ended().await;
    let state = fleet.assert_sound().await;
    let (killers, innocents): (Vec<_>, Vec<_>) =
        state.jobs.iter().partition(|job| job.id == poison);
    let killer = killers[0];
    assert_eq!(
        (killer.state, killer.reason),
        (JobState::Dead, Some(EndReason::CrashedWorker))
    );
    assert_eq!(
        (killer.lost_leases, killer.attempt, deaths),
        (3, 0, 3),
        "three processes, and no attempt"
    );
    let last = killer.history.failures().pop().expect("it says why");
    let took_along: BTreeSet<String> = last
        .context
        .expect("it is known")
        .lost_workers
        .into_iter()
        .collect();
    assert_eq!(took_along.len(), 3, "{took_along:?}");
    for job in &innocents {
        assert_eq!(job.state, JobState::Done, "{}", job.id);
        assert!(
            job.lost_leases <= 1,
            "{} lost {} leases",
            job.id,
            job.lost_leases
        );
    }
    let charged = innocents.iter().filter(|job| job.lost_leases > 0).count();
    println!("{deaths} processes died, {charged} of {INNOCENTS} innocent jobs were charged once");
}
