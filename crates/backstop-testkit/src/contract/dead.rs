//! Dead letters: their bound, their groups, their requeues and moves.

use crate::given::{DONE, Scene, at, dead, filter, history, id, job, listed, queue};
use backstop_core::amend::{AmendAction, AmendRefusal, Filter, Selection};
use backstop_core::failure::{ErrorReport, FailureHistory, FailureRecord};
use backstop_core::lease::WorkerName;
use backstop_core::limits::BURY_MAX;
use backstop_core::port::{
    AmendJobsRequest, AmendResult, DeadLetterGroup, EnqueueOutcome, ListGroupsRequest,
    ListJobsRequest, ListOrder, NewDeadLetter, SettleOutcome, Store, StoreError,
};
use backstop_core::verdict::{EndReason, Outcome};
use backstop_core::{Fingerprint, JobState, NewJob, QueueBounds, Time};
use std::sync::Arc;

fn died_of(message: &str) -> Outcome {
    Outcome::Dead {
        reason: EndReason::AttemptsExhausted,
        history: history(message),
    }
}

fn fingerprint(message: &str) -> Fingerprint {
    Fingerprint::of(&ErrorReport::message(message))
}

async fn groups(scene: &Scene, queue_name: Option<&str>, limit: usize) -> Vec<DeadLetterGroup> {
    let query = ListGroupsRequest {
        queue: queue_name.map(queue),
        limit,
    };
    scene
        .store
        .groups(query, scene.now)
        .await
        .expect("the store answers")
}

async fn amend(
    scene: &Scene,
    names: &[&str],
    action: AmendAction,
    only: Option<JobState>,
) -> AmendResult {
    let selection = Selection::Ids(names.iter().map(|name| id(name)).collect());
    let amendment = AmendJobsRequest {
        selection,
        action,
        only,
        cursor: None,
        max: 1,
    };
    scene
        .store
        .amend(amendment, scene.now)
        .await
        .expect("the store answers")
}

async fn bound(scene: &Scene, dead_max: u64) {
    let bounds = QueueBounds {
        dead_max,
        ..QueueBounds::default()
    };
    scene
        .store
        .set_bounds(queue("q"), bounds, scene.now)
        .await
        .expect("the store answers");
}

/// A burial of the job with this name, with all fields set.
pub(crate) fn burial(
    queue_name: &str,
    name: &str,
    message: &str,
    finished_at: Time,
) -> NewDeadLetter {
    let job: NewJob = job(queue_name, name).kind("k").at(at(5)).into();
    NewDeadLetter {
        job,
        attempts: 3,
        lost_leases: 1,
        requeues: 2,
        inserted_at: at(1),
        finished_at,
        reason: EndReason::Rejected,
        history: history(message),
    }
}

