//! Settlements of runs.

use crate::given::{DONE, Scene, at, cancelled, dead, history, id, job, names, queue, retry_at};
use backstop_core::amend::Filter;
use backstop_core::failure::FailureHistory;
use backstop_core::limits::SETTLE_MAX;
use backstop_core::port::{SettleOutcome, StateCounts, Store, StoreError};
use backstop_core::verdict::{DoneRetention, EndReason, Settlement};
use backstop_core::{JobState, Lease, LeaseNumber, Outcome};
use std::sync::Arc;

const GONE: Outcome = Outcome::Done(DoneRetention::Gone);

/// A worker that lost a job cannot settle it.
pub async fn stale_settle_changes_nothing(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let first = scene.claim_one("q").await.lease;
    assert_eq!(
        scene
            .settle(&first, Outcome::Released { at: scene.now })
            .await,
        SettleOutcome::Applied
    );
    let second = scene.claim_one("q").await.lease;
    let (before, counted) = (scene.job("a").await, scene.queue("q").await);
    let elsewhere = Lease {
        queue: queue("other"),
        ..second.clone()
    };
    let invented = Lease {
        number: LeaseNumber::draw(u64::MAX),
        ..second.clone()
    };
    let nobody = Lease {
        job: id("nobody"),
        ..second.clone()
    };
    for lease in [&first, &elsewhere, &invented, &nobody] {
        for outcome in [DONE, GONE, retry_at(at(9)), dead(), cancelled()] {
            assert_eq!(
                scene.settle(lease, outcome.clone()).await,
                SettleOutcome::Stale,
                "{lease:?} {outcome:?}"
            );
        }
    }
    assert_eq!(scene.job("a").await, before);
    assert_eq!(scene.queue("q").await, counted);
    assert_eq!(scene.settle(&second, DONE).await, SettleOutcome::Applied);
}

/// One call may settle runs with any outcomes, and answers in order.
pub async fn settle_mixes_outcomes_in_one_batch(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let all = [
        "done",
        "gone",
        "retrying",
        "retried",
        "dead",
        "cancelled",
        "scheduled",
        "released",
        "lost",
    ];
    scene.insert(all.map(|name| job("q", name))).await;
    let runs = scene.claim("q", 20).await;
    scene.now = at(5);
    let stale = Lease {
        number: LeaseNumber::draw(u64::MAX),
        ..runs[0].lease.clone()
    };
    let outcomes = [
        DONE,
        GONE,
        retry_at(at(60)),
        retry_at(scene.now),
        dead(),
        cancelled(),
        Outcome::Released { at: at(60) },
        Outcome::Released { at: scene.now },
        Outcome::Lost {
            at: scene.now,
            history: history("vanished"),
        },
    ];
    let batch =
        std::iter::once((&stale, DONE)).chain(runs.iter().map(|run| &run.lease).zip(outcomes));
    let answers = scene.settle_all(batch).await;
    assert_eq!(answers[0], SettleOutcome::Stale);
    assert_eq!(answers[1..], vec![SettleOutcome::Applied; all.len()]);
    for (name, state) in [
        ("done", Some(JobState::Done)),
        ("gone", None),
        ("retrying", Some(JobState::Retrying)),
        ("retried", Some(JobState::Ready)),
        ("dead", Some(JobState::Dead)),
        ("cancelled", Some(JobState::Cancelled)),
        ("scheduled", Some(JobState::Scheduled)),
        ("released", Some(JobState::Ready)),
        ("lost", Some(JobState::Ready)),
    ] {
        assert_eq!(scene.state(name).await, state, "{name}");
    }
}

/// A released run does not count as an attempt, and the job keeps its place.
pub async fn refund_restores_the_attempt_and_the_place(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let run = scene.claim_one("q").await;
    assert_eq!(
        scene
            .settle(&run.lease, Outcome::Released { at: scene.now })
            .await,
        SettleOutcome::Applied
    );
    assert_eq!(scene.job("a").await.attempt, 0);
    let runs = scene.claim("q", 9).await;
    assert_eq!(names(&runs), ["a", "b", "c"]);
    assert_eq!((runs[0].attempts_before, runs[0].lost_leases), (0, 0));
    assert_ne!(runs[0].lease, run.lease);
}

