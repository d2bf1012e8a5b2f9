//! Queries and actions of operators.

use crate::given::{
    DONE, Scene, at, cancelled, dead, filter, history, id, job, list, listed, names, queue,
    retry_at,
};
use backstop_core::amend::{AmendAction, AmendRefusal, Filter, Selection, check_permitted};
use backstop_core::limits::{
    AMEND_MAX, ENQUEUE_JOBS_MAX, FIND_MAX, PAGE_MAX, SCAN_MAX, WORKER_KEPT_FOR,
};
use backstop_core::port::{
    AmendJobsRequest, AmendResult, ListJobsRequest, PruneRequest, PruneResult, QueueState,
    Retention, SettleOutcome, StateCounts, Store, StoreError,
};
use backstop_core::verdict::{DoneRetention, EndReason};
use backstop_core::{Job, JobId, JobState, Outcome, Priority, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An empty filter must not select every job.
pub async fn amend_all_must_be_said(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene.insert([job("q", "a"), job("other", "b")]).await;
    for action in [AmendAction::Retry, AmendAction::Cancel, AmendAction::Delete] {
        let selection = Selection::Matching(Filter::default());
        let amendment = AmendJobsRequest {
            selection,
            action: action.clone(),
            only: None,
            cursor: None,
            max: AMEND_MAX,
        };
        let refused = scene.store.amend(amendment, scene.now).await;
        assert!(
            matches!(refused, Err(StoreError::Misuse { .. })),
            "{action:?}: {refused:?}"
        );
    }
    assert_eq!(
        scene
            .amend(Selection::Ids(Vec::new()), AmendAction::Delete)
            .await,
        AmendResult::default()
    );
    assert_eq!(scene.list(&Filter::default()).await.len(), 2);
    assert_eq!(
        scene
            .amend(Selection::All, AmendAction::Delete)
            .await
            .applied,
        2
    );
    assert_eq!(scene.list(&Filter::default()).await, []);
}

/// Every action in every state is applied or refused as the table of the core says.
pub async fn every_action_in_every_state_answers_as_the_table_says(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for action in [
        AmendAction::Retry,
        AmendAction::Cancel,
        AmendAction::Delete,
        AmendAction::Move(queue("elsewhere")),
    ] {
        for state in JobState::ALL {
            let name = format!("{} {state}", word(&action));
            put(&mut scene, &name, state).await;
            scene.pass(Span::secs(1));
            let before = scene.job(&name).await;
            let amended = scene.amend_named(&[&name], action.clone()).await;
            let Err(refusal) = check_permitted(&action, state) else {
                assert_eq!(
                    (amended.applied, &amended.refused[..]),
                    (1, &[][..]),
                    "{name}"
                );
                check_amended(&scene, &action, &before, scene.find(&name).await);
                continue;
            };
            assert_eq!(amended.refused, [(id(&name), refusal)], "{name}");
            assert_eq!(
                (amended.applied, scene.job(&name).await),
                (0, before),
                "{name}"
            );
        }
    }
}

/// A lookup of many ids agrees with lookups of each: in the order of the ids, even with repeated
/// ids and jobs in any state.
pub async fn jobs_of_a_queue_are_found_by_their_ids(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for state in JobState::ALL {
        put(&mut scene, &format!("a {state}"), state).await;
    }
    let here = scene.job("a dead").await.queue;
    scene.insert([job("elsewhere", "b")]).await;
    let mut asked: Vec<String> = JobState::ALL
        .iter()
        .rev()
        .map(|state| format!("a {state}"))
        .collect();
    asked.extend(["nobody".to_owned(), "b".to_owned(), "a dead".to_owned()]);
    let ids: Vec<JobId> = asked.iter().map(|name| id(name)).collect();
    let found = scene
        .store
        .find(here.clone(), ids.clone(), scene.now)
        .await
        .expect("an answer");
    assert_eq!(found.len(), asked.len());
    for (name, found) in asked.iter().zip(found) {
        let expected = scene.find(name).await.filter(|job| job.queue == here);
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(
        scene
            .store
            .find(queue("elsewhere"), vec![id("b")], scene.now)
            .await
            .expect("an answer")
            .len(),
        1
    );
    assert_eq!(
        scene
            .store
            .find(queue("no-such-queue"), ids, scene.now)
            .await,
        Ok(vec![None; asked.len()])
    );
    assert_eq!(
        scene.store.find(here.clone(), Vec::new(), scene.now).await,
        Ok(Vec::new())
    );
    let many = vec![id("a dead"); FIND_MAX + 1];
    assert!(matches!(
        scene.store.find(here, many, scene.now).await,
        Err(StoreError::Misuse { .. })
    ));
}

const fn word(action: &AmendAction) -> &'static str {
    match action {
        AmendAction::Retry => "retry",
        AmendAction::Cancel => "cancel",
        AmendAction::Delete => "delete",
        AmendAction::Move(_) => "move",
    }
}

fn check_amended(scene: &Scene, action: &AmendAction, before: &Job, after: Option<Job>) {
    let what = format!("{action:?} of a job that was {}", before.state);
    let Some(after) = after else {
        assert_eq!(*action, AmendAction::Delete, "{what}");
        return;
    };
    let ended = before.state.is_final();
    let expected = match action {
        AmendAction::Delete => None,
        AmendAction::Cancel => Some(Job {
            state: JobState::Cancelled,
            finished_at: Some(scene.now),
            reason: Some(EndReason::Operator),
            held_by: None,
            // The cancelled run did not end by itself, so it does not count as an attempt.
            attempt: before.attempt - u32::from(before.state == JobState::Running),
            ..before.clone()
        }),
        AmendAction::Retry => Some(Job {
            state: JobState::Ready,
            run_at: scene.now,
            finished_at: None,
            reason: None,
            attempt: if ended { 0 } else { before.attempt },
            requeues: before.requeues + u32::from(ended),
            ..before.clone()
        }),
        AmendAction::Move(to) => Some(Job {
            queue: to.clone(),
            state: JobState::Ready,
            run_at: scene.now,
            finished_at: None,
            reason: None,
            attempt: 0,
            requeues: before.requeues + 1,
            ..before.clone()
        }),
    };
    assert_eq!(Some(after), expected, "{what}");
}

/// Creates a job with this name in `state`, in a queue of its own.
async fn put(scene: &mut Scene, name: &str, state: JobState) {
    let own = queue_of(name);
    let draft = job(&own, name);
    let outcome = match state {
        JobState::Scheduled => {
            return scene
                .insert([draft.at(scene.now.after(Span::hours(1)))])
                .await;
        }
        JobState::Ready => return scene.insert([draft]).await,
        JobState::Running => {
            scene.insert([draft]).await;
            scene.claim_one(&own).await;
            return;
        }
        JobState::Retrying => retry_at(scene.now.after(Span::hours(1))),
        JobState::Done => DONE,
        JobState::Dead => dead(),
        JobState::Cancelled => cancelled(),
    };
    scene.insert_and_end(draft, outcome).await;
}

fn queue_of(name: &str) -> String {
    name.replace(' ', "-")
}

/// An amendment answers for each id: applied to some, refused for others.
pub async fn amend_answers_for_every_id(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("q", "done"), DONE).await;
    scene.insert([job("q", "ready")]).await;
    let amended = scene
        .amend_named(&["nobody", "ready", "done"], AmendAction::Cancel)
        .await;
    assert_eq!(amended.applied, 1);
    assert_eq!(
        amended.refused,
        [
            (id("nobody"), AmendRefusal::NotFound),
            (id("done"), AmendRefusal::Ended)
        ]
    );
    let too_many = Selection::Ids(vec![id("nobody"); AMEND_MAX + 1]);
    let amendment = AmendJobsRequest {
        selection: too_many,
        action: AmendAction::Cancel,
        only: None,
        cursor: None,
        max: AMEND_MAX,
    };
    let refused = scene.store.amend(amendment, scene.now).await;
    assert!(
        matches!(refused, Err(StoreError::Misuse { .. })),
        "{refused:?}"
    );
}

