use super::*;
use crate::dead::ImportedDeadLetter;
use backstop_core::failure::{ErrorReport, FailureCause, FailureHistory};
use backstop_core::job_options::JobOptions;
use backstop_core::lease::WorkerName;
use backstop_core::{Payload, RetryPolicy, Span};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

pub(crate) fn at(secs: i64) -> Time {
    Time::from_millis(1_000 * secs)
}

pub(crate) fn failure(
    secs: i64,
    attempt: u32,
    message: &str,
    retry_secs: Option<i64>,
) -> FailureRecord {
    let error = ErrorReport {
        error_type: Some("Timeout".to_owned()),
        ..ErrorReport::message(message)
    };
    let failure = FailureRecord::new(
        at(secs),
        attempt,
        FailureCause::Failed,
        &WorkerName::new("w"),
        error,
    );
    FailureRecord {
        retry_in: retry_secs.map(Span::secs),
        ..failure
    }
}

/// A dead job with these failures.
pub(crate) fn job(payload: &str, failures: &[FailureRecord]) -> Job {
    let history = failures
        .iter()
        .cloned()
        .fold(FailureHistory::default(), |history, failure| {
            history.with_failure(failure)
        });
    Job {
        id: JobId::named("a"),
        queue: QueueName::new("q").unwrap(),
        kind: Kind::new("k").unwrap(),
        state: JobState::Dead,
        payload: Payload::from_stored(payload.as_bytes().to_vec()),
        priority: Priority::High,
        attempt: 2,
        lost_leases: 1,
        requeues: 3,
        run_at: at(5),
        inserted_at: at(1),
        finished_at: Some(at(20)),
        unique_key: Some(UniqueKey::new("u").unwrap()),
        options: JobOptions::encode(Some(&RetryPolicy::default()), Some(TRACE.parse().unwrap())),
        history,
        reason: Some(EndReason::AttemptsExhausted),
        held_by: None,
    }
}

fn letter(job: &Job) -> DeadLetter {
    DeadLetter::new(job, Some(3), &Redaction::default())
}