/// A failed run counts as an attempt, and the job loses its place.
pub async fn a_retried_job_goes_to_the_tail_of_its_level(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    scene
        .insert([job("q", "low").priority(backstop_core::Priority::Low)])
        .await;
    let run = scene.claim_one("q").await;
    assert_eq!(
        scene.settle(&run.lease, retry_at(scene.now)).await,
        SettleOutcome::Applied
    );
    let runs = scene.claim("q", 9).await;
    assert_eq!(names(&runs), ["b", "a", "low"]);
    assert_eq!((runs[1].attempts_before, runs[1].attempt()), (1, 2));
    assert_eq!(runs[1].history, history("boom"));
}

/// A job whose worker vanished keeps its place. The run does not count as an attempt, but as a lost
/// lease.
pub async fn a_lost_job_keeps_its_place_and_counts_the_loss(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert(["a", "b"].map(|name| job("q", name))).await;
    let run = scene.claim_one("q").await;
    let lost = Outcome::Lost {
        at: scene.now,
        history: history("vanished"),
    };
    assert_eq!(scene.settle(&run.lease, lost).await, SettleOutcome::Applied);
    let runs = scene.claim("q", 9).await;
    assert_eq!(names(&runs), ["a", "b"]);
    assert_eq!((runs[0].attempts_before, runs[0].lost_leases), (0, 1));
    assert_eq!(runs[0].history, history("vanished"));
}

/// A job waits exactly until the time that its outcome names.
pub async fn a_settled_job_waits_until_its_time(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert([job("q", "released"), job("q", "retried")])
        .await;
    let runs = scene.claim("q", 2).await;
    let outcomes = [Outcome::Released { at: at(7) }, retry_at(at(8))];
    scene
        .settle_all(runs.iter().map(|run| &run.lease).zip(outcomes))
        .await;
    let (released, retried) = (scene.job("released").await, scene.job("retried").await);
    assert_eq!(
        (released.state, released.run_at, released.attempt),
        (JobState::Scheduled, at(7), 0)
    );
    assert_eq!(
        (retried.state, retried.run_at, retried.attempt),
        (JobState::Retrying, at(8), 1)
    );
    assert_eq!((released.held_by, retried.held_by), (None, None));
}

/// A worker that lost the answer repeats its settlement, and it is applied once.
pub async fn a_repeated_settlement_is_applied_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for (name, outcome) in [
        ("done", DONE),
        ("retried", retry_at(at(90))),
        ("dead", dead()),
        ("cancelled", cancelled()),
        ("released", Outcome::Released { at: at(90) }),
        (
            "reran",
            Outcome::Reran {
                at: at(90),
                history: history("made up for"),
            },
        ),
        (
            "lost",
            Outcome::Lost {
                at: at(90),
                history: history("vanished"),
            },
        ),
    ] {
        scene.insert([job("q", name)]).await;
        let lease = scene.claim_one("q").await.lease;
        assert_eq!(
            scene.settle(&lease, outcome.clone()).await,
            SettleOutcome::Applied,
            "{name}"
        );
        let (before, counted) = (scene.job(name).await, scene.queue("q").await);
        assert_eq!(
            scene.settle(&lease, outcome).await,
            SettleOutcome::Applied,
            "{name} again"
        );
        assert_eq!(scene.job(name).await, before, "{name}");
        assert_eq!(scene.queue("q").await, counted, "{name}");
    }
}

