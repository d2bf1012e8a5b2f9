//! A Redis master dies and its replica takes over. Replication is asynchronous, so the last
//! acknowledged writes may be lost with the master: how many is counted and told. What may not be:
//! a job that ends twice in what is left, or one that is left neither here nor there.

use crate::stream::{Outcome, Stream};
use backstop::JobState;
use backstop_testkit::history::Violation;
use backstop_testkit::servers::{Cluster, Redis, Sentinel};

async fn check(name: &str, store: &str, fail_over: impl FnOnce()) {
    let mut stream = Stream::start(store).await;
    tokio::task::block_in_place(fail_over);
    stream.assert_at_work_again(name).await;
    let outcome = stream.finish().await.excusing_forgotten_runs();
    let lost = assert_nothing_dangles(&outcome);
    println!(
        "{name}: {lost} of {} jobs lost",
        outcome.state.jobs.len() + lost
    );
}

/// Answers how many acknowledged jobs are gone.
fn assert_nothing_dangles(outcome: &Outcome) -> usize {
    let is_lost = |violation: &&Violation| matches!(violation, Violation::Missing(_));
    let dangling: Vec<_> = outcome
        .violations
        .iter()
        .filter(|violation| !is_lost(violation))
        .collect();
    assert!(dangling.is_empty(), "{dangling:#?}");
    let totals = outcome.state.queues[0].totals;
    let done = outcome
        .state
        .jobs
        .iter()
        .filter(|job| job.state == JobState::Done)
        .count() as u64;
    assert_eq!(
        done,
        outcome.state.jobs.len() as u64,
        "every job that is left can be done"
    );
    assert_eq!(
        totals.done, done,
        "every success that is left was accepted once"
    );
    outcome.violations.iter().filter(is_lost).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_master_of_a_cluster_is_killed() {
    let cluster = Cluster::start(1);
    let store = cluster.fresh_url();
    check("cluster", &store, || {
        // All keys of a queue are on one node: the one with the most.
        let size = |node: &&Redis| {
            node.cli(&["dbsize"])
                .trim()
                .parse::<u64>()
                .expect("a number")
        };
        let master = cluster
            .masters()
            .into_iter()
            .max_by_key(size)
            .expect("it has masters");
        cluster.fail_over(master);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_master_watched_by_sentinels_is_killed() {
    let sentinel = Sentinel::start();
    check(
        "sentinels",
        &format!("{}?prefix=outage", sentinel.url()),
        || sentinel.fail_over(),
    )
    .await;
}
