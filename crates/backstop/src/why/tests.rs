use super::*;
use backstop_core::failure::{ErrorReport, FailureCause, FailureHistory, FailureRecord};
use backstop_core::job::Claimant;
use backstop_core::job_options::JobOptions;
use backstop_core::port::{QueueTotals, StateCounts};
use backstop_core::{JobId, Kind, Payload, Priority, QueueBounds, QueueName};

const NOW: Time = Time::from_millis(1_767_225_600_000);

fn queue_name() -> QueueName {
    QueueName::new("emails").unwrap()
}

fn at(secs: i64) -> Time {
    if secs < 0 {
        NOW.before(Span::secs(-secs))
    } else {
        NOW.after(Span::secs(secs))
    }
}

fn job(state: JobState, run_in_secs: i64) -> Job {
    Job {
        id: JobId::named("one"),
        queue: queue_name(),
        kind: Kind::default(),
        state,
        payload: Payload::from_stored(&b"null"[..]),
        priority: Priority::Normal,
        attempt: 1,
        lost_leases: 0,
        requeues: 0,
        run_at: at(run_in_secs),
        inserted_at: at(-60),
        finished_at: state.is_final().then_some(NOW),
        unique_key: None,
        options: JobOptions::default(),
        history: FailureHistory::default(),
        reason: None,
        held_by: None,
    }
}

fn failed(mut job: Job) -> Job {
    let error = ErrorReport::message("no route");
    job.history = FailureHistory::default().with_failure(FailureRecord::new(
        NOW,
        1,
        FailureCause::Failed,
        &WorkerName::new("w"),
        error,
    ));
    job
}

fn held(until_secs: i64) -> Job {
    let claimant = Claimant {
        worker: WorkerName::new("host/1"),
        since: at(-7),
        until: at(until_secs),
    };
    Job {
        held_by: Some(claimant),
        ..job(JobState::Running, 0)
    }
}

fn ended(state: JobState, reason: EndReason) -> Job {
    Job {
        reason: Some(reason),
        ..failed(job(state, 0))
    }
}

#[derive(Clone, Copy)]
enum Around {
    NobodyWorks,
    OthersWork,
    Served,
    Paused,
}

fn answer(job: Option<&Job>, around: Around) -> JobExplanation {
    answer_limited(job, around, None)
}

fn answer_limited(job: Option<&Job>, around: Around, rate: Option<&RateStatus>) -> JobExplanation {
    let mut counts = StateCounts::default();
    *counts.of_mut(JobState::Ready) = 5;
    let gate = if matches!(around, Around::Paused) {
        QueueState::Paused
    } else {
        QueueState::Active
    };
    let queue = QueueStatus {
        name: queue_name(),
        state: gate,
        counts,
        totals: QueueTotals::default(),
        next_ready: None,
        bounds: QueueBounds::default(),
    };
    let serves = |queue: &str| WorkerStatus {
        name: WorkerName::new("w"),
        queues: vec![QueueName::new(queue).unwrap()],
        seen_at: NOW,
        running: 8,
    };
    let workers = match around {
        Around::NobodyWorks => vec![],
        Around::OthersWork => vec![serves("other")],
        Around::Served | Around::Paused => vec![serves("other"), serves("emails")],
    };
    let queue = Some(&queue);
    let facts = JobFacts {
        job,
        queue,
        workers: &workers,
        rate,
        max_attempts: Some(3),
        ..FACTS
    };
    explain_job(facts)
}

/// Nothing is known.
const FACTS: JobFacts<'static> = JobFacts {
    quiet: &[],
    job: None,
    queue: None,
    workers: &[],
    holder_seen_at: None,
    breakers: &[],
    rate: None,
    workers_without_handler: &[],
    key_holder: None,
    record: None,
    max_attempts: None,
    now: NOW,
};

fn check(job: &Job, around: Around, gate: &str, sentence: &str) {
    let why = answer(Some(job), around);
    assert_eq!((why.gate(), why.to_string().as_str()), (gate, sentence));
}

#[test]
fn a_job_that_is_not_there() {
    assert_eq!(answer(None, Around::Served), JobExplanation::NotFound);
}

#[test]
fn a_paused_queue_is_the_gate_whenever_the_job_is_due() {
    check(
        &job(JobState::Ready, 0),
        Around::Paused,
        "paused",
        "its queue is paused",
    );
    let later = "its queue is paused; besides, it is not due before 2026-01-01T00:01:00Z";
    check(
        &job(JobState::Scheduled, 60),
        Around::Paused,
        "paused",
        later,
    );
    check(
        &failed(job(JobState::Retrying, 60)),
        Around::Paused,
        "paused",
        later,
    );
}