/// A repeated settlement of a job that is gone cannot be recognised: it is stale, and changes
/// nothing.
pub async fn a_repeated_settlement_of_what_is_gone_is_stale_and_changes_nothing(
    store: Arc<dyn Store>,
) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 3).await;
    let (a, b, c) = (&runs[0].lease, &runs[1].lease, &runs[2].lease);
    // First alone, then together with other runs of the claim, which are applied.
    assert_eq!(scene.settle(a, GONE).await, SettleOutcome::Applied);
    assert_eq!(scene.settle(a, GONE).await, SettleOutcome::Stale);
    let answers = scene.settle_all([(a, GONE), (b, GONE)]).await;
    assert_eq!(answers, [SettleOutcome::Stale, SettleOutcome::Applied]);
    assert_eq!(
        scene.settle_all([(b, GONE), (c, DONE)]).await,
        [SettleOutcome::Stale, SettleOutcome::Applied]
    );
    let status = scene.queue("q").await;
    assert_eq!(
        (status.totals.done, status.counts.of(JobState::Done)),
        (3, 1)
    );
}

/// The first settlement counts: another outcome under the same lease is stale.
pub async fn another_outcome_under_a_settled_lease_is_stale(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let lease = scene.claim_one("q").await.lease;
    assert_eq!(
        scene.settle(&lease, retry_at(at(90))).await,
        SettleOutcome::Applied
    );
    let before = scene.job("a").await;
    for outcome in [
        DONE,
        GONE,
        dead(),
        cancelled(),
        Outcome::Released { at: at(90) },
    ] {
        assert_eq!(
            scene.settle(&lease, outcome.clone()).await,
            SettleOutcome::Stale,
            "{outcome:?}"
        );
    }
    assert_eq!(scene.job("a").await, before);
}

/// A late repetition is recognised even while the job runs again, and does not end that run.
pub async fn a_repeated_settlement_is_known_after_the_next_claim(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    let first = scene.claim_one("q").await.lease;
    assert_eq!(
        scene.settle(&first, retry_at(scene.now)).await,
        SettleOutcome::Applied
    );
    let second = scene.claim_one("q").await.lease;
    let before = scene.job("a").await;
    assert_eq!(
        scene.settle(&first, retry_at(scene.now)).await,
        SettleOutcome::Applied
    );
    assert_eq!(scene.settle(&first, DONE).await, SettleOutcome::Stale);
    assert_eq!(scene.job("a").await, before);
    assert_eq!(scene.settle(&second, DONE).await, SettleOutcome::Applied);
}

/// If a batch contains a run twice, the first settlement counts.
pub async fn one_lease_twice_in_a_batch_is_settled_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a"), job("q", "b")]).await;
    let runs = scene.claim("q", 2).await;
    let (a, b) = (&runs[0].lease, &runs[1].lease);
    let answers = scene
        .settle_all([(a, DONE), (a, DONE), (b, retry_at(scene.now)), (b, DONE)])
        .await;
    assert_eq!(
        answers,
        [
            SettleOutcome::Applied,
            SettleOutcome::Applied,
            SettleOutcome::Applied,
            SettleOutcome::Stale
        ]
    );
    assert_eq!(scene.state("b").await, Some(JobState::Ready));
    assert_eq!(scene.job("b").await.attempt, 1);
    assert_eq!(scene.queue("q").await.totals.done, 1);
}

/// If done jobs are not listed, only the total remains.
pub async fn done_and_gone_leaves_nothing_but_the_total(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("q", "a"), GONE).await;
    assert_eq!(scene.find("a").await, None);
    assert!(scene.list(&Filter::default()).await.is_empty());
    let status = scene.queue("q").await;
    assert_eq!((status.totals.enqueued, status.totals.done), (1, 1));
    assert_eq!(status.counts, StateCounts::default());
}