/// An amendment of ids in a queue ignores jobs of other queues.
pub async fn ids_of_a_queue_mean_its_jobs_only(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("other", "dead"), dead()).await;
    scene.insert([job("q", "a"), job("other", "b")]).await;
    let named = || vec![id("b"), id("a"), id("dead"), id("nobody")];
    for action in [
        AmendAction::Retry,
        AmendAction::Cancel,
        AmendAction::Delete,
        AmendAction::Move(queue("q")),
    ] {
        let elsewhere = scene
            .amend(Selection::Within(queue("nowhere"), named()), action.clone())
            .await;
        let refused = named()
            .into_iter()
            .map(|id| (id, AmendRefusal::NotFound))
            .collect();
        assert_eq!(
            elsewhere,
            AmendResult {
                refused,
                ..AmendResult::default()
            },
            "{action:?}"
        );
    }
    let amended = scene
        .amend(Selection::Within(queue("q"), named()), AmendAction::Cancel)
        .await;
    assert_eq!(amended.applied, 1);
    assert_eq!(
        amended.refused,
        ["b", "dead", "nobody"].map(|name| (id(name), AmendRefusal::NotFound))
    );
    assert_eq!(scene.state("a").await, Some(JobState::Cancelled));
    assert_eq!(
        (scene.state("b").await, scene.state("dead").await),
        (Some(JobState::Ready), Some(JobState::Dead))
    );
    let moved = scene
        .amend(
            Selection::Within(queue("other"), vec![id("dead")]),
            AmendAction::Move(queue("q")),
        )
        .await;
    assert_eq!(
        (moved.applied, scene.job("dead").await.queue),
        (1, queue("q"))
    );
}

/// Ids are amended in one call, so cursor and maximum are ignored.
pub async fn ids_are_amended_at_once_whatever_cursor_and_max(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let names: Vec<String> = (0..5).map(|n| n.to_string()).collect();
    scene.insert(names.iter().map(|name| job("q", name))).await;
    let selection = Selection::Ids(names.iter().map(|name| id(name)).collect());
    let cursor = Some("nonsense".to_owned());
    let amendment = AmendJobsRequest {
        selection,
        action: AmendAction::Cancel,
        only: None,
        cursor,
        max: 1,
    };
    let amended = scene.store.amend(amendment, scene.now).await;
    assert_eq!(
        amended,
        Ok(AmendResult {
            applied: 5,
            ..AmendResult::default()
        })
    );
}

