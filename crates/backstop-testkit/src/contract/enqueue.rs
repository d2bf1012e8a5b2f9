//! Enqueues new jobs.

use super::dead::burial;
use crate::given::{LEASE, Scene, at, id, job};
use backstop_core::RetryPolicy;
use backstop_core::amend::Filter;
use backstop_core::job_options::JobOptions;
use backstop_core::limits::{DELAY_MAX, ENQUEUE_BYTES_MAX, ENQUEUE_JOBS_MAX, PAYLOAD_BYTES_MAX};
use backstop_core::port::{EnqueueOutcome, NewDeadLetter, Store, StoreError};
use backstop_core::unique::UniqueKey;
use backstop_core::verdict::EndReason;
use backstop_core::{JobState, NewJob, Priority, Span, Time};
use std::sync::Arc;
use std::time::Duration;

/// The trace context of the jobs in these cases.
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Producers draw the ids, so a push whose answer was lost can be repeated safely.
pub async fn enqueue_twice_is_once(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    assert_eq!(
        scene.enqueue([job("q", "a")]).await,
        [EnqueueOutcome::Inserted]
    );
    scene.now = at(5);
    assert_eq!(scene.enqueue([job("q", "a")]).await, [EnqueueOutcome::Same]);
    assert_eq!(scene.queue("q").await.totals.enqueued, 1);
    assert_eq!(scene.claim("q", 10).await.len(), 1);
}

/// A batch may contain a job twice, and the answers keep its order.
pub async fn an_id_twice_in_one_batch_is_once(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let answers = scene
        .enqueue([job("q", "a"), job("q", "b"), job("q", "a"), job("q", "c")])
        .await;
    assert_eq!(
        answers,
        [
            EnqueueOutcome::Inserted,
            EnqueueOutcome::Inserted,
            EnqueueOutcome::Same,
            EnqueueOutcome::Inserted
        ]
    );
    assert_eq!(scene.queue("q").await.counts.of(JobState::Ready), 3);
}

/// A late repetition of a push does not bring a finished job back.
pub async fn an_id_is_the_same_in_every_state(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert_and_end(job("q", "done"), crate::given::DONE)
        .await;
    scene
        .insert_and_end(job("q", "dead"), crate::given::dead())
        .await;
    scene.insert([job("q", "running")]).await;
    scene.claim_one("q").await;
    scene.insert([job("q", "scheduled").at(at(60))]).await;
    for name in ["done", "dead", "running", "scheduled"] {
        let before = scene.job(name).await;
        assert_eq!(
            scene.enqueue([job("q", name)]).await,
            [EnqueueOutcome::Same],
            "{name}"
        );
        assert_eq!(scene.job(name).await, before, "{name}");
    }
}

/// A push with an id that a job of another queue has is not acknowledged as that job. It is refused
/// as a conflict; or, in a store with ids per queue, it creates a job of its own.
pub async fn an_id_that_another_queue_has_is_never_the_same(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    scene
        .insert([
            job("a", "ready"),
            job("a", "waiting").at(at(60)),
            job("a", "keyed").unique("k"),
        ])
        .await;
    scene
        .insert_and_end(job("b", "done"), crate::given::DONE)
        .await;
    scene
        .insert_and_end(job("b", "dead"), crate::given::dead())
        .await;
    for name in ["ready", "waiting", "keyed", "done", "dead"] {
        let before = scene.find(name).await;
        let pushes = [
            job("c", name),
            job("c", &format!("{name}-2")),
            job("c", name),
        ];
        let together = scene.enqueue(pushes).await;
        let keyed = scene.enqueue([job("d", name).unique(name)]).await;
        let buried = scene
            .store
            .bury(vec![burial("e", name, "boom", at(1))], scene.now)
            .await
            .expect("the store answers");
        let is_conflict = together[0] == EnqueueOutcome::Conflict;
        let expected = if is_conflict {
            assert_eq!(scene.find(name).await, before, "{name}");
            [
                EnqueueOutcome::Conflict,
                EnqueueOutcome::Inserted,
                EnqueueOutcome::Conflict,
            ]
        } else {
            assert_eq!(
                scene
                    .store
                    .locate(id(name), scene.now)
                    .await
                    .map(|jobs| jobs.len()),
                Ok(4),
                "{name}"
            );
            [
                EnqueueOutcome::Inserted,
                EnqueueOutcome::Inserted,
                EnqueueOutcome::Same,
            ]
        };
        assert_eq!(
            (&together[..], keyed, buried),
            (&expected[..], vec![expected[0]], vec![expected[0]]),
            "{name}"
        );
    }
}

/// An empty batch is not an error.
pub async fn an_empty_batch_is_answered_with_nothing(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    assert_eq!(scene.enqueue([]).await, []);
    assert_eq!(scene.store.queues(scene.now).await, Ok(Vec::new()));
}

