//! What an operation does, what follows, and where its data goes; on virtual time.

use backstop::core::amend::{AmendAction, Selection};
use backstop::core::failure::{ErrorReport, FailureCause};
use backstop::core::port::{AmendJobsRequest, OperatorStore};
use backstop::core::verdict::{EndReason, FailureAdvice};
use backstop::core::{Job, JobState};
use backstop::testing::VirtualClock;
use backstop::{
    Backstop, GivenUpData, JobId, RandomSource, RetryPolicy, RetryResult, Run, RunError, Span,
};
use backstop_memory::MemoryStore;
use backstop_testkit::flaky::{Fault, Flaky, Odds};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

struct Setup {
    store: Arc<MemoryStore>,
    flaky: Arc<Flaky>,
    backstop: Backstop,
}

fn setup() -> Setup {
    let store = Arc::new(MemoryStore::new());
    let flaky = Arc::new(Flaky::new(Arc::<MemoryStore>::clone(&store), 1));
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(Arc::<Flaky>::clone(&flaky), clock, RandomSource::seeded(7));
    Setup {
        store,
        flaky,
        backstop,
    }
}

impl Setup {
    async fn found(&self, id: JobId) -> Option<Job> {
        self.store
            .job(id, self.backstop.now())
            .await
            .expect("the store answers")
    }
}

/// Three runs, after exactly 1 s and 2 s.
fn even() -> RetryPolicy {
    let json =
        br#"{"kind":"exponential","base":"1s","factor":2,"cap":"30s","jitter":"none","max_attempts":3}"#;
    RetryPolicy::from_json(json).expect("a policy")
}

/// What one run does, by its word.
fn act(word: &str) -> Result<&'static str, RunError> {
    match word {
        "ok" => Ok("value"),
        "fail" => Err(RunError::retry("boom")),
        "after-7s" => Err(RunError::retry_after(Span::secs(7), "busy")),
        "dead" => Err(RunError::dead("never")),
        "discard" => Err(RunError::discard("not worth it")),
        "cancel" => Err(RunError::cancel("not wanted")),
        "snooze-9s" => Err(RunError::snooze(Span::secs(9))),
        _ => std::panic::resume_unwind(Box::new("said the operation")),
    }
}

async fn run(backstop: &Backstop, script: &str) -> RetryResult<&'static str> {
    let words: Vec<String> = script.split(' ').map(str::to_owned).collect();
    let (words, ran) = (&words, &AtomicUsize::new(0));
    let operation = |_| async move { act(&words[ran.fetch_add(1, Ordering::Relaxed)]) };
    let retried = backstop
        .with_retry("q", &json!({"n": 1}))
        .policy(even())
        .run(operation)
        .await
        .expect("it runs");
    assert_eq!(
        ran.load(Ordering::Relaxed),
        words.len(),
        "{script}: as many runs as were to be"
    );
    retried
}

async fn check(script: &str, expected: &str) {
    let setup = setup();
    let started = Instant::now();
    let retried = run(&setup.backstop, script).await;
    let waited = Span::from(started.elapsed());
    let found = setup.found(retried.id).await;
    let told = match &retried.outcome {
        Ok(value) => (*value).to_owned(),
        Err(given_up) => {
            let went = match &given_up.data {
                GivenUpData::Buried(id) if *id == retried.id => "buried",
                GivenUpData::Discarded => "discarded",
                other => unreachable!("{script}: {other:?}"),
            };
            format!("{}, {}, {went}", given_up.reason, given_up.error.message)
        }
    };
    assert_eq!(
        format!("{} of {waited}: {told}", retried.attempts),
        expected,
        "{script}"
    );
    assert_eq!(found.is_some(), told.ends_with("buried"), "{script}");
}