#[test]
fn a_job_whose_time_is_yet_to_come() {
    let sentence = "it is not due before 2026-01-01T00:01:00Z";
    check(
        &job(JobState::Scheduled, 60),
        Around::NobodyWorks,
        "not_due",
        sentence,
    );
    let sentence =
        "it failed and waits for run 2 of 3, at 2026-01-01T00:00:02Z; the last error was: no route";
    check(
        &failed(job(JobState::Retrying, 2)),
        Around::Served,
        "retrying",
        sentence,
    );
}

#[test]
fn a_job_over_the_rate_limit_says_until_when() {
    let limit = RateLimit::new(5, Span::secs(60)).over(Span::secs(30));
    let full = RateStatus {
        limit,
        room_at: at(12),
        refused_at: Some(at(-10)),
    };
    let told = |job: &Job, rate: &RateStatus, around| {
        let why = answer_limited(Some(job), around, Some(rate));
        (why.gate(), why.to_string())
    };
    let text = |time| {
        format!("rate limit until {time}: its queue starts at most 5 jobs in 1m, over all workers")
    };
    let ready = job(JobState::Ready, 0);
    assert_eq!(
        told(&ready, &full, Around::Served),
        ("rate_limited", text("2026-01-01T00:00:12Z"))
    );
    assert_eq!(told(&ready, &full, Around::NobodyWorks).0, "no_worker");
    let roomy = RateStatus {
        room_at: NOW,
        ..full
    };
    assert_eq!(told(&ready, &roomy, Around::Served).0, "waiting");
    let put_off = job(JobState::Scheduled, 20);
    assert_eq!(
        told(&put_off, &roomy, Around::Served),
        ("rate_limited", text("2026-01-01T00:00:20Z"))
    );
    let check_not_due = |job: &Job, rate: &RateStatus| {
        assert_eq!(
            told(job, rate, Around::Served).0,
            "not_due",
            "{job:?} {rate:?}"
        );
    };
    check_not_due(&job(JobState::Scheduled, 3_600), &full);
    check_not_due(
        &put_off,
        &RateStatus {
            refused_at: Some(at(-3_600)),
            ..full
        },
    );
    check_not_due(
        &put_off,
        &RateStatus {
            refused_at: None,
            ..full
        },
    );
    check_not_due(
        &Job {
            inserted_at: at(-1),
            ..put_off.clone()
        },
        &full,
    );
}

#[test]
fn a_job_over_a_rate_limit_without_over_waits_until_there_is_room() {
    let limit = RateLimit::new(1, Span::minutes(1));
    let full = RateStatus {
        limit,
        room_at: at(20),
        refused_at: Some(at(-10)),
    };
    let gate =
        |job: &Job, rate: &RateStatus| answer_limited(Some(job), Around::Served, Some(rate)).gate();
    let put_off = job(JobState::Scheduled, 20);
    assert_eq!(gate(&put_off, &full), "rate_limited");
    assert_eq!(gate(&job(JobState::Scheduled, 21), &full), "not_due");
    assert_eq!(
        gate(
            &put_off,
            &RateStatus {
                refused_at: None,
                ..full
            }
        ),
        "not_due"
    );
    assert_eq!(
        gate(
            &Job {
                inserted_at: at(-1),
                ..put_off.clone()
            },
            &full
        ),
        "not_due"
    );
    let step = |job: &Job, limit| {
        let rate = RateStatus { limit, ..full };
        answer_limited(Some(job), Around::Served, Some(&rate))
            .next_step(Some(job))
            .expect("a step")
    };
    let ready = job(JobState::Ready, 0);
    assert!(step(&put_off, limit).starts_with("a higher rate_limit for emails"));
    assert!(step(&ready, limit.over(Span::secs(30))).starts_with("a higher rate_limit for emails"));
    let long = step(&put_off, limit.over(Span::secs(30)));
    assert!(
        long.starts_with("remove `over` (30s) from the rate_limit of emails"),
        "{long}"
    );
}