/// A job is scheduled only for a later time; for now or the past it is ready.
pub async fn only_a_job_for_later_waits_for_its_time(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let in_a_moment = scene.now.after(Span::micros(1));
    scene
        .insert([
            job("q", "past").at(scene.now.before(Span::hours(1))),
            job("q", "now").at(scene.now),
            job("q", "later").at(in_a_moment),
        ])
        .await;
    for (name, state) in [
        ("past", JobState::Ready),
        ("now", JobState::Ready),
        ("later", JobState::Scheduled),
    ] {
        assert_eq!(scene.state(name).await, Some(state), "{name}");
    }
}

/// An operator sees a job as the producer enqueued it.
pub async fn a_job_is_seen_as_it_was_handed_in(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let policy = RetryPolicy::from_json(br#"{"kind":"constant","every":"7s"}"#).expect("a policy");
    let draft = job("q", "a")
        .kind("send")
        .priority(Priority::High)
        .unique("k")
        .retry(policy.clone());
    scene.insert([draft.clone()]).await;
    let (handed_in, seen) = (NewJob::from(draft), scene.job("a").await);
    assert_eq!(
        (seen.id, &seen.queue, &seen.kind),
        (id("a"), &handed_in.queue, &handed_in.kind)
    );
    assert_eq!(
        (&seen.payload, seen.priority),
        (&handed_in.payload, Priority::High)
    );
    assert_eq!(
        (seen.run_at, seen.inserted_at, seen.finished_at),
        (scene.now, scene.now, None)
    );
    assert_eq!((seen.attempt, seen.lost_leases, seen.requeues), (0, 0, 0));
    assert_eq!(seen.unique_key.as_ref().map(UniqueKey::as_str), Some("k"));
    assert_eq!(seen.options.retry(), Some(policy));
    assert_eq!((seen.reason, seen.held_by), (None, None));
    assert!(seen.history.failures().is_empty());
}

/// The trace context of a job is shown to its worker, its seizer and operators, with or without a
/// retry policy of the job.
pub async fn a_trace_context_comes_back(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let policy = RetryPolicy::from_json(br#"{"kind":"constant","every":"7s"}"#).expect("a policy");
    let drafts = [
        job("q", "traced").trace(TRACEPARENT),
        job("q", "both").trace(TRACEPARENT).retry(policy.clone()),
        job("q", "neither"),
    ];
    for draft in drafts {
        let handed_in = NewJob::from(draft.clone());
        let told = |terms: &JobOptions| {
            assert_eq!(
                (terms.trace(), terms.retry()),
                (handed_in.trace, handed_in.retry.clone())
            );
        };
        scene.insert([draft]).await;
        told(
            &scene
                .store
                .job(handed_in.id, scene.now)
                .await
                .expect("an answer")
                .expect("the job")
                .options,
        );
        told(&scene.claim_one("q").await.options);
        scene.pass(LEASE.plus(Span::micros(1)));
        let seized = scene.seize("rescuer").await;
        told(&seized[0].run.options);
        scene
            .settle(&seized[0].run.lease, crate::given::dead())
            .await;
    }
    let listed = scene.list(&Filter::default()).await;
    let traces = listed
        .iter()
        .map(|job| job.options.trace().map(|trace| trace.to_string()));
    assert_eq!(
        traces
            .filter(|trace| trace.as_deref() == Some(TRACEPARENT))
            .count(),
        2
    );
}

/// A burial keeps the trace context of its job.
pub async fn a_trace_context_is_buried_with_its_job(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let burial = NewDeadLetter {
        job: job("q", "traced").trace(TRACEPARENT).into(),
        attempts: 1,
        lost_leases: 0,
        requeues: 0,
        inserted_at: scene.now,
        finished_at: scene.now,
        reason: EndReason::Rejected,
        history: crate::given::history("no"),
    };
    let answers = scene.store.bury(vec![burial], scene.now).await;
    assert_eq!(answers, Ok(vec![EnqueueOutcome::Inserted]));
    let trace = scene.job("traced").await.options.trace();
    assert_eq!(
        trace.map(|trace| trace.to_string()).as_deref(),
        Some(TRACEPARENT)
    );
}

/// Times keep their microseconds, in any century.
pub async fn times_keep_their_microseconds(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    for (name, micros) in [
        ("early", -62_135_596_799_999_999),
        ("odd", 1_767_225_600_123_457),
    ] {
        scene
            .insert([job("q", name).at(Time::from_micros(micros))])
            .await;
        assert_eq!(scene.job(name).await.run_at.as_micros(), micros, "{name}");
        assert_eq!(
            scene.claim_one("q").await.run_at.as_micros(),
            micros,
            "{name}"
        );
    }
    let latest = scene.now.after(DELAY_MAX).as_micros();
    let late = Time::from_micros(latest - 1);
    scene.insert([job("q", "late").at(late)]).await;
    assert_eq!(scene.job("late").await.run_at, late);
    let promoted = scene.store.promote(1, scene.now).await;
    assert_eq!(promoted.map(|promoted| promoted.next_due), Ok(Some(late)));
}

/// Names are any Unicode text; only queue names are restricted.
pub async fn names_are_any_unicode(store: Arc<dyn Store>) {
    let mut scene = Scene::new(store);
    let strange = [
        "é",
        "e\u{301}",
        "名前",
        "🙂",
        "a\nb",
        "'; DROP TABLE jobs --",
        "%_\\",
        "\u{feff}x",
        " ",
    ];
    for name in strange {
        scene.insert([job("q", name).kind(name).unique(name)]).await;
        let mut claim = scene.claim_of(&[("q", 1)]);
        claim.worker = backstop_core::WorkerName::new(name);
        let runs = scene.claim_as(&claim).await;
        assert_eq!(runs[0].kind.as_str(), name);
        let lost = scene
            .beat_as(name, &[runs[0].lease.clone()], claim.until)
            .await;
        assert_eq!(lost, [], "{name:?}");
        let seen = scene.job(name).await;
        assert_eq!(seen.kind.as_str(), name);
        assert_eq!(seen.unique_key.as_ref().map(UniqueKey::as_str), Some(name));
        assert_eq!(
            seen.held_by.map(|holder| holder.worker),
            Some(claim.worker),
            "{name:?}"
        );
        assert_eq!(
            scene.enqueue([job("q", "other").unique(name)]).await,
            [EnqueueOutcome::Duplicate(id(name))]
        );
        let filter = backstop_core::amend::Filter {
            kind: Some(seen.kind),
            ..Default::default()
        };
        assert_eq!(
            scene.list(&filter).await.len(),
            1,
            "{name:?} is told from the other names"
        );
    }
    let workers = scene
        .store
        .workers(Span::hours(1), scene.now)
        .await
        .expect("workers are listed");
    let seen: Vec<&str> = workers.iter().map(|worker| worker.name.as_str()).collect();
    let mut sorted = strange;
    sorted.sort_unstable();
    assert_eq!(seen, sorted, "workers come by name");
}

/// A batch above the limit is misuse, and no job of it is enqueued.
pub async fn too_many_jobs_at_once_are_misuse(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let jobs = |count: usize| {
        (0..count)
            .map(|n| NewJob::from(job("q", &n.to_string())))
            .collect()
    };
    let refused = scene
        .store
        .enqueue(jobs(ENQUEUE_JOBS_MAX + 1), scene.now)
        .await;
    assert!(
        matches!(refused, Err(StoreError::Misuse { .. })),
        "{refused:?}"
    );
    assert_eq!(scene.store.queues(scene.now).await, Ok(Vec::new()));
    let taken = scene
        .store
        .enqueue(jobs(ENQUEUE_JOBS_MAX), scene.now)
        .await
        .expect("a full batch goes in");
    assert_eq!(taken.len(), ENQUEUE_JOBS_MAX);
    assert_eq!(
        scene.queue("q").await.counts.of(JobState::Ready),
        ENQUEUE_JOBS_MAX as u64
    );
}

/// A batch with too many bytes is misuse as well.
pub async fn too_many_bytes_at_once_are_misuse(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let large =
        |n: usize| NewJob::from(job("q", &n.to_string()).payload(vec![b'1'; PAYLOAD_BYTES_MAX]));
    let fitting = ENQUEUE_BYTES_MAX / PAYLOAD_BYTES_MAX;
    let refused = scene
        .store
        .enqueue((0..=fitting).map(large).collect(), scene.now)
        .await;
    assert!(
        matches!(refused, Err(StoreError::Misuse { .. })),
        "{refused:?}"
    );
    let taken = scene
        .store
        .enqueue((0..fitting).map(large).collect(), scene.now)
        .await;
    assert_eq!(taken, Ok(vec![EnqueueOutcome::Inserted; fitting]));
}

/// A job that would wait for more than ten years is misuse: the rest of its batch is not enqueued
/// either.
pub async fn a_job_too_far_ahead_is_misuse(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let last = scene.now.after(DELAY_MAX);
    let late = job("q", "late").at(last.after(Span::micros(1)));
    let jobs = vec![job("q", "sound").into(), late.into()];
    let refused = scene.store.enqueue(jobs, scene.now).await;
    assert!(
        matches!(refused, Err(StoreError::Misuse { .. })),
        "{refused:?}"
    );
    assert_eq!(scene.store.queues(scene.now).await, Ok(Vec::new()));
    let taken = scene.enqueue([job("q", "late").at(last)]).await;
    assert_eq!(taken, [EnqueueOutcome::Inserted]);
}

/// Within one process no hint is lost, not even one sent before anyone waited for it.
pub async fn a_hint_arrives_after_an_enqueue(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let mut hints = scene.store.watch();
    scene.insert([job("q", "a")]).await;
    let hint = tokio::time::timeout(Duration::from_mins(1), hints.next()).await;
    assert!(hint.is_ok(), "no hint came after an enqueue");
}