/// An amendment by filter touches only jobs that match the whole filter and permit the action.
pub async fn amend_matching_touches_only_what_fits(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "running").kind("k")]).await;
    scene.claim_one("q").await;
    scene
        .insert([
            job("q", "a").kind("k"),
            job("q", "b").kind("other"),
            job("other", "c").kind("k"),
        ])
        .await;
    scene.insert([job("q", "later").kind("k").at(at(60))]).await;
    let fitting = Filter {
        state: None,
        ..filter(Some("q"), None)
    };
    let fitting = Filter {
        kind: Some("k".try_into().expect("a kind")),
        ..fitting
    };
    let amended = scene
        .amend(Selection::Matching(fitting), AmendAction::Delete)
        .await;
    // A running job cannot be deleted, so a filter does not select it.
    assert_eq!(
        amended,
        AmendResult {
            applied: 2,
            ..AmendResult::default()
        }
    );
    let left: BTreeSet<String> = listed(&scene.list(&Filter::default()).await)
        .into_iter()
        .collect();
    assert_eq!(left, ["b", "c", "running"].map(str::to_owned).into());
    let ready = Selection::Matching(filter(None, Some(JobState::Ready)));
    assert_eq!(scene.amend(ready, AmendAction::Cancel).await.applied, 2);
    assert_eq!(scene.state("running").await, Some(JobState::Running));
}

/// With any step size, an amendment reaches every matching job once, although it moves those it
/// reaches.
pub async fn an_amendment_pages_through_everything_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for (own, max) in [
        ("none", 0),
        ("one", 1),
        ("two", 2),
        ("seven", 7),
        ("all", usize::MAX),
    ] {
        // Every index of a store has some of these jobs, in another order than they arrived.
        for n in 0..6 {
            let name = |what: &str| format!("{own} {what} {n}");
            scene.insert_and_end(job(own, &name("dead")), dead()).await;
            scene
                .insert_and_end(job(own, &name("cancelled")), cancelled())
                .await;
            scene
                .insert([job(own, &name("scheduled")).at(at(100 - n))])
                .await;
            scene.insert_and_end(job(own, &name("done")), DONE).await;
            scene.insert([job("other", &name("other"))]).await;
        }
        for (action, state, fitting) in [
            (AmendAction::Retry, None, 18),
            (AmendAction::Cancel, Some(JobState::Ready), 18),
            (AmendAction::Retry, Some(JobState::Cancelled), 18),
            (AmendAction::Cancel, None, 18),
            (AmendAction::Delete, None, 24),
        ] {
            let what = format!("{action:?} of {state:?}, {max} at once");
            let selection = Selection::Matching(filter(Some(own), state));
            let steps = scene.amend_in_steps(selection, action, max).await;
            let applied: Vec<usize> = steps.iter().map(|step| step.applied).collect();
            assert!(
                applied.iter().all(|applied| *applied <= max.max(1)),
                "{what}: {applied:?}"
            );
            assert!(
                steps.iter().all(|step| step.refused.is_empty()),
                "{what}: {steps:?}"
            );
            assert_eq!(
                applied.iter().sum::<usize>(),
                fitting,
                "{what}: {applied:?}"
            );
        }
        assert_eq!(scene.list(&filter(Some(own), None)).await, [], "by {max}");
    }
    assert_eq!(scene.queue("other").await.counts.of(JobState::Ready), 5 * 6);
}

/// The few matching jobs are reached even if one call cannot scan all jobs between them.
pub async fn an_amendment_reaches_a_rare_kind_among_many_jobs(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let rare = |name: &str| job("q", name).kind("rare");
    scene
        .insert([rare("first"), rare("second").at(at(60))])
        .await;
    for batch in 0..=SCAN_MAX / ENQUEUE_JOBS_MAX {
        scene
            .insert((0..ENQUEUE_JOBS_MAX).map(|n| job("q", &format!("{batch} {n}"))))
            .await;
    }
    scene.insert([rare("last but one"), rare("last")]).await;
    let kind = Filter {
        kind: Some("rare".try_into().expect("a kind")),
        ..Filter::default()
    };
    for (action, max) in [
        (AmendAction::Cancel, 1),
        (AmendAction::Retry, 3),
        (AmendAction::Delete, AMEND_MAX),
    ] {
        let steps = scene
            .amend_in_steps(Selection::Matching(kind.clone()), action.clone(), max)
            .await;
        assert!(
            steps.iter().all(|step| step.applied <= max),
            "{action:?}: {steps:?}"
        );
        assert_eq!(
            steps.iter().map(|step| step.applied).sum::<usize>(),
            4,
            "{action:?}: {steps:?}"
        );
    }
    assert_eq!(scene.list(&kind).await, []);
}