#[test]
fn a_ready_job_needs_a_worker_that_serves_its_queue() {
    let sentence = "it is ready, but no live worker serves its queue";
    for ready in [
        job(JobState::Ready, 0),
        job(JobState::Scheduled, -1),
        job(JobState::Retrying, 0),
    ] {
        check(&ready, Around::NobodyWorks, "no_worker", sentence);
        check(&ready, Around::OthersWork, "no_worker", sentence);
    }
    let sentence =
        "it is ready, with up to 4 jobs before it; 1 worker serving its queue, 8 jobs in hand";
    check(
        &job(JobState::Ready, 0),
        Around::Served,
        "waiting",
        sentence,
    );
}

#[test]
fn a_running_job_names_its_worker_even_in_a_paused_queue() {
    let sentence = "it is running on host/1 since 2025-12-31T23:59:53Z; the lease lasts until 2026-01-01T00:00:05Z and is extended \
                    by its beats";
    check(&held(5), Around::Served, "running", sentence);
    check(&held(5), Around::Paused, "running", sentence);
    let sentence = "worker host/1 vanished with it: its lease ended at 2025-12-31T23:59:59Z; any live worker \
                    that serves its queue runs it again within 3s of that";
    check(&held(-1), Around::NobodyWorks, "lost", sentence);
}

#[test]
fn a_job_whose_worker_is_silent_says_since_when_and_when_it_runs_again() {
    let silence = |seen_secs: i64, job: &Job| match explain_job(JobFacts {
        job: Some(job),
        holder_seen_at: Some(at(seen_secs)),
        ..FACTS
    }) {
        JobExplanation::Running { silence, .. } => silence,
        other => unreachable!("{other:?}"),
    };
    assert_eq!(silence(-5, &held(10)), None, "one heartbeat is due now");
    assert_eq!(silence(-7, &held(8)), None);
    let told = WorkerSilence {
        seen_at: at(-9),
        lasts: Span::secs(9),
        reruns_by: at(9),
    };
    assert_eq!(silence(-9, &held(6)), Some(told));
    let why = explain_job(JobFacts {
        job: Some(&held(6)),
        holder_seen_at: Some(at(-9)),
        ..FACTS
    });
    assert_eq!(
        (why.gate(), why.to_string().as_str()),
        (
            "running",
            "it is running on host/1, which was last heard of at 2025-12-31T23:59:51Z, 9s ago; if that worker stays silent, \
             the job runs again by 2026-01-01T00:00:09Z, where another worker is free"
        )
    );
    assert_eq!(why.details()["silent_since"], "2025-12-31T23:59:51Z");
    assert_eq!(why.details()["reruns_by"], "2026-01-01T00:00:09Z");
}

#[test]
fn a_job_that_lost_workers_lately_waits_for_a_place_of_its_own() {
    let lost = |hours: &[i64], job: Job| {
        let failure = |history: FailureHistory, hours: &i64| {
            let (at, worker) = (
                NOW.before(Span::hours(*hours)),
                WorkerName::new(&format!("host/{hours}")),
            );
            history.with_failure(FailureRecord::new(
                at,
                1,
                FailureCause::Lost,
                &worker,
                ErrorReport::message("vanished"),
            ))
        };
        let history = hours.iter().fold(FailureHistory::default(), failure);
        Job {
            lost_leases: u32::try_from(hours.len()).unwrap(),
            history,
            ..job
        }
    };
    let ready = lost(&[100, 20, 1], job(JobState::Ready, 0));
    let sentence = "it is ready, but 2 workers vanished with it in the last 3d, host/1 most recently, and it dies of 3; until \
                    then a worker runs one such job at a time, to learn which of them it is; 1 worker serving its queue";
    check(&ready, Around::Served, "suspect", sentence);
    check(&ready, Around::Paused, "paused", "its queue is paused");
    assert_eq!(
        answer(Some(&ready), Around::NobodyWorks).gate(),
        "no_worker"
    );
    assert_eq!(
        answer(Some(&lost(&[73], job(JobState::Ready, 0))), Around::Served).gate(),
        "waiting"
    );
    let why = answer(Some(&ready), Around::Served);
    assert_eq!(
        why.details().into_iter().collect::<serde_json::Value>(),
        serde_json::json!({ "strikes": 2, "last": "host/1", "workers": 1 })
    );
    assert!(
        why.next_step(Some(&ready))
            .unwrap()
            .contains("another worker for emails")
    );
    let sentence = "it is running on host/1 since 2025-12-31T23:59:53Z; the lease lasts until \
                    2026-01-01T00:00:05Z and is extended by its beats; 1 worker vanished with it in the last 3d, so it begins there when no other such job runs";
    check(&lost(&[1], held(5)), Around::Served, "running", sentence);
}