/// A death above the bound is refused and changes nothing: the worker still has the job, and
/// releases it.
pub async fn a_death_over_the_bound_is_refused(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    bound(&scene, 2).await;
    scene
        .insert(["a", "b", "c", "d"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 4).await;
    let ends = scene
        .settle_all(runs.iter().map(|run| (&run.lease, dead())))
        .await;
    assert_eq!(
        ends,
        [
            SettleOutcome::Applied,
            SettleOutcome::Applied,
            SettleOutcome::Full,
            SettleOutcome::Full
        ]
    );
    assert_eq!(scene.state("c").await, Some(JobState::Running));
    assert_eq!(
        scene
            .settle(&runs[2].lease, Outcome::Released { at: scene.now })
            .await,
        SettleOutcome::Applied
    );
    assert_eq!(
        scene.settle(&runs[3].lease, DONE).await,
        SettleOutcome::Applied,
        "only deaths need room"
    );
    assert_eq!(
        scene.settle(&runs[0].lease, dead()).await,
        SettleOutcome::Applied,
        "a repetition needs none"
    );
    let status = scene.queue("q").await;
    assert_eq!(
        (
            status.counts.of(JobState::Dead),
            status.totals.dead,
            status.bounds.dead_max
        ),
        (2, 2, 2)
    );
    let job = scene.job("c").await;
    assert_eq!((job.state, job.attempt), (JobState::Ready, 0));
    amend(&scene, &["a"], AmendAction::Delete, None).await;
    let run = scene.claim_one("q").await;
    assert_eq!(
        scene.settle(&run.lease, dead()).await,
        SettleOutcome::Applied,
        "there is room again"
    );
}

/// Concurrent deaths never exceed the bound.
pub async fn deaths_at_once_never_exceed_the_bound(store: Arc<dyn Store>) {
    let mut scene = Scene::new(Arc::clone(&store));
    bound(&scene, 10).await;
    scene
        .insert((0..64).map(|n| job("q", &n.to_string())))
        .await;
    let runs = scene.claim("q", 64).await;
    let deaths = runs.into_iter().map(|run| {
        let scene = scene.apart(7);
        tokio::spawn(async move { scene.settle(&run.lease, dead()).await })
    });
    let mut applied = 0;
    for death in deaths.collect::<Vec<_>>() {
        applied += usize::from(death.await.expect("nobody panics") == SettleOutcome::Applied);
    }
    assert_eq!(applied, 10);
    assert_eq!(scene.queue("q").await.counts.of(JobState::Dead), 10);
}

/// Dead letters are grouped by queue and fingerprint. A group shows the times and a sample of its
/// present members.
pub async fn deaths_are_grouped_by_what_they_died_of(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let times = [at(100), at(110), at(120), at(130), at(140)];
    for ((name, message), time) in [
        ("a", "order 1 lost"),
        ("b", "order 2 lost"),
        ("c", "no such user"),
        ("d", "order 3 lost"),
    ]
    .into_iter()
    .zip(times)
    {
        scene.now = time;
        scene.insert_and_end(job("q", name), died_of(message)).await;
    }
    scene.now = times[4];
    scene
        .insert_and_end(job("p", "e"), died_of("order 4 lost"))
        .await;
    let group = |queue_name, message, count, first_at, last_at, sample| DeadLetterGroup {
        queue: queue(queue_name),
        fingerprint: fingerprint(message),
        count,
        first_at,
        last_at,
        sample: id(sample),
    };
    let lost = group("q", "order 9 lost", 3, times[0], times[3], "d");
    let elsewhere = group("p", "order 9 lost", 1, times[4], times[4], "e");
    let user = group("q", "no such user", 1, times[2], times[2], "c");
    assert_eq!(
        groups(&scene, None, 10).await,
        [lost.clone(), elsewhere, user.clone()]
    );
    assert_eq!(
        groups(&scene, Some("q"), 10).await,
        [lost.clone(), user.clone()]
    );
    assert_eq!(groups(&scene, None, 0).await, [lost]);
    assert_eq!(groups(&scene, Some("none"), 10).await, []);
    amend(&scene, &["d"], AmendAction::Retry, None).await;
    amend(&scene, &["a"], AmendAction::Delete, None).await;
    let left = group("q", "order 9 lost", 1, times[1], times[1], "b");
    assert_eq!(groups(&scene, Some("q"), 10).await, [user, left]);
}

/// A filter by fingerprint selects the dead letters of one group, for lists and for amendments.
pub async fn a_fingerprint_selects_its_group(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for (name, message) in [("a", "boom 1"), ("b", "bang"), ("c", "boom 3")] {
        scene.now = scene.now.after(backstop_core::Span::secs(1));
        scene.insert_and_end(job("q", name), died_of(message)).await;
    }
    scene.insert([job("q", "alive")]).await;
    let booms = Filter {
        fingerprint: Some(fingerprint("boom 7")),
        ..Filter::default()
    };
    let dead_booms = Filter {
        state: Some(JobState::Dead),
        queue: Some(queue("q")),
        ..booms.clone()
    };
    assert_eq!(listed(&scene.list(&dead_booms).await), ["c", "a"]);
    assert_eq!(listed(&scene.list(&booms).await), ["c", "a"]);
    let amended = scene
        .amend(Selection::Matching(booms), AmendAction::Retry)
        .await;
    assert_eq!(amended.applied, 2);
    assert_eq!(
        listed(&scene.list(&filter(None, Some(JobState::Dead))).await),
        ["b"]
    );
}

/// Ended jobs can be listed oldest first or newest first, page by page.
pub async fn ended_jobs_are_listed_from_either_end(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for name in ["a", "b", "c", "d", "e"] {
        scene.insert_and_end(job("q", name), dead()).await;
        if name != "b" {
            scene.now = scene.now.after(backstop_core::Span::secs(1));
        }
    }
    for (order, expected) in [(ListOrder::Oldest, "abcde"), (ListOrder::Newest, "edcba")] {
        for limit in [1, 2, 10] {
            let (mut seen, mut cursor) = (String::new(), None);
            loop {
                let query = ListJobsRequest {
                    filter: filter(Some("q"), Some(JobState::Dead)),
                    cursor,
                    limit,
                    order,
                };
                let page = scene
                    .store
                    .jobs(query, scene.now)
                    .await
                    .expect("the store answers");
                seen.extend(listed(&page.jobs));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(seen, expected, "{order:?}, {limit} a page");
        }
    }
}

/// An amendment of dead jobs does nothing to a job that is live again.
pub async fn an_amendment_heeds_the_state_it_means(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("q", "a"), dead()).await;
    scene.insert([job("q", "b")]).await;
    let amended = amend(
        &scene,
        &["a", "b"],
        AmendAction::Delete,
        Some(JobState::Dead),
    )
    .await;
    assert_eq!(
        (amended.applied, amended.refused),
        (
            1,
            vec![(id("b"), AmendRefusal::OtherState(JobState::Ready))]
        )
    );
    assert_eq!(
        (scene.find("a").await, scene.state("b").await),
        (None, Some(JobState::Ready))
    );
    let all = AmendJobsRequest {
        selection: Selection::All,
        action: AmendAction::Delete,
        only: Some(JobState::Dead),
        cursor: None,
        max: 9,
    };
    let amended = scene
        .store
        .amend(all, scene.now)
        .await
        .expect("the store answers");
    assert_eq!((amended.applied, amended.refused), (0, vec![]));
}

/// A moved dead letter is ready in its new queue, with its history, and in no other queue.
pub async fn a_dead_letter_moved_is_in_exactly_one_place(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert_and_end(job("q", "a").payload(*b"{\"n\": 1}"), dead())
        .await;
    scene.insert([job("q", "alive")]).await;
    let action = AmendAction::Move(queue("other"));
    let amended = amend(
        &scene,
        &["a", "alive", "none"],
        action.clone(),
        Some(JobState::Dead),
    )
    .await;
    let refused = vec![
        (id("alive"), AmendRefusal::OtherState(JobState::Ready)),
        (id("none"), AmendRefusal::NotFound),
    ];
    assert_eq!((amended.applied, amended.refused), (1, refused));
    assert_eq!(
        listed(&scene.list(&filter(Some("q"), None)).await),
        ["alive"]
    );
    let moved = scene.list(&filter(Some("other"), None)).await;
    assert_eq!(moved.len(), 1);
    let found = scene.job("a").await;
    assert_eq!(
        (
            found.queue.clone(),
            found.state,
            found.attempt,
            found.requeues
        ),
        (queue("other"), JobState::Ready, 0, 1)
    );
    assert_eq!(
        (found.payload.as_bytes(), found.history.failures().len()),
        (&b"{\"n\": 1}"[..], 1)
    );
    assert_eq!((found.finished_at, found.reason), (None, None));
    assert_eq!(
        scene.enqueue([job("other", "a")]).await,
        [EnqueueOutcome::Same]
    );
    let run = scene.claim_one("other").await;
    assert_eq!(run.lease.job, id("a"));
    assert_eq!(scene.settle(&run.lease, DONE).await, SettleOutcome::Applied);
    let (from, to) = (scene.queue("q").await, scene.queue("other").await);
    assert_eq!(
        (from.counts.of(JobState::Dead), to.counts.of(JobState::Done)),
        (0, 1)
    );
    let amended = amend(&scene, &["alive"], action, None).await;
    assert_eq!(amended.refused, [(id("alive"), AmendRefusal::Alive)]);
}

/// A dead letter that is moved by filter, to its own queue or another, is retried once.
pub async fn a_move_by_filter_moves_each_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for name in ["a", "b", "c"] {
        scene.insert_and_end(job("q", name), dead()).await;
    }
    let selection = Selection::Matching(filter(Some("q"), Some(JobState::Dead)));
    let steps = scene
        .amend_in_steps(selection, AmendAction::Move(queue("r")), 2)
        .await;
    assert_eq!(steps.iter().map(|step| step.applied).sum::<usize>(), 3);
    assert_eq!(scene.queue("r").await.counts.of(JobState::Ready), 3);
    assert_eq!(scene.queue("q").await.counts.of(JobState::Dead), 0);
    scene.insert_and_end(job("q", "d"), dead()).await;
    let amended = amend(&scene, &["d"], AmendAction::Move(queue("q")), None).await;
    assert_eq!(
        (amended.applied, scene.state("d").await),
        (1, Some(JobState::Ready))
    );
}