/// A step with only refusals is still a step: the jobs after it are reached, and each refusal is
/// reported once.
pub async fn refused_jobs_do_not_hide_the_ones_behind_them(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let name = |what: &str, n: usize| format!("{what} {n}");
    for n in 0..7 {
        scene
            .insert_and_end(job("q", &name("dead", n)).unique(&n.to_string()), dead())
            .await;
    }
    for n in 0..3 {
        scene
            .insert_and_end(job("q", &name("behind", n)), dead())
            .await;
    }
    scene
        .insert((0..7).map(|n| job("q", &name("twin", n)).unique(&n.to_string())))
        .await;
    let selection = Selection::Matching(filter(Some("q"), Some(JobState::Dead)));
    let steps = scene.amend_in_steps(selection, AmendAction::Retry, 2).await;
    assert!(
        steps
            .iter()
            .all(|step| step.applied + step.refused.len() <= 2),
        "{steps:?}"
    );
    assert_eq!(
        steps.iter().map(|step| step.applied).sum::<usize>(),
        3,
        "{steps:?}"
    );
    let refused: Vec<_> = steps.into_iter().flat_map(|step| step.refused).collect();
    let expected: Vec<_> = (0..7)
        .map(|n| {
            (
                id(&name("dead", n)),
                AmendRefusal::UniqueKeyHeld(id(&name("twin", n))),
            )
        })
        .collect();
    assert_eq!(refused, expected, "each of them once, in order of arrival");
    assert_eq!(scene.queue("q").await.counts.of(JobState::Dead), 7);
    assert_eq!(scene.state("behind 2").await, Some(JobState::Ready));
}

/// An amendment accepts only its own cursors; a cursor of a list is refused.
pub async fn a_bad_cursor_of_an_amendment_is_misuse(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene.insert([job("q", "a"), job("q", "b")]).await;
    let query = ListJobsRequest {
        limit: 1,
        ..ListJobsRequest::default()
    };
    let page = scene
        .store
        .jobs(query, scene.now)
        .await
        .expect("the store lists its jobs");
    let of_a_list = page.next.expect("there is another page");
    for cursor in [
        "",
        "nonsense",
        "-1",
        "' OR 1=1 --",
        "🙂",
        "a\0b",
        &of_a_list,
    ] {
        for selection in [Selection::All, Selection::Matching(filter(Some("q"), None))] {
            let cursor = Some(cursor.to_owned());
            let amendment = AmendJobsRequest {
                selection,
                action: AmendAction::Delete,
                only: None,
                cursor,
                max: AMEND_MAX,
            };
            let refused = scene.store.amend(amendment.clone(), scene.now).await;
            assert!(
                matches!(refused, Err(StoreError::Misuse { .. })),
                "{amendment:?}: {refused:?}"
            );
        }
    }
    assert_eq!(scene.list(&Filter::default()).await.len(), 2);
}

/// A requeued dead letter is in one place, with its history, fresh attempts, and a record of the
/// requeue.
pub async fn a_dead_job_requeued_is_in_exactly_one_place(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("q", "a"), dead()).await;
    scene.insert_and_end(job("q", "still dead"), dead()).await;
    scene.insert([job("q", "b")]).await;
    scene.now = at(7);
    assert_eq!(
        scene.amend_named(&["a"], AmendAction::Retry).await.applied,
        1
    );
    let everywhere = scene.list(&Filter::default()).await;
    assert_eq!(everywhere.iter().filter(|job| job.id == id("a")).count(), 1);
    assert_eq!(
        listed(&scene.list(&filter(None, Some(JobState::Ready))).await),
        ["b", "a"]
    );
    let requeued = scene.job("a").await;
    assert_eq!(
        (requeued.requeues, requeued.attempt, requeued.run_at),
        (1, 0, at(7))
    );
    assert_eq!(
        (requeued.history, requeued.reason, requeued.finished_at),
        (history("boom"), None, None)
    );
    let status = scene.queue("q").await;
    assert_eq!(
        (status.counts.of(JobState::Dead), status.totals.dead),
        (1, 2)
    );
    let runs = scene.claim("q", 9).await;
    assert_eq!(names(&runs), ["b", "a"]);
    assert_eq!((runs[1].attempt(), &runs[1].history), (1, &history("boom")));
}

/// The worker of a cancelled run learns it by its next heartbeat, and its result is ignored.
pub async fn cancelling_a_running_job_makes_its_settle_stale_and_its_beat_lost(
    store: Arc<dyn Store>,
) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a"), job("q", "b")]).await;
    let leases: Vec<_> = scene
        .claim("q", 2)
        .await
        .into_iter()
        .map(|run| run.lease)
        .collect();
    assert_eq!(
        scene.amend_named(&["a"], AmendAction::Cancel).await.applied,
        1
    );
    let before = scene.job("a").await;
    assert_eq!(scene.beat(&leases, at(90)).await, leases[..1]);
    assert_eq!(scene.settle(&leases[0], DONE).await, SettleOutcome::Stale);
    assert_eq!(scene.job("a").await, before);
    assert_eq!(scene.settle(&leases[1], DONE).await, SettleOutcome::Applied);
    scene.now = at(3_600);
    assert_eq!(
        scene.seize("rescuer").await,
        [],
        "nobody holds it, so nobody can lose it"
    );
    let totals = scene.queue("q").await.totals;
    assert_eq!((totals.cancelled, totals.done), (1, 1));
}