#[test]
fn an_ended_job_says_how() {
    check(
        &job(JobState::Done, 0),
        Around::Served,
        "done",
        "it is done, since 2026-01-01T00:00:00Z",
    );
    let sentence = "it is dead because its attempts are used up, since 2026-01-01T00:00:00Z; the last error was: no route";
    check(
        &ended(JobState::Dead, EndReason::AttemptsExhausted),
        Around::Served,
        "dead",
        sentence,
    );
    let sentence = "it was cancelled because an operator called it off, at 2026-01-01T00:00:00Z";
    check(
        &ended(JobState::Cancelled, EndReason::Operator),
        Around::Served,
        "cancelled",
        sentence,
    );
}

#[test]
fn a_queue_whose_workers_all_take_nothing_new_is_named() {
    let serves = |name: &str| WorkerStatus {
        name: WorkerName::new(name),
        queues: vec![queue_name()],
        seen_at: NOW,
        running: 0,
    };
    let both = [serves("a"), serves("b")];
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| WorkerName::new(name))
            .collect::<Vec<_>>()
    };
    let ready = job(JobState::Ready, 0);
    let told = |workers: &[WorkerStatus], quiet: &[&str], strangers: &[&str]| {
        let (quiet, strangers) = (names(quiet), names(strangers));
        explain_job(JobFacts {
            job: Some(&ready),
            workers,
            quiet: &quiet,
            workers_without_handler: &strangers,
            ..FACTS
        })
    };
    let all = told(&both, &["a", "b"], &[]);
    assert_eq!(
        (
            all.gate(),
            all.to_string().as_str(),
            all.next_step(Some(&ready)).as_deref()
        ),
        (
            "quiet",
            "it is ready, but all 2 workers that serve its queue take no new jobs: they were asked not to, or stop",
            Some("backstop worker resume a, or another worker for emails")
        )
    );
    let one = told(&both[..1], &["a"], &[]).to_string();
    assert!(
        one.starts_with("it is ready, but a, which serves its queue, takes no new jobs"),
        "{one}"
    );
    assert_eq!(told(&both, &["a"], &[]).gate(), "waiting");
    assert_eq!(
        told(&both, &["a"], &["b"]).gate(),
        "unknown_kind",
        "who knows the kind takes nothing"
    );
    assert_eq!(told(&both, &["a", "b"], &["b"]).gate(), "quiet");
    assert_eq!(told(&[], &["a"], &[]).gate(), "no_worker");
}

#[test]
fn a_kind_that_no_worker_of_the_queue_knows_is_named() {
    let serves = |name: &str| WorkerStatus {
        name: WorkerName::new(name),
        queues: vec![queue_name()],
        seen_at: NOW,
        running: 0,
    };
    let both = [serves("a"), serves("b")];
    let told = |job: &Job, workers: &[WorkerStatus], strangers: &[&str]| {
        let strangers: Vec<WorkerName> =
            strangers.iter().map(|name| WorkerName::new(name)).collect();
        explain_job(JobFacts {
            job: Some(job),
            workers,
            workers_without_handler: &strangers,
            ..FACTS
        })
    };
    let table: [(JobState, i64, &[&str], &str); 9] = [
        (JobState::Ready, 0, &["a", "b"], "unknown_kind"),
        (JobState::Ready, 0, &["a"], "waiting"),
        (JobState::Ready, 0, &[], "waiting"),
        // Given back by a stranger, for ten seconds.
        (JobState::Scheduled, 10, &["a", "b"], "unknown_kind"),
        (JobState::Retrying, 10, &["a", "b"], "unknown_kind"),
        (JobState::Scheduled, 11, &["a", "b"], "not_due"),
        (JobState::Retrying, 11, &["a", "b"], "retrying"),
        (JobState::Scheduled, 10, &["a"], "not_due"),
        (JobState::Scheduled, -1, &["a", "b"], "unknown_kind"),
    ];
    for (state, run_in_secs, strangers, gate) in table {
        let why = told(&job(state, run_in_secs), &both, strangers);
        assert_eq!(
            why.gate(),
            gate,
            "{state} in {run_in_secs} s, strangers {strangers:?}"
        );
    }
    let ready = job(JobState::Ready, 0);
    assert_eq!(
        told(&ready, &both, &["a", "b"]).to_string(),
        "it is of kind `default`, and none of the 2 workers that serve its queue has a handler for that"
    );
    assert_eq!(
        told(&ready, &both[..1], &["a"]).to_string(),
        "it is of kind `default`, and the worker that serves its queue has no handler for that"
    );
}