/// Unique keys count per queue: a move is refused if another job holds the key in the target queue.
pub async fn a_move_is_refused_while_a_twin_lives_there(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert_and_end(job("q", "a").unique("k"), dead())
        .await;
    scene.insert([job("other", "b").unique("k")]).await;
    let amended = amend(&scene, &["a"], AmendAction::Move(queue("other")), None).await;
    assert_eq!(
        (amended.applied, amended.refused),
        (0, vec![(id("a"), AmendRefusal::UniqueKeyHeld(id("b")))])
    );
    let job_a = scene.job("a").await;
    assert_eq!((job_a.queue, job_a.state), (queue("q"), JobState::Dead));
    amend(&scene, &["a"], AmendAction::Move(queue("third")), None).await;
    let again = scene.enqueue([job("third", "c").unique("k")]).await;
    assert_eq!(
        again,
        [EnqueueOutcome::Duplicate(id("a"))],
        "it holds its key where it went"
    );
}

/// A buried job is a dead letter with all fields of its burial, and can be requeued like any other.
pub async fn what_is_buried_is_a_dead_letter(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let burials = vec![
        burial("q", "a", "boom", at(50)),
        burial("q", "a", "other", at(51)),
    ];
    let answers = scene
        .store
        .bury(burials.clone(), scene.now)
        .await
        .expect("the store answers");
    assert_eq!(answers, [EnqueueOutcome::Inserted, EnqueueOutcome::Same]);
    assert_eq!(
        scene
            .store
            .bury(burials, scene.now)
            .await
            .expect("the store answers"),
        [EnqueueOutcome::Same, EnqueueOutcome::Same]
    );
    let found = scene.job("a").await;
    assert_eq!(
        (found.state, found.reason, found.kind.as_str()),
        (JobState::Dead, Some(EndReason::Rejected), "k")
    );
    assert_eq!(
        (found.attempt, found.lost_leases, found.requeues),
        (3, 1, 2)
    );
    assert_eq!(
        (found.inserted_at, found.run_at, found.finished_at),
        (at(1), at(5), Some(at(50)))
    );
    assert_eq!(found.history, history("boom"));
    assert_eq!(
        groups(&scene, Some("q"), 9).await[0].fingerprint,
        fingerprint("boom")
    );
    let status = scene.queue("q").await;
    assert_eq!(
        (
            status.counts.of(JobState::Dead),
            status.totals.enqueued,
            status.totals.dead
        ),
        (1, 1, 1)
    );
    assert_eq!(scene.enqueue([job("q", "a")]).await, [EnqueueOutcome::Same]);
    amend(&scene, &["a"], AmendAction::Retry, Some(JobState::Dead)).await;
    let run = scene.claim_one("q").await;
    assert_eq!(
        (run.lease.job, run.attempts_before, run.lost_leases),
        (id("a"), 0, 1)
    );
}

