use super::*;
use crate::operate::search_json;
use crate::testing::{TestBackstop, start};
use backstop_core::amend::AmendAction;
use backstop_core::lease::LeaseNumber;
use backstop_core::limits::ENQUEUE_JOBS_MAX;
use backstop_core::plan::QueueQuota;
use backstop_core::port::Claim;
use backstop_core::{JobId, Kind, NewJob, QueueName, Span};
use std::collections::BTreeSet;

fn text(text: &str) -> SearchText {
    text.parse().unwrap()
}

fn check(payload: &str, searched: &str, is_found: bool) {
    let payload = Payload::from_stored(payload.as_bytes().to_vec());
    assert_eq!(
        text(searched).is_in(&payload, &Redaction::default()),
        is_found,
        "{searched} in {payload:?}"
    );
}

#[test]
fn a_part_of_what_is_shown_is_found_in_whatever_case() {
    let payload = r#"{"to":"Ada@Example.org","n":17}"#;
    for found in [
        "ada@example",
        "ADA",
        "\"n\":17",
        "{\"to\"",
        "org\",",
        payload,
    ] {
        check(payload, found, true);
    }
    for missing in ["ada@example.com", "n: 17", "18", "a  b"] {
        check(payload, missing, false);
    }
    check("plain words, ÄÖÜ", "äö", true);
    check(r#"{"a":"\u00e4"}"#, "ä", false);
    check(r#"{"a":"\u00e4"}"#, "\\u00E4", true);
}

#[test]
fn what_is_hidden_is_not_found_by_trying() {
    let payload = r#"{"user":"ada","password":"hunter2","deep":[{"api_key":"k-123"}]}"#;
    for hidden in [
        "hunter2",
        "h",
        "unter",
        "k-1",
        "\"hunter2\"",
        "password\":\"h",
    ] {
        // A letter that stands elsewhere too says nothing about the secret.
        let is_elsewhere = payload
            .replace("hunter2", "")
            .replace("k-123", "")
            .contains(hidden);
        check(payload, hidden, is_elsewhere);
    }
    check(payload, "password\":\"[redacted]", true);
    check("login token=abc123 failed", "abc123", false);
    check("login token=abc123 failed", "token=", true);
}

#[test]
fn what_is_known_to_be_secret_is_hidden_wherever_it_stands() {
    let payload = Payload::from_stored(br#"{"pin":1234}"#.to_vec());
    assert!(text("1234").is_in(&payload, &Redaction::default()));
    assert!(!text("1234").is_in(&payload, &Redaction::of(["pin"])));
}

#[test]
fn a_text_says_something_and_not_too_much() {
    assert_eq!("".parse::<SearchText>(), Err(InvalidSearchText::Empty));
    assert_eq!(" \t ".parse::<SearchText>(), Err(InvalidSearchText::Empty));
    assert_eq!(
        text("  ada lovelace ").as_str(),
        "ada lovelace",
        "on every surface alike"
    );
    assert_eq!(
        "ä".repeat(SEARCH_CHARS_MAX + 1).parse::<SearchText>(),
        Err(InvalidSearchText::TooLong)
    );
    let longest = "Ä".repeat(SEARCH_CHARS_MAX);
    assert_eq!(text(&longest).as_str(), longest);
}

/// So many jobs of queue `q`, every tenth of which is for ada.
async fn given(count: usize) -> TestBackstop {
    let (test, queue, kind) = (
        start(),
        QueueName::new("q").unwrap(),
        Kind::new("k").unwrap(),
    );
    for from in (0..count).step_by(ENQUEUE_JOBS_MAX) {
        let job = |n: usize| {
            let who = if n.is_multiple_of(10) { "ada" } else { "bob" };
            let payload = Payload::json(format!(r#"{{"to":"{who}","n":{n}}}"#)).unwrap();
            NewJob::new(
                JobId::named(&n.to_string()),
                queue.clone(),
                kind.clone(),
                payload,
            )
        };
        let jobs = (from..count.min(from + ENQUEUE_JOBS_MAX))
            .map(job)
            .collect();
        test.backstop
            .store()
            .enqueue(jobs, test.backstop.now())
            .await
            .unwrap();
    }
    test
}

fn for_ada(state: Option<JobState>) -> JobSearch {
    JobSearch {
        filter: Filter {
            state,
            ..Filter::default()
        },
        text: Some(text("\"ada\"")),
        worker: None,
    }
}

#[tokio::test]
async fn pages_bring_each_job_that_fits_once_and_no_other() {
    let test = given(95).await;
    for limit in [1, 3, 50] {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = test
                .backstop
                .search(&for_ada(None), &Redaction::default(), cursor, limit)
                .await
                .unwrap();
            assert!(page.jobs.len() <= limit);
            found.extend(page.jobs.into_iter().map(|job| job.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let expected: BTreeSet<JobId> = (0..95)
            .step_by(10)
            .map(|n| JobId::named(&n.to_string()))
            .collect();
        assert_eq!(
            (found.len(), found.into_iter().collect()),
            (expected.len(), expected),
            "{limit}"
        );
    }
}

struct Nobody;

impl JobPredicate for Nobody {
    const LOOK_FOR: Duration = Duration::from_millis(50);
    const LOOKS_MAX: usize = 1_000;

    fn fits(&self, _job: &Job) -> bool {
        false
    }
}

// Time stands still here: a page ends by what it looked at.
#[tokio::test(start_paused = true)]
async fn a_page_looks_at_a_bounded_number_of_jobs_and_says_where_to_go_on() {
    let test = given(1_500).await;
    let look = async |cursor| {
        find_jobs(
            &test.backstop,
            &Filter::default(),
            ListOrder::Newest,
            cursor,
            50,
            &Nobody,
        )
        .await
        .unwrap()
    };
    let first = look(None).await;
    assert!(first.jobs.is_empty() && first.next.is_some());
    let second = look(first.next).await;
    assert!(second.jobs.is_empty() && second.next.is_none());
}

struct Everybody;

impl JobPredicate for Everybody {
    const LOOK_FOR: Duration = Duration::from_hours(1);

    fn fits(&self, _job: &Job) -> bool {
        true
    }

    fn lets_all_through(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_large_jobs_ends_at_a_few_megabytes_and_says_where_to_go_on() {
    let test = start();
    let text = "x".repeat(900_000);
    for n in 0..20 {
        let draft = test.backstop.draft("large").json(&text);
        draft.id(&n.to_string()).push().await.unwrap();
    }
    let (mut cursor, mut shown) = (None, 0);
    loop {
        let all = Filter::default();
        let order = ListOrder::Newest;
        let page = find_jobs(&test.backstop, &all, order, cursor, 1_000, &Everybody);
        let page = page.await.unwrap();
        let bytes: usize = page.jobs.iter().map(page_bytes).sum();
        assert!(
            bytes <= PAGE_BYTES_MAX + PAGE_BYTES_MAX / 2,
            "{bytes} bytes"
        );
        shown += page.jobs.len();
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(shown, 20);
}

#[test]
fn a_call_brings_no_more_than_a_few_megabytes_once_payloads_are_known() {
    let check = |size, is_all_fitting, largest, missing, expected| {
        assert_eq!(
            ReadSizer {
                size,
                is_all_fitting,
                largest
            }
            .next(missing),
            expected,
            "{size} {largest} {missing}"
        );
    };
    // Small payloads, few of which fit: more and more at once.
    check(READ_FIRST, false, 100, 50, 4 * READ_FIRST);
    check(READ_MAX, false, 100, 50, READ_MAX);
    // All fit: no more than are wanted.
    check(READ_FIRST, true, 100, 5, 5);
    check(READ_FIRST, true, 100, 1_000, 4 * READ_FIRST);
    check(READ_MAX, true, 100, 1_000, READ_MAX);
    // Large ones: fewer, whatever was asked for before.
    check(READ_MAX, false, 1 << 20, 50, 4);
    check(READ_FIRST, true, 1 << 20, 1_000, 4);
    check(READ_MAX, false, 100 << 20, 50, 1);
    // And more again behind them.
    check(4, false, 100, 50, 16);
}

#[tokio::test]
async fn running_jobs_are_found_by_the_worker_that_holds_them() {
    let test = given(6).await;
    for (number, worker) in [(1, "one"), (2, "two")] {
        let claim = Claim {
            number: LeaseNumber::draw(number),
            worker: WorkerName::new(worker),
            until: test.backstop.now().after(Span::minutes(1)),
            wants: vec![QueueQuota {
                queue: QueueName::new("q").unwrap(),
                max: 2,
            }],
        };
        assert_eq!(
            test.backstop
                .store()
                .claim(claim, test.backstop.now())
                .await
                .unwrap()
                .runs
                .len(),
            2
        );
    }
    let look = async |worker: &str, state| {
        let filter = Filter {
            state,
            ..Filter::default()
        };
        let search = JobSearch {
            filter,
            text: None,
            worker: Some(WorkerName::new(worker)),
        };
        test.backstop
            .search(&search, &Redaction::default(), None, 50)
            .await
    };
    let found = look("two", None).await.unwrap().jobs;
    assert_eq!(found.len(), 2);
    assert!(
        found
            .iter()
            .all(|job| job.held_by.as_ref().unwrap().worker.as_str() == "two")
    );
    assert!(
        look("three", Some(JobState::Running))
            .await
            .unwrap()
            .jobs
            .is_empty()
    );
    let refused = look("two", Some(JobState::Dead)).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a worker holds running jobs only"),
        "{refused}"
    );
}

#[tokio::test]
async fn what_is_found_is_changed_and_nothing_else_is() {
    let test = given(95).await;
    let changes = test.backstop.changes("ada");
    let cancelled = changes
        .amend_found(&for_ada(None), &Redaction::default(), &AmendAction::Cancel)
        .await
        .unwrap();
    assert_eq!((cancelled.count, cancelled.refused.len()), (10, 0));
    let counts = test
        .backstop
        .store()
        .queues(test.backstop.now())
        .await
        .unwrap()[0]
        .counts;
    assert_eq!(
        (counts.of(JobState::Cancelled), counts.of(JobState::Ready)),
        (10, 85)
    );
    let again = changes
        .amend_found(&for_ada(None), &Redaction::default(), &AmendAction::Cancel)
        .await
        .unwrap();
    assert_eq!(
        (again.count, again.refused.len()),
        (0, 0),
        "what cannot be cancelled does not fit"
    );
    let ready = for_ada(Some(JobState::Ready));
    assert_eq!(
        changes
            .amend_found(&ready, &Redaction::default(), &AmendAction::Delete)
            .await
            .unwrap()
            .count,
        0
    );
    let entries = test.backstop.audit("").entries(10).await.unwrap();
    let told: Vec<String> = entries
        .iter()
        .map(|entry| entry.selection.to_string())
        .collect();
    assert_eq!(
        told,
        [r#"{"matching":{"text":"\"ada\""}}"#],
        "what changed nothing is no entry"
    );
}

#[tokio::test]
async fn a_secret_selects_nothing_to_change() {
    let test = start();
    test.backstop
        .draft("q")
        .payload(r#"{"password":"hunter2"}"#)
        .push()
        .await
        .unwrap();
    let search = JobSearch {
        text: Some(text("hunter2")),
        ..JobSearch::default()
    };
    let changed = test
        .backstop
        .changes("ada")
        .amend_found(&search, &Redaction::default(), &AmendAction::Delete)
        .await
        .unwrap();
    assert_eq!(changed.count, 0);
}

#[test]
fn a_secret_that_somebody_looks_for_is_not_told_by_the_audit() {
    let search = JobSearch {
        text: Some(text("password=hunter2")),
        ..JobSearch::default()
    };
    let told = search_json(&search, &Redaction::default()).to_string();
    assert!(
        told.contains("password=") && !told.contains("hunter2"),
        "{told}"
    );
}
