//! Claims of ready jobs.

use crate::given::{DONE, LEASE, Scene, WORKER, at, job, names, retry_at};
use backstop_core::limits::{CLAIM_JOBS_MAX, CLAIM_QUEUES_MAX, LEASE_MAX};
use backstop_core::plan::QueueQuota;
use backstop_core::port::{SettleOutcome, Store, StoreError};
use backstop_core::{JobState, Outcome, Priority, Span};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// 64 concurrent workers claim every job exactly once.
pub async fn claim_never_hands_one_job_to_two(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let all = numbered(1_000);
    scene.insert(all.iter().map(|name| job("q", name))).await;
    let workers = (0..64).map(|worker| {
        let mut scene = scene.apart(worker);
        tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let runs = scene.claim("q", 7).await;
                if runs.is_empty() {
                    return taken;
                }
                taken.extend(names(&runs));
            }
        })
    });
    let mut taken = Vec::new();
    for worker in join_all(workers).await {
        taken.extend(worker.expect("no worker panics"));
    }
    taken.sort_unstable();
    assert_eq!(taken, all);
}

/// Jobs are claimed by level, and within a level in the order in which they became ready.
pub async fn claim_respects_level_then_time(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let draft = |name, priority| job("q", name).priority(priority);
    scene
        .insert([
            draft("low", Priority::Low),
            draft("due at 5", Priority::Normal).at(at(5)),
        ])
        .await;
    scene
        .insert([
            draft("first", Priority::Normal),
            draft("critical", Priority::Critical),
        ])
        .await;
    scene
        .insert([
            draft("high", Priority::High),
            draft("second", Priority::Normal),
        ])
        .await;
    scene.now = at(9);
    // This job was enqueued before the other became ready, although its run time is later.
    scene
        .insert([draft("third", Priority::Normal).at(at(8))])
        .await;
    assert_eq!(scene.promote().await, 1);
    let order = [
        "critical", "high", "first", "second", "third", "due at 5", "low",
    ];
    assert_eq!(names(&scene.claim("q", 3).await), order[..3]);
    assert_eq!(names(&scene.claim("q", 10).await), order[3..]);
}

/// Each queue of a claim has its own maximum.
pub async fn claim_takes_at_most_n_per_queue(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a1", "a2", "a3"].map(|name| job("a", name)))
        .await;
    scene
        .insert(["b1", "b2", "b3"].map(|name| job("b", name)))
        .await;
    scene.insert([job("c", "c1")]).await;
    let claim = scene.claim_of(&[("b", 1), ("a", 2)]);
    let mut taken = names(&scene.claim_as(&claim).await);
    taken.sort_unstable();
    assert_eq!(taken, ["a1", "a2", "b1"]);
    let claim = scene.claim_of(&[("b", 9), ("nowhere", 9)]);
    assert_eq!(names(&scene.claim_as(&claim).await), ["b2", "b3"]);
    assert_eq!(scene.state("c1").await, Some(JobState::Ready));
}

/// A claim that names a queue twice does not get a job twice.
pub async fn a_queue_named_twice_gives_each_job_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let claim = scene.claim_of(&[("q", 1), ("q", 1)]);
    assert_eq!(names(&scene.claim_as(&claim).await), ["a", "b"]);
    assert_eq!(names(&scene.claim("q", 9).await), ["c"]);
}

/// If nothing is ready, the answer is empty, not an error, and no attempt is spent.
pub async fn a_claim_of_nothing_is_empty(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    assert_eq!(scene.claim("q", 5).await, []);
    let claim = scene.claim_of(&[]);
    assert_eq!(scene.claim_as(&claim).await, []);
}

/// A worker that lost the answer repeats its claim, and gets the jobs it already holds.
pub async fn a_repeated_claim_returns_the_same_leases(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c", "d"].map(|name| job("q", name)))
        .await;
    let claim = scene.claim_of(&[("q", 2)]);
    let first = scene.claim_as(&claim).await;
    scene.now = at(2);
    assert_eq!(scene.claim_as(&claim).await, first);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(names(&scene.claim("q", 9).await), ["c", "d"]);
    // No job was settled in between, so the claim of two still has two.
    assert_eq!(scene.claim_as(&claim).await, first);
}

/// A repeated claim returns only jobs that are not settled, and never new ones.
pub async fn a_repeated_claim_returns_only_what_is_left_of_it(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let claim = scene.claim_of(&[("q", 2)]);
    let runs = scene.claim_as(&claim).await;
    assert_eq!(
        scene.settle(&runs[0].lease, DONE).await,
        SettleOutcome::Applied
    );
    assert_eq!(scene.claim_as(&claim).await, runs[1..]);
    assert_eq!(scene.state("c").await, Some(JobState::Ready));
}

/// A job whose time has not come cannot be claimed, whatever made it wait.
pub async fn waiting_jobs_are_never_claimed_early(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert([
            job("q", "released"),
            job("q", "retrying"),
            job("q", "scheduled").at(at(10)),
        ])
        .await;
    let runs = scene.claim("q", 9).await;
    scene
        .settle_all([
            (&runs[0].lease, Outcome::Released { at: at(10) }),
            (&runs[1].lease, retry_at(at(10))),
        ])
        .await;
    scene.now = at(10).before(Span::micros(1));
    assert_eq!(scene.promote().await, 0);
    assert_eq!(scene.claim("q", 9).await, []);
    scene.now = at(10);
    assert_eq!(scene.promote().await, 3);
    assert_eq!(scene.claim("q", 9).await.len(), 3);
}