/// A burial respects the bound of dead letters and the limit on size.
pub async fn a_burial_heeds_its_bounds(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    bound(&scene, 2).await;
    let burials = ["a", "b", "c"]
        .map(|name| burial("q", name, "boom", at(50)))
        .to_vec();
    let answers = scene
        .store
        .bury(burials, scene.now)
        .await
        .expect("the store answers");
    assert_eq!(
        answers,
        [
            EnqueueOutcome::Inserted,
            EnqueueOutcome::Inserted,
            EnqueueOutcome::Full
        ]
    );
    assert_eq!(scene.find("c").await, None);
    let many = (0..=BURY_MAX)
        .map(|n| burial("q", &n.to_string(), "boom", at(50)))
        .collect();
    assert!(matches!(
        scene.store.bury(many, scene.now).await,
        Err(StoreError::Misuse { .. })
    ));
}

/// After progress, attempts are counted from 1 again; the failure history stays.
pub async fn attempts_are_counted_anew_after_progress(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    for (anew, attempts) in [(false, 1), (false, 2), (true, 1), (false, 2)] {
        let run = scene.claim_one("q").await;
        let failure = FailureRecord::new(
            scene.now,
            run.attempt(),
            backstop_core::failure::FailureCause::Failed,
            &WorkerName::new("w"),
            ErrorReport::message("boom"),
        );
        let history: FailureHistory = run.history.with_failure(failure);
        let outcome = Outcome::Retry {
            at: scene.now,
            history,
            anew,
        };
        assert_eq!(
            scene.settle(&run.lease, outcome).await,
            SettleOutcome::Applied
        );
        assert_eq!(scene.job("a").await.attempt, attempts);
    }
    assert_eq!(scene.job("a").await.history.failures().len(), 4);
}