/// Cancelling a waiting job does not change the order of the ready ones.
pub async fn amending_a_waiting_job_leaves_the_ready_ones_in_line(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "a"), job("q", "b")]).await;
    let waiting = ["cancelled", "deleted", "retried"];
    scene
        .insert(waiting.map(|name| job("q", name).at(at(60))))
        .await;
    scene.amend_named(&["cancelled"], AmendAction::Cancel).await;
    scene.amend_named(&["deleted"], AmendAction::Delete).await;
    scene.amend_named(&["retried"], AmendAction::Retry).await;
    assert_eq!(names(&scene.claim("q", 9).await), ["a", "b", "retried"]);
}

/// Counts agree with a count of the rows, after everything that can happen to a job.
pub async fn counts_equal_rows(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    mixed_history(&mut scene).await;
    let rows = scene.list(&Filter::default()).await;
    let mut counted: BTreeMap<_, StateCounts> = BTreeMap::new();
    for row in &rows {
        *counted
            .entry(row.queue.clone())
            .or_default()
            .of_mut(row.state) += 1;
    }
    let queues = scene
        .store
        .queues(scene.now)
        .await
        .expect("the store lists its queues");
    let by_name: Vec<_> = queues.iter().map(|status| status.name.as_str()).collect();
    assert_eq!(by_name, ["a", "a-b", "b"], "queues come by name");
    for status in queues {
        let rows = counted.remove(&status.name).unwrap_or_default();
        assert_eq!(status.counts, rows, "{}", status.name);
    }
    assert!(
        counted.is_empty(),
        "queues that are not listed: {counted:?}"
    );
}

/// Creates a job of every state in every queue; some moved more than once, some were deleted.
async fn mixed_history(scene: &mut Scene) {
    for queue in ["b", "a", "a-b"] {
        let name = |n: usize| format!("{queue}{n}");
        scene
            .insert((0..3).map(|n| job(queue, &format!("{queue}-at-{n}")).at(at(100 - n))))
            .await;
        for (n, outcome) in [
            DONE,
            DONE,
            Outcome::Done(DoneRetention::Gone),
            dead(),
            dead(),
            cancelled(),
            retry_at(at(200)),
            Outcome::Released { at: at(150) },
        ]
        .into_iter()
        .enumerate()
        {
            scene.pass(Span::millis(1));
            scene
                .insert_and_end(job(queue, &name(n)).kind("other"), outcome)
                .await;
        }
        for level in Priority::ALL {
            scene
                .insert([job(queue, &format!("{queue}-{level}")).priority(level)])
                .await;
        }
        // One of two dead letters is requeued, so that the count of dead jobs goes down as well as
        // up.
        scene.amend_named(&[&name(3)], AmendAction::Retry).await;
        scene.amend_named(&[&name(5)], AmendAction::Delete).await;
        scene.claim(queue, 2).await;
        scene.pass(Span::secs(1));
    }
}

/// With any page size, a list shows every matching job once, in its documented order.
pub async fn lists_page_through_everything_exactly_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    mixed_history(&mut scene).await;
    let everything = list(&*scene.store, &Filter::default(), PAGE_MAX, scene.now).await;
    let kind = Filter {
        kind: Some("other".try_into().expect("a kind")),
        ..Filter::default()
    };
    let mut filters = vec![Filter::default(), kind, filter(Some("a"), None)];
    filters.extend(JobState::ALL.map(|state| filter(None, Some(state))));
    filters.extend(JobState::ALL.map(|state| filter(Some("a-b"), Some(state))));
    for filter in filters {
        let fitting: BTreeSet<JobId> = everything
            .iter()
            .filter(|job| filter.fits(&job.queue, &job.kind, job.state, job.fingerprint()))
            .map(|job| job.id)
            .collect();
        for limit in [1, 2, 3, 7, PAGE_MAX] {
            let shown = list(&*scene.store, &filter, limit, scene.now).await;
            let ids: BTreeSet<JobId> = shown.iter().map(|job| job.id).collect();
            assert_eq!(shown.len(), ids.len(), "shown twice: {filter:?} by {limit}");
            assert_eq!(ids, fitting, "{filter:?} by {limit}");
            check_order(&filter, &shown);
        }
    }
}