/// A claim must not depend on how far an earlier one got: later jobs of any level are found.
pub async fn late_jobs_are_never_skipped(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for round in 0..20 {
        let names_of_round: Vec<String> =
            Priority::ALL.map(|level| format!("{round}-{level}")).into();
        let drafts = names_of_round.iter().zip(Priority::ALL);
        // Lowest level first, and with ever older times: neither may hide a job.
        let drafts = drafts
            .rev()
            .map(|(name, level)| job("q", name).priority(level).at(at(-round)));
        scene.insert(drafts).await;
        assert_eq!(names(&scene.claim("q", 9).await), names_of_round);
        assert_eq!(scene.claim("q", 9).await, []);
    }
}

/// With concurrent pushes and claims, every pushed job is claimed, even if its push commits late.
pub async fn concurrent_enqueuers_and_claimers_leave_nothing_behind(store: Arc<dyn Store>) {
    const ENQUEUERS: u32 = 8;
    const BATCHES: u32 = 25;
    const BATCH: u32 = 5;
    let scene = Scene::new(store);
    let total = (ENQUEUERS * BATCHES * BATCH) as usize;
    let claimed = Arc::new(AtomicUsize::new(0));
    let enqueuers = (0..ENQUEUERS).map(|enqueuer| {
        let scene = scene.clone();
        tokio::spawn(async move {
            for batch in 0..BATCHES {
                let name = |n| format!("{enqueuer}-{batch}-{n}");
                scene.insert((0..BATCH).map(|n| job("q", &name(n)))).await;
            }
            Vec::new()
        })
    });
    let claimers = (0..8).map(|claimer| {
        let (mut scene, claimed) = (scene.apart(claimer), Arc::clone(&claimed));
        tokio::spawn(async move {
            let mut taken = Vec::new();
            // A job that is never found makes this run into the deadline of the case.
            while claimed.load(Ordering::SeqCst) < total {
                let runs = scene.claim("q", 4).await;
                claimed.fetch_add(runs.len(), Ordering::SeqCst);
                taken.extend(names(&runs));
                tokio::task::yield_now().await;
            }
            taken
        })
    });
    let tasks: Vec<_> = enqueuers.chain(claimers).collect();
    let mut taken: Vec<String> = join_all(tasks)
        .await
        .into_iter()
        .flat_map(|task| task.expect("no task panics"))
        .collect();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), total);
}

/// The handler gets the job as it was enqueued, and the number of its attempt.
pub async fn a_lease_carries_the_whole_job(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert([job("q", "a").kind("send").priority(Priority::High)])
        .await;
    let seen = scene.job("a").await;
    scene.now = at(3);
    let run = scene.claim_one("q").await;
    assert_eq!((run.lease.job, &run.lease.queue), (seen.id, &seen.queue));
    assert_eq!(
        (&run.kind, &run.payload, run.priority),
        (&seen.kind, &seen.payload, Priority::High)
    );
    assert_eq!(
        (run.attempts_before, run.attempt(), run.lost_leases),
        (0, 1, 0)
    );
    assert_eq!((run.inserted_at, run.run_at), (at(0), at(0)));
    assert_eq!((run.options, run.history), (seen.options, seen.history));
}

/// A running job shows its worker, the end of its lease, and that it is in its first attempt.
pub async fn a_running_job_shows_its_holder(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a"), job("q", "b")]).await;
    scene.claim_one("q").await;
    let running = scene.job("a").await;
    assert_eq!((running.state, running.attempt), (JobState::Running, 1));
    let claimant = running.held_by.expect("somebody runs it");
    assert_eq!(
        (claimant.worker.as_str(), claimant.until),
        (WORKER, scene.now.after(LEASE))
    );
    let ready = scene.job("b").await;
    assert_eq!(
        (ready.state, ready.attempt, ready.held_by),
        (JobState::Ready, 0, None)
    );
}

/// A claim above the limits is misuse, and takes no job.
pub async fn an_oversized_claim_is_misuse(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let too_many_jobs = scene.claim_of(&[("q", CLAIM_JOBS_MAX), ("other", 1)]);
    let mut too_many_queues = scene.claim_of(&[]);
    too_many_queues.wants = (0..=CLAIM_QUEUES_MAX)
        .map(|n| QueueQuota {
            queue: crate::given::queue(&format!("q{n}")),
            max: 1,
        })
        .collect();
    for claim in [too_many_jobs, too_many_queues] {
        let refused = scene.store.claim(claim, scene.now).await;
        assert!(
            matches!(refused, Err(StoreError::Misuse { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(scene.state("a").await, Some(JobState::Ready));
}

/// A lease that ends at once, or that would last for days, is misuse.
pub async fn a_lease_of_nothing_or_of_days_is_misuse(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let days = scene.now.after(LEASE_MAX).after(Span::days(2));
    for until in [scene.now, scene.now.before(Span::secs(1)), days] {
        let mut claim = scene.claim_of(&[("q", 1)]);
        claim.until = until;
        let refused = scene.store.claim(claim, scene.now).await;
        assert!(
            matches!(refused, Err(StoreError::Misuse { .. })),
            "{until}: {refused:?}"
        );
    }
    assert_eq!(scene.state("a").await, Some(JobState::Ready));
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("job-{n:04}")).collect()
}