#[test]
fn a_job_that_ended_names_the_twin_that_keeps_it_from_coming_back() {
    let twin = JobId::named("twin");
    let told = |job: &Job, holder: Option<UniqueKeyHolder>| {
        explain_job(JobFacts {
            job: Some(job),
            key_holder: holder,
            ..FACTS
        })
    };
    let keyed = |job: Job| Job {
        unique_key: Some(UniqueKey::new("order-7").unwrap()),
        ..job
    };
    let holder = |job, state| Some(UniqueKeyHolder { job, state });
    let dead = keyed(ended(JobState::Dead, EndReason::Rejected));
    let table = [
        (
            dead.clone(),
            holder(twin, Some(JobState::Running)),
            "unique_twin",
        ),
        (
            dead.clone(),
            holder(twin, Some(JobState::Scheduled)),
            "unique_twin",
        ),
        (
            keyed(ended(JobState::Cancelled, EndReason::Operator)),
            holder(twin, Some(JobState::Ready)),
            "unique_twin",
        ),
        // A holder that has ended, or is gone, or is the job itself, keeps nobody.
        (dead.clone(), holder(twin, Some(JobState::Done)), "dead"),
        (dead.clone(), holder(twin, None), "dead"),
        (dead.clone(), holder(dead.id, Some(JobState::Ready)), "dead"),
        (dead.clone(), None, "dead"),
        (
            ended(JobState::Dead, EndReason::Rejected),
            holder(twin, Some(JobState::Ready)),
            "dead",
        ),
        (
            keyed(job(JobState::Done, 0)),
            holder(twin, Some(JobState::Ready)),
            "done",
        ),
    ];
    for (job, holder, gate) in table {
        assert_eq!(told(&job, holder).gate(), gate, "{} {holder:?}", job.state);
    }
    let why = told(&dead, holder(twin, Some(JobState::Running)));
    assert_eq!(
        why.to_string(),
        format!(
            "it is dead because its handler said that no other try can help, since 2026-01-01T00:00:00Z; the last error was: \
             no route; it cannot come back before job {twin} ends, which is running and has its unique key `order-7`"
        )
    );
    assert_eq!(
        why.next_step(Some(&dead)),
        Some(format!("backstop job why {twin}"))
    );
    assert_eq!(why.details()["twin"], serde_json::json!(twin));
}

#[test]
fn a_dead_record_of_a_stream_says_whether_its_key_stands_still() {
    let dead = ended(JobState::Dead, EndReason::AttemptsExhausted);
    let told = |halted| {
        let record = DeadRecord {
            stream: StreamName::new("uptime").unwrap(),
            key: StreamKey::new("site-7").unwrap(),
            position: 120,
            halted,
        };
        explain_job(JobFacts {
            job: Some(&dead),
            record: Some(&record),
            ..FACTS
        })
    };
    let halted = told(Some(3));
    assert_eq!(
        halted.to_string(),
        "it is dead because its attempts are used up, since 2026-01-01T00:00:00Z; it is the record at 120 of key site-7 \
         in stream uptime, which stands still there with 3 records behind it; the last error was: no route"
    );
    assert_eq!(
        halted.next_step(Some(&dead)),
        Some("backstop stream resume [--skip] uptime site-7".to_owned())
    );
    assert!(told(None).to_string().contains("which went on past it"));
    assert_eq!(
        told(None).next_step(Some(&dead)),
        Some(format!("backstop dead requeue {}", dead.id))
    );
}

#[test]
fn every_answer_has_its_fields() {
    let fields = |job: &Job, around| {
        let why = answer(Some(job), around);
        serde_json::to_string(&why.details()).unwrap()
    };
    assert_eq!(
        fields(&job(JobState::Scheduled, 60), Around::Served),
        r#"{"at":"2026-01-01T00:01:00Z"}"#
    );
    assert_eq!(
        fields(&job(JobState::Ready, 0), Around::Served),
        r#"{"before":4,"running":8,"workers":1}"#
    );
    assert_eq!(
        fields(&held(5), Around::Served),
        r#"{"reruns_by":null,"silent_since":null,"since":"2025-12-31T23:59:53Z","strikes":0,"until":"2026-01-01T00:00:05Z","worker":"host/1"}"#
    );
    assert_eq!(fields(&job(JobState::Ready, 0), Around::NobodyWorks), "{}");
}