#[test]
fn a_letter_has_its_shape() {
    let letter = letter(&job(
        "{\"n\":1.50}",
        &[
            failure(10, 1, "boom", Some(2)),
            failure(20, 2, "boom 2", None),
        ],
    ));
    let text = serde_json::to_string(&letter).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for key in [
        "original_job",
        "error",
        "attempt_count",
        "first_failed_at",
        "last_failed_at",
        "queue",
        "error_type",
        "stack_trace",
        "http_status",
        "response_body",
        "retry_delays",
        "context",
        "id",
        "kind",
        "fingerprint",
        "requeues",
        "reason",
    ] {
        assert!(value.get(key).is_some(), "{key} is missing: {text}");
    }
    assert_eq!(value["retry_delays"], serde_json::json!([2.0]));
    assert_eq!(
        (&value["first_failed_at"], &value["last_failed_at"]),
        (
            &"1970-01-01T00:00:10Z".into(),
            &"1970-01-01T00:00:20Z".into()
        )
    );
    assert_eq!(
        (&value["error"], &value["attempt_count"]),
        (&"boom 2".into(), &2.into())
    );
    assert!(
        text.contains(r#""payload":{"n":1.50}"#),
        "as it went in: {text}"
    );
}

#[test]
fn without_words_the_error_is_unknown_and_without_waits_there_are_none() {
    let mut wordless = failure(20, 1, "x", None);
    wordless.error.message = " ".to_owned();
    for failures in [&[][..], &[wordless]] {
        let letter = letter(&job("1", failures));
        assert_eq!(
            (letter.error.as_str(), letter.retry_delays),
            ("Unknown error", None)
        );
        assert_eq!(letter.first_failed_at, Some(at(20)));
    }
}

#[test]
fn a_death_by_overflow_says_so_and_keeps_its_history() {
    let mut job = job("1", &[failure(10, 1, "boom", Some(2))]);
    job.reason = Some(EndReason::Overflow);
    let letter = letter(&job);
    assert!(
        letter.error.contains("the queue was full"),
        "{}",
        letter.error
    );
    assert_eq!(letter.error_type.as_deref(), Some("Overflow"));
    assert_eq!(letter.original_job.errors.len(), 1);
    assert_eq!(letter.first_failed_at, Some(at(10)));
}

#[test]
fn waits_are_those_since_the_last_requeue() {
    let first_life = [
        failure(1, 1, "a", Some(1)),
        failure(2, 2, "b", Some(2)),
        failure(3, 3, "c", None),
    ];
    let check = |next: &[FailureRecord], expected: &[f64]| {
        let failures: Vec<FailureRecord> = first_life.iter().chain(next).cloned().collect();
        assert_eq!(delays(&failures), expected);
    };
    check(&[], &[1.0, 2.0]);
    check(&[failure(4, 1, "d", None)], &[]);
    check(
        &[failure(4, 1, "d", Some(7)), failure(5, 2, "e", None)],
        &[7.0],
    );
}

#[test]
fn errors_are_redacted_and_the_payload_is_whole() {
    let letter = letter(&job(
        r#"{"password":"hunter2"}"#,
        &[failure(1, 1, "token=abc123 refused", None)],
    ));
    let text = serde_json::to_string(&letter).unwrap();
    assert!(
        text.contains("hunter2") && !text.contains("abc123"),
        "{text}"
    );
    assert_eq!(
        (
            letter.error.as_str(),
            &letter.original_job.errors[0].error.message
        ),
        ("token=[redacted] refused", &letter.error)
    );
}

#[test]
fn what_is_exported_comes_back_as_it_was() {
    for payload in ["{\"n\": 1.0, \"n\":1e2 }", " [1,\r\n 2]\n", "\"\\n\""] {
        let job = job(
            payload,
            &[
                failure(10, 1, "boom", Some(2)),
                failure(20, 2, "boom 2", None),
            ],
        );
        let line = serde_json::to_string(&letter(&job)).unwrap();
        assert!(!line.contains('\n'), "one line: {line}");
        let ImportedDeadLetter(burial) = ImportedDeadLetter::read(line.as_bytes(), at(99)).unwrap();
        assert_eq!(burial.job.payload.as_bytes(), payload.as_bytes());
        assert_eq!(
            (burial.job.id, &burial.job.queue, &burial.job.kind),
            (job.id, &job.queue, &job.kind)
        );
        assert_eq!(
            (burial.job.priority, burial.job.run_at),
            (job.priority, Some(job.run_at))
        );
        assert_eq!(
            burial.job.unique.as_ref().map(|unique| unique.key.clone()),
            job.unique_key
        );
        assert_eq!(JobOptions::of(&burial.job), job.options);
        assert_eq!(
            (burial.attempts, burial.lost_leases, burial.requeues),
            (2, 1, 3)
        );
        assert_eq!(
            (burial.inserted_at, Some(burial.finished_at)),
            (job.inserted_at, job.finished_at)
        );
        assert_eq!(
            (Some(burial.reason), &burial.history),
            (job.reason, &job.history)
        );
        assert_eq!(Some(burial.fingerprint()), job.fingerprint());
    }
}

#[test]
fn a_letter_of_another_program_needs_little() {
    let line = r#"{"id":"order-17","queue":"q","error":"boom","attempt_count":3,
        "last_failed_at":"2026-01-01T00:00:00Z","original_job":{"payload":{"n":1}},"more":true}"#;
    let now: Time = "2026-01-02T00:00:00Z".parse().unwrap();
    let ImportedDeadLetter(burial) = ImportedDeadLetter::read(line.as_bytes(), now).unwrap();
    assert_eq!(
        (burial.job.id, burial.attempts),
        (JobId::named("order-17"), 3)
    );
    assert_eq!(burial.history.last_error(), "boom");
    assert_eq!(burial.finished_at.to_string(), "2026-01-01T00:00:00Z");
    let early: Time = "2025-01-01T00:00:00Z".parse().unwrap();
    let ImportedDeadLetter(burial) = ImportedDeadLetter::read(line.as_bytes(), early).unwrap();
    assert_eq!(burial.finished_at, early, "nothing dies in the future");
}

#[test]
fn a_line_that_is_no_letter_says_why() {
    let check = |line: &str, part: &str| {
        let error = ImportedDeadLetter::read(line.as_bytes(), at(1))
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{line}: {error}");
    };
    check("", "not a dead letter");
    check("{", "not a dead letter");
    check("{\"id\":\"a\"}", "missing field");
    check(
        r#"{"id":"a","queue":"no queue","original_job":{"payload":1}}"#,
        "not a queue name",
    );
    check(
        r#"{"id":"a","queue":"q","reason":"bored","original_job":{"payload":1}}"#,
        "`reason`: `bored`",
    );
    check(
        r#"{"id":"a","queue":"q","original_job":{"id":"b","payload":1}}"#,
        "`id`: is another",
    );
    check(
        r#"{"id":"a","queue":"q","original_job":{"queue":"p","payload":1}}"#,
        "`queue`: is another",
    );
    check(
        r#"{"id":"a","queue":"q","original_job":{"payload":1,"payload_hex":"7"}}"#,
        "not hexadecimal",
    );
    check(
        r#"{"id":"a","queue":"q","original_job":{"payload":1,"payload_hex":"ff"}}"#,
        "`payload`: the payload is not JSON",
    );
    check(
        r#"{"id":"a","queue":"q","original_job":{"payload":1,"unique_key":""}}"#,
        "`unique_key`",
    );
    check(
        r#"{"id":"a","queue":"q","original_job":{"payload":1,"retry":{"kind":"x"}}}"#,
        "`retry`",
    );
}