/// A caller that changes each page of a list before reading the next sees every job once. Jobs that
/// leave the list hide no other, and jobs that come back are not shown again.
pub async fn a_list_goes_on_while_what_it_showed_is_changed(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for limit in [1, 2, 5] {
        let own = format!("by-{limit}");
        for n in 0..6 {
            let name = |what: &str| format!("{own} {what} {n}");
            scene.insert_and_end(job(&own, &name("dead")), dead()).await;
            scene
                .insert_and_end(job(&own, &name("cancelled")), cancelled())
                .await;
            scene
                .insert([job(&own, &name("scheduled")).at(at(100 - n))])
                .await;
            scene.insert_and_end(job(&own, &name("done")), DONE).await;
        }
        for (action, state, fitting) in [
            (AmendAction::Retry, None, 24),
            (AmendAction::Cancel, Some(JobState::Ready), 18),
            (AmendAction::Retry, Some(JobState::Cancelled), 18),
            (AmendAction::Cancel, None, 24),
            (AmendAction::Delete, Some(JobState::Cancelled), 18),
            (AmendAction::Delete, None, 6),
        ] {
            let what = format!("{action:?} of {state:?}, {limit} at once");
            let met = meet(&scene, &filter(Some(&own), state), &action, limit).await;
            let once: BTreeSet<JobId> = met.iter().copied().collect();
            assert_eq!((met.len(), once.len()), (fitting, fitting), "{what}");
        }
        assert_eq!(
            scene.list(&filter(Some(&own), None)).await,
            [],
            "by {limit}"
        );
    }
}

/// Reads a list page by page and amends each page before the next; returns the jobs it read.
async fn meet(scene: &Scene, filter: &Filter, action: &AmendAction, limit: usize) -> Vec<JobId> {
    let (mut met, mut cursor) = (Vec::new(), None);
    loop {
        let query = ListJobsRequest {
            filter: filter.clone(),
            cursor,
            limit,
            ..ListJobsRequest::default()
        };
        let page = scene
            .store
            .jobs(query, scene.now)
            .await
            .expect("the store lists");
        let ids: Vec<JobId> = page.jobs.iter().map(|job| job.id).collect();
        if let Some(job) = page.jobs.first() {
            scene
                .amend(
                    Selection::Within(job.queue.clone(), ids.clone()),
                    action.clone(),
                )
                .await;
        }
        met.extend(ids);
        cursor = page.next;
        if cursor.is_none() || met.len() > 1_000 {
            return met;
        }
    }
}

/// Checks the order: waiting jobs by their time, ended jobs newest first, mixed states newest first
/// by arrival.
fn check_order(filter: &Filter, shown: &[Job]) {
    let in_order = |first: &Job, second: &Job| match filter.state {
        Some(JobState::Scheduled | JobState::Retrying) => first.run_at <= second.run_at,
        Some(JobState::Done | JobState::Dead | JobState::Cancelled) => {
            first.finished_at >= second.finished_at
        }
        Some(JobState::Ready) => first.queue != second.queue || first.priority <= second.priority,
        Some(JobState::Running) => true,
        None => first.inserted_at >= second.inserted_at,
    };
    for pair in shown.windows(2) {
        assert!(
            in_order(&pair[0], &pair[1]),
            "{filter:?}: {:?} before {:?}",
            pair[0],
            pair[1]
        );
    }
}

/// Ready jobs are listed in the order in which they will be claimed.
pub async fn ready_jobs_are_listed_in_claim_order(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for n in 0..12_usize {
        scene
            .insert([job("q", &n.to_string()).priority(Priority::ALL[n % 4])])
            .await;
    }
    let released = scene.claim("q", 2).await;
    for run in &released {
        scene
            .settle(&run.lease, Outcome::Released { at: scene.now })
            .await;
    }
    let shown = list(
        &*scene.store,
        &filter(Some("q"), Some(JobState::Ready)),
        5,
        scene.now,
    )
    .await;
    assert_eq!(listed(&shown), names(&scene.claim("q", 20).await));
}

/// A page never exceeds its own limit or the limit of all pages.
pub async fn a_page_keeps_to_its_limit(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene
        .insert((0..=PAGE_MAX).map(|n| job("q", &n.to_string())))
        .await;
    for (asked, most) in [(0, 1), (1, 1), (PAGE_MAX, PAGE_MAX), (usize::MAX, PAGE_MAX)] {
        let query = ListJobsRequest {
            limit: asked,
            ..ListJobsRequest::default()
        };
        let page = scene
            .store
            .jobs(query, scene.now)
            .await
            .expect("the store lists its jobs");
        assert!(
            page.jobs.len() <= most,
            "{} where {asked} were asked for",
            page.jobs.len()
        );
        assert!(page.next.is_some(), "{asked}");
    }
}

/// A cursor that the store did not create is misuse.
pub async fn a_bad_cursor_is_misuse(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene.insert([job("q", "a")]).await;
    for cursor in ["", "nonsense", "-1", "' OR 1=1 --", "🙂", "a\0b"] {
        for state in [
            None,
            Some(JobState::Ready),
            Some(JobState::Scheduled),
            Some(JobState::Done),
        ] {
            let query = ListJobsRequest {
                filter: filter(None, state),
                cursor: Some(cursor.to_owned()),
                limit: 10,
                ..ListJobsRequest::default()
            };
            let refused = scene.store.jobs(query, scene.now).await;
            assert!(
                matches!(refused, Err(StoreError::Misuse { .. })),
                "{cursor:?}: {refused:?}"
            );
        }
    }
}

