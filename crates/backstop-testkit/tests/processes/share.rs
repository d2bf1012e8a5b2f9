//! Three processes share one backlog; one of them dies, and the others do its work.

use crate::fleet::Fleet;
use backstop::JobId;
use backstop_testkit::history::Event;
use backstop_testkit::servers;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const JOBS: usize = 4_000;
const WORKERS: usize = 3;
/// At work before one dies, or it leaves nothing behind.
const JOBS_BEFORE: usize = JOBS / 8;
/// What no test waits longer for.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What reading the logs may add to a time that is measured by reading them.
const LOOK_SLACK: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_share_one_postgres() {
    check_shares(&servers::postgres().fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_share_one_redis() {
    check_shares(&servers::redis().fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_share_one_cluster() {
    check_shares(&servers::cluster().fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_is_replaced_in_time_on_postgres() {
    check_recovery(&servers::postgres().fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_is_replaced_in_time_on_redis() {
    check_recovery(&servers::redis().fresh_url()).await;
}

/// Even shares are thirds; whoever does less than a quarter of all was not given a fair one.
async fn check_shares(store: &str) {
    let mut fleet = Fleet::with_jobs(store, JOBS).await;
    let workers: Vec<usize> = (0..WORKERS).map(|_| fleet.start_worker()).collect();
    fleet.until_ended().await;
    fleet.assert_sound().await;
    let shares: Vec<usize> = workers
        .iter()
        .map(|at| started(&fleet, *at).len())
        .collect();
    println!("shares: {shares:?}");
    assert!(shares.iter().all(|share| *share >= JOBS / 4), "{shares:?}");
}

async fn check_recovery(store: &str) {
    let mut fleet = Fleet::with_jobs(store, JOBS).await;
    let workers: Vec<usize> = (0..WORKERS).map(|_| fleet.start_worker()).collect();
    let bound = fleet.recovery_bound(workers[0]);
    until(|| started(&fleet, workers[0]).len() >= JOBS_BEFORE).await;
    fleet.kill(workers[0]);
    let killed = Instant::now();
    let orphans = unended(&fleet, workers[0]);
    assert!(!orphans.is_empty(), "it was at work when it died");
    let elsewhere = || {
        workers[1..]
            .iter()
            .flat_map(|at| started(&fleet, *at))
            .collect::<BTreeSet<JobId>>()
    };
    until(|| orphans.is_subset(&elsewhere())).await;
    let took = killed.elapsed();
    println!(
        "{} orphans ran again after {took:?}; the bound is {bound:?}",
        orphans.len()
    );
    assert!(
        took < bound + LOOK_SLACK,
        "{took:?}, and not within {bound:?}"
    );
    fleet.until_ended().await;
    fleet.assert_sound().await;
}

/// The jobs a process has started.
fn started(fleet: &Fleet, at: usize) -> BTreeSet<JobId> {
    let job = |event| {
        if let Event::Started { job, .. } = event {
            Some(job)
        } else {
            None
        }
    };
    fleet.events(at).into_iter().filter_map(job).collect()
}

/// The jobs a process has started and not ended.
fn unended(fleet: &Fleet, at: usize) -> BTreeSet<JobId> {
    let ended = |event| {
        if let Event::Ended { job, .. } = event {
            Some(job)
        } else {
            None
        }
    };
    let ended: BTreeSet<JobId> = fleet.events(at).into_iter().filter_map(ended).collect();
    started(fleet, at).difference(&ended).copied().collect()
}

async fn until(holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "not within {PATIENCE:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