#[tokio::test(start_paused = true)]
async fn what_a_run_does_decides_what_follows() {
    check("ok", "1 of 0s: value").await;
    check("fail ok", "2 of 1s: value").await;
    check("fail fail ok", "3 of 3s: value").await;
    check(
        "fail fail fail",
        "3 of 3s: attempts_exhausted, boom, buried",
    )
    .await;
    check("dead", "1 of 0s: rejected, never, buried").await;
    check("fail dead", "2 of 1s: rejected, never, buried").await;
    check("after-7s ok", "2 of 7s: value").await;
    check(
        "after-7s after-7s after-7s",
        "3 of 14s: attempts_exhausted, busy, buried",
    )
    .await;
    check("discard", "1 of 0s: discarded, not worth it, discarded").await;
    check("cancel", "1 of 0s: unwanted, not wanted, discarded").await;
    check("snooze-9s snooze-9s ok", "1 of 18s: value").await;
    check(
        "fail snooze-9s fail fail",
        "3 of 12s: attempts_exhausted, boom, buried",
    )
    .await;
    check("panic ok", "2 of 1s: value").await;
    check(
        "panic panic panic",
        "3 of 3s: attempts_exhausted, said the operation, buried",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_usual_policy_is_three_runs_and_waits_with_jitter() {
    let setup = setup();
    let started = Instant::now();
    let fails = |_| async { Err::<(), _>(RunError::retry("boom")) };
    let retried = setup.backstop.with_retry("q", &1).run(fails).await.unwrap();
    assert_eq!(retried.attempts, 3);
    let waited = started.elapsed().as_secs_f64();
    assert!((3.0..3.76).contains(&waited), "{waited}");
    let failures = setup.found(retried.id).await.unwrap().history.failures();
    let waits: Vec<_> = failures.iter().map(|failure| failure.retry_in).collect();
    assert!(
        waits[0] > Some(Span::secs(1)) && waits[1] > Some(Span::secs(2)) && waits[2].is_none(),
        "{waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_has_the_data_and_the_whole_history() {
    let setup = setup();
    let before = setup.backstop.now();
    let (data, report) = (
        json!({"file": "a.jpg", "n": [1, 2]}),
        ErrorReport {
            http_status: Some(503),
            ..ErrorReport::message("")
        },
    );
    let fails = |attempt| {
        let report = report.clone();
        async move {
            if attempt == 1 {
                panic!("first")
            } else {
                Err::<(), _>(RunError::with_advice(report, FailureAdvice::Retry))
            }
        }
    };
    let operation = setup
        .backstop
        .with_retry("detection_queue", &data)
        .kind("Detect")
        .policy(even());
    let retried = operation.run(fails).await.unwrap();
    let job = setup.found(retried.id).await.unwrap();
    assert_eq!(
        (job.state, job.attempt, job.reason),
        (JobState::Dead, 3, Some(EndReason::AttemptsExhausted))
    );
    assert_eq!(
        (job.queue.as_str(), job.kind.as_str()),
        ("detection_queue", "Detect")
    );
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(job.payload.as_bytes()).unwrap(),
        data
    );
    assert_eq!(
        (job.inserted_at, job.finished_at),
        (before, Some(before.after(Span::secs(3))))
    );
    assert_eq!(job.options.retry(), Some(even()));
    let failures = job.history.failures();
    let told: Vec<_> = failures
        .iter()
        .map(|failure| (failure.attempt, failure.cause, failure.retry_in))
        .collect();
    let wait = |secs| Some(Span::secs(secs));
    assert_eq!(
        told,
        [
            (1, FailureCause::Panicked, wait(1)),
            (2, FailureCause::Failed, wait(2)),
            (3, FailureCause::Failed, None)
        ]
    );
    assert_eq!(failures[2].error.http_status, Some(503));
    let context = failures[2].context.as_ref().unwrap();
    assert!(
        context.version.is_some() && context.worker.as_ref().unwrap().ends_with("with_retry"),
        "{context:?}"
    );
    // An error without words has the same name for the caller and in the store.
    let given_up = retried.outcome.unwrap_err();
    assert_eq!(
        (
            given_up.error.message.as_str(),
            failures[2].error.message.as_str()
        ),
        ("Unknown error", "Unknown error")
    );
}

#[tokio::test(start_paused = true)]
async fn a_requeued_dead_letter_is_work_for_a_worker() {
    let setup = setup();
    let id = run(&setup.backstop, "dead").await.id;
    let selection = Selection::Ids(vec![id]);
    let amendment = AmendJobsRequest {
        selection,
        action: AmendAction::Retry,
        only: None,
        cursor: None,
        max: 1,
    };
    setup
        .store
        .amend(amendment, setup.backstop.now())
        .await
        .unwrap();
    let done = setup
        .backstop
        .worker()
        .handle_raw("q", |_: Run| async { Ok(()) })
        .drain()
        .await
        .unwrap();
    assert_eq!(done.done, 1);
}

#[tokio::test(start_paused = true)]
async fn an_id_the_store_knows_adds_nothing() {
    let setup = setup();
    let pushed = setup
        .backstop
        .draft("q")
        .id("order-17")
        .push()
        .await
        .unwrap();
    let fails = |_| async { Err::<(), _>(RunError::dead("never")) };
    let retried = setup
        .backstop
        .with_retry("q", &17)
        .id("order-17")
        .run(fails)
        .await
        .unwrap();
    assert_eq!(
        retried.outcome.unwrap_err().data,
        GivenUpData::Known(pushed.id)
    );
    assert_eq!(setup.found(pushed.id).await.unwrap().state, JobState::Ready);
}

#[tokio::test(start_paused = true)]
async fn an_operation_grows_too_old() {
    let setup = setup();
    let policy =
        br#"{"kind":"constant","every":"10s","max_age":"25s","max_attempts":100,"jitter":"none"}"#;
    let fails = |_| async { Err::<(), _>(RunError::retry("boom")) };
    let operation = setup
        .backstop
        .with_retry("q", &1)
        .policy(RetryPolicy::from_json(policy).unwrap());
    let retried = operation.run(fails).await.unwrap();
    assert_eq!(
        (retried.attempts, retried.outcome.unwrap_err().reason),
        (4, EndReason::MaxAge)
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_code_decides_and_is_not_stored() {
    let setup = setup();
    let policy = RetryPolicy::custom(|failures, _, _| (failures < 2).then_some(Span::secs(5)));
    let fails = |_| async { Err::<(), _>(RunError::retry("boom")) };
    let retried = setup
        .backstop
        .with_retry("q", &1)
        .policy(policy)
        .run(fails)
        .await
        .unwrap();
    assert_eq!(retried.attempts, 2);
    assert_eq!(setup.found(retried.id).await.unwrap().options.retry(), None);
}

#[tokio::test]
async fn what_cannot_be_a_dead_letter_is_not_begun() {
    let setup = setup();
    let never = |_| async { unreachable!("it must not run") };
    let refused = |operation: backstop::WithRetry| async move {
        operation
            .run::<(), _, _>(never)
            .await
            .unwrap_err()
            .to_string()
    };
    let backstop = &setup.backstop;
    assert!(
        refused(backstop.with_retry("no queue", &1))
            .await
            .contains("not a queue name")
    );
    assert!(
        refused(backstop.with_retry("q", &1).kind(""))
            .await
            .contains("a kind has")
    );
    assert!(
        refused(backstop.with_retry("q", &"x".repeat(2 << 20)))
            .await
            .contains("bytes")
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_while_it_waits_it_is_called_off() {
    let setup = setup();
    let fails = |_| async { Err::<(), _>(RunError::retry("boom")) };
    let operation = setup
        .backstop
        .with_retry("q", &1)
        .id("a")
        .policy(even())
        .run(fails);
    assert!(
        tokio::time::timeout(Duration::from_millis(2_500), operation)
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(setup.found(JobId::named("a")).await, None);
}

#[tokio::test(start_paused = true)]
async fn dropped_once_it_is_given_up_it_is_buried_all_the_same() {
    let setup = setup();
    setup.flaky.set_odds(Odds {
        delay_max: Duration::from_secs(5),
        ..Odds::default()
    });
    setup.flaky.next_call(Fault::DelayBefore);
    let fails = |_| async { Err::<(), _>(RunError::dead("never")) };
    let operation = setup.backstop.with_retry("q", &1).id("a").run(fails);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), operation)
            .await
            .is_err()
    );
    assert_eq!(setup.found(JobId::named("a")).await, None);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(
        setup.found(JobId::named("a")).await.unwrap().state,
        JobState::Dead
    );
}