/// A paused queue keeps its jobs and accepts more; once resumed, it hands them out in order.
pub async fn a_paused_queue_gives_nothing_and_takes_jobs_in(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert([
            job("q", "a"),
            job("q", "running").priority(Priority::Critical),
        ])
        .await;
    let running = scene.claim_one("q").await;
    assert_eq!(
        scene
            .store
            .set_queue_state(queue("q"), QueueState::Paused, scene.now)
            .await,
        Ok(())
    );
    scene
        .insert([
            job("q", "b"),
            job("q", "later").at(at(5)),
            job("other", "c"),
        ])
        .await;
    scene.now = at(5);
    assert_eq!(scene.promote().await, 1, "time goes on in a paused queue");
    let claim = scene.claim_of(&[("q", 9), ("other", 9)]);
    assert_eq!(names(&scene.claim_as(&claim).await), ["c"]);
    assert_eq!(
        scene.settle(&running.lease, DONE).await,
        SettleOutcome::Applied,
        "what runs may end"
    );
    let status = scene.queue("q").await;
    assert_eq!(
        (status.state, status.counts.of(JobState::Ready)),
        (QueueState::Paused, 3)
    );
    assert_eq!(
        scene
            .store
            .set_queue_state(queue("q"), QueueState::Active, scene.now)
            .await,
        Ok(())
    );
    assert_eq!(names(&scene.claim("q", 9).await), ["a", "b", "later"]);
}

/// A queue can be paused before its first job.
pub async fn a_queue_may_be_paused_before_it_has_jobs(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    assert_eq!(
        scene
            .store
            .set_queue_state(queue("q"), QueueState::Paused, scene.now)
            .await,
        Ok(())
    );
    assert_eq!(scene.queue("q").await.state, QueueState::Paused);
    scene.insert([job("q", "a")]).await;
    assert_eq!(scene.claim("q", 9).await, []);
}

/// A queue shows since when its next job has been due.
pub async fn a_queue_tells_when_its_next_job_was_to_run(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert([job("q", "later").at(at(60))]).await;
    assert_eq!(
        scene.queue("q").await.next_ready,
        None,
        "what waits for its time is not claimed next"
    );
    scene
        .insert([
            job("q", "a").at(at(-5)),
            job("q", "b").at(at(-9)).priority(Priority::High),
        ])
        .await;
    assert_eq!(scene.queue("q").await.next_ready, Some(at(-9)));
    scene.claim_one("q").await;
    assert_eq!(scene.queue("q").await.next_ready, Some(at(-5)));
    scene.claim_one("q").await;
    assert_eq!(scene.queue("q").await.next_ready, None);
}

fn shelf(secs: i64) -> Retention {
    let span = Span::secs(secs);
    Retention {
        done_for: span,
        done_max: u64::MAX,
        cancelled_for: span,
        dead_for: span,
    }
}

async fn prune(scene: &Scene, usual: Retention, max: usize) -> PruneResult {
    let retention = PruneRequest {
        default: Some(usual),
        queues: Vec::new(),
        max,
    };
    scene
        .store
        .prune(retention, scene.now)
        .await
        .expect("the store prunes")
}

/// Pruning keeps live jobs, and ended jobs until their retention is over.
pub async fn prune_keeps_the_unexpired(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for state in JobState::ALL {
        put(&mut scene, &format!("old {state}"), state).await;
    }
    scene.now = at(1);
    scene.insert_and_end(job("q", "young"), DONE).await;
    scene.now = at(10);
    assert_eq!(prune(&scene, shelf(11), 100).await, PruneResult::default());
    let only_dead = Retention {
        dead_for: Span::secs(10),
        ..shelf(11)
    };
    assert_eq!(
        prune(&scene, only_dead, 100).await,
        PruneResult {
            dead: 1,
            ..PruneResult::default()
        }
    );
    let pruned = prune(&scene, shelf(10), 100).await;
    assert_eq!(
        pruned,
        PruneResult {
            done: 1,
            cancelled: 1,
            ..PruneResult::default()
        }
    );
    let left: BTreeSet<String> = listed(&scene.list(&Filter::default()).await)
        .into_iter()
        .collect();
    let live = [
        "old scheduled",
        "old ready",
        "old running",
        "old retrying",
        "young",
    ];
    assert_eq!(left, live.map(str::to_owned).into());
    assert_eq!(prune(&scene, shelf(9), 100).await.done, 1);
}

/// The number of done jobs is limited; the oldest are pruned first, in steps if there are many.
pub async fn prune_obeys_done_max_oldest_first(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for n in 0..6 {
        scene.now = at(n);
        scene.insert_and_end(job("q", &n.to_string()), DONE).await;
    }
    scene.insert_and_end(job("other", "alone"), DONE).await;
    let few = Retention {
        done_max: 2,
        ..shelf(3_600)
    };
    assert_eq!(
        prune(&scene, few, 3).await,
        PruneResult {
            done: 3,
            more: true,
            ..PruneResult::default()
        }
    );
    assert_eq!(
        listed(&scene.list(&filter(Some("q"), None)).await),
        ["5", "4", "3"]
    );
    assert_eq!(
        prune(&scene, few, 3).await,
        PruneResult {
            done: 1,
            ..PruneResult::default()
        }
    );
    assert_eq!(
        listed(&scene.list(&filter(Some("q"), None)).await),
        ["5", "4"]
    );
    assert_eq!(
        scene.state("alone").await,
        Some(JobState::Done),
        "each queue has its own number"
    );
    assert_eq!(prune(&scene, few, 3).await, PruneResult::default());
}