/// An ended job shows when and why it ended, and its failures.
pub async fn an_ended_job_shows_its_end(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["done", "dead", "cancelled"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 3).await;
    scene.now = at(4);
    scene
        .settle_all(
            runs.iter()
                .map(|run| &run.lease)
                .zip([DONE, dead(), cancelled()]),
        )
        .await;
    for (name, state, reason, failures) in [
        ("done", JobState::Done, None, FailureHistory::default()),
        (
            "dead",
            JobState::Dead,
            Some(EndReason::AttemptsExhausted),
            history("boom"),
        ),
        (
            "cancelled",
            JobState::Cancelled,
            Some(EndReason::Unwanted),
            history("unwanted"),
        ),
    ] {
        let ended = scene.job(name).await;
        assert_eq!(
            (ended.state, ended.reason, &ended.history),
            (state, reason, &failures),
            "{name}"
        );
        assert_eq!(
            (ended.finished_at, ended.held_by, ended.attempt),
            (Some(at(4)), None, 1),
            "{name}"
        );
    }
}

/// A job that died because its workers vanished has spent no attempt by that.
pub async fn a_death_by_crashes_counts_a_loss_and_no_attempt(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let crashed = Outcome::Dead {
        reason: EndReason::CrashedWorker,
        history: history("vanished"),
    };
    scene.insert_and_end(job("q", "a"), crashed).await;
    let dead = scene.job("a").await;
    assert_eq!(
        (dead.state, dead.attempt, dead.lost_leases),
        (JobState::Dead, 0, 1)
    );
    assert_eq!(dead.reason, Some(EndReason::CrashedWorker));
}

/// Attempts count the runs that ended by themselves, and the present run.
pub async fn attempts_count_the_runs(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    for attempt in 1..=3 {
        let run = scene.claim_one("q").await;
        assert_eq!(
            (run.attempt(), scene.job("a").await.attempt),
            (attempt, attempt)
        );
        scene.settle(&run.lease, retry_at(scene.now)).await;
        assert_eq!(scene.job("a").await.attempt, attempt);
    }
}

/// A call above the limit is misuse, and an empty call is fine.
pub async fn too_many_settlements_are_misuse(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    assert_eq!(scene.settle_all([]).await, []);
    scene.insert([job("q", "a")]).await;
    let lease = scene.claim_one("q").await.lease;
    let settlements = vec![
        Settlement {
            lease,
            outcome: DONE
        };
        SETTLE_MAX + 1
    ];
    let refused = scene.store.settle(settlements, scene.now).await;
    assert!(
        matches!(refused, Err(StoreError::Misuse { .. })),
        "{refused:?}"
    );
    assert_eq!(scene.state("a").await, Some(JobState::Running));
}

/// Many workers concurrently release every job once, then finish it: no claim makes another
/// worker's job disappear from the ready index.
pub async fn jobs_given_back_while_others_claim_are_never_lost(store: Arc<dyn Store>) {
    const JOBS: usize = 200;
    const WORKERS: u32 = 6;
    let scene = Scene::new(store);
    scene
        .insert((0..JOBS).map(|n| job("q", &format!("job-{n}"))))
        .await;
    let mut workers = tokio::task::JoinSet::new();
    for worker in 1..=WORKERS {
        let mut scene = scene.apart(worker);
        workers.spawn(async move {
            let mut seen = std::collections::HashSet::new();
            loop {
                let runs = scene.claim("q", 5).await;
                if runs.is_empty() {
                    return;
                }
                for run in runs {
                    let first = seen.insert(run.lease.job);
                    let outcome = if first {
                        Outcome::Released { at: scene.now }
                    } else {
                        Outcome::Done(DoneRetention::Listed)
                    };
                    assert_eq!(
                        scene.settle(&run.lease, outcome).await,
                        SettleOutcome::Applied
                    );
                }
            }
        });
    }
    while let Some(worked) = workers.join_next().await {
        worked.expect("no worker panics");
    }
    // A worker may have stopped while the last jobs were still being released.
    let mut last = scene.apart(WORKERS + 1);
    for run in last.claim("q", JOBS).await {
        last.settle(&run.lease, Outcome::Done(DoneRetention::Listed))
            .await;
    }
    assert_eq!(
        scene.queue("q").await.counts.of(JobState::Done),
        JOBS as u64
    );
}