/// A queue with its own retention uses that; the other queues use the default.
pub async fn prune_keeps_each_queue_by_its_own_entry(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("short", "a"), DONE).await;
    scene.insert_and_end(job("long", "b"), DONE).await;
    scene.now = at(60);
    let usual = Some(shelf(3_600));
    let retention = PruneRequest {
        default: usual,
        queues: vec![(queue("short"), shelf(10))],
        max: 100,
    };
    let pruned = scene.store.prune(retention, scene.now).await;
    assert_eq!(
        pruned,
        Ok(PruneResult {
            done: 1,
            ..PruneResult::default()
        })
    );
    assert_eq!(
        (scene.state("a").await, scene.state("b").await),
        (None, Some(JobState::Done))
    );
}

/// Pruning leaves a queue alone for which it has no retention.
pub async fn prune_leaves_queues_it_is_told_nothing_about_alone(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene.insert_and_end(job("known", "a"), DONE).await;
    for (name, outcome) in [("b", DONE), ("c", dead()), ("d", cancelled())] {
        scene.insert_and_end(job("unknown", name), outcome).await;
    }
    scene.now = at(3_600);
    let none = Retention {
        done_max: 0,
        ..shelf(0)
    };
    let retention = PruneRequest {
        default: None,
        queues: vec![(queue("known"), none)],
        max: 100,
    };
    let pruned = scene.store.prune(retention, scene.now).await;
    assert_eq!(
        pruned,
        Ok(PruneResult {
            done: 1,
            ..PruneResult::default()
        })
    );
    let left: BTreeSet<String> = listed(&scene.list(&Filter::default()).await)
        .into_iter()
        .collect();
    assert_eq!(left, ["b", "c", "d"].map(str::to_owned).into());
}

/// The totals of a queue, and the queue itself, outlast the pruning of its jobs.
pub async fn totals_survive_pruning(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for (name, outcome) in [("a", DONE), ("b", dead()), ("c", cancelled()), ("d", DONE)] {
        scene.insert_and_end(job("q", name), outcome).await;
    }
    let before = scene.queue("q").await.totals;
    assert_eq!(
        (before.enqueued, before.done, before.dead, before.cancelled),
        (4, 2, 1, 1)
    );
    scene.now = at(60);
    prune(&scene, shelf(1), 100).await;
    assert_eq!(scene.list(&Filter::default()).await, []);
    let after = scene.queue("q").await;
    assert_eq!(
        (after.totals, after.counts),
        (before, StateCounts::default())
    );
}

/// Workers are known by their heartbeats, and forgotten without them.
pub async fn workers_are_those_that_beat(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert(["a", "b", "c"].map(|name| job("q", name)))
        .await;
    let runs = scene.claim("q", 3).await;
    scene.beat_as("silent", &[], at(60)).await;
    scene.now = at(10);
    let leases: Vec<_> = runs.iter().map(|run| run.lease.clone()).collect();
    scene.beat(&leases, at(60)).await;
    scene.settle(&leases[0], DONE).await;
    let workers = scene
        .store
        .workers(Span::secs(10), scene.now)
        .await
        .expect("workers are listed");
    let seen: Vec<_> = workers
        .iter()
        .map(|worker| (worker.name.as_str(), worker.seen_at, worker.running))
        .collect();
    assert_eq!(
        seen,
        [("silent", at(0), 0), (crate::given::WORKER, at(10), 2)]
    );
    assert_eq!(workers[0].queues, [queue("q")]);
    let workers = scene
        .store
        .workers(Span::secs(9), scene.now)
        .await
        .expect("workers are listed");
    assert_eq!(workers.len(), 1);
}

/// A worker that is silent for a day is forgotten, so that made-up names do not stay.
pub async fn a_silent_worker_is_forgotten_after_a_day(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let beat = async |scene: &Scene, name| {
        let until = scene.now.after(Span::secs(60));
        scene.beat_as(name, &[], until).await;
    };
    beat(&scene, "silent").await;
    scene.pass(WORKER_KEPT_FOR);
    beat(&scene, "alive").await;
    for expected in [&["alive", "silent"][..], &["alive"]] {
        prune(&scene, shelf(1), 100).await;
        let workers = scene.store.workers(Span::days(30), scene.now).await;
        let workers = workers.expect("workers are listed");
        let names: Vec<_> = workers.iter().map(|worker| worker.name.as_str()).collect();
        assert_eq!(names, expected);
        scene.pass(Span::secs(1));
    }
}

/// A store has one clock for all its users, and says which durability it promises.
pub async fn a_store_tells_its_time_and_its_promise(store: Arc<dyn Store>) {
    let time = store.time().await.expect("the store tells the time");
    assert!(
        time > at(-366 * 86_400 * 10),
        "{time} is no time of this century"
    );
    let examination = store.examine().await.expect("the store examines itself");
    assert!(
        !examination.store.is_empty() && !examination.promise.is_empty(),
        "{examination:?}"
    );
}
