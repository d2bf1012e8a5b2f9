use super::*;
use crate::testing::{TestBackstop, start};
use backstop_core::failure::FailureHistory;
use backstop_core::lease::{LeaseNumber, LeasedRun};
use backstop_core::plan::QueueQuota;
use backstop_core::port::Claim;
use backstop_core::verdict::{EndReason, Outcome, Settlement};
use backstop_core::{QueueName, Span, WorkerName};
use std::collections::BTreeMap;

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn for_ada(state: Option<JobState>) -> JobSearch {
    let filter = Filter {
        state,
        ..Filter::default()
    };
    JobSearch {
        filter,
        text: Some("\"ada\"".parse().unwrap()),
        worker: None,
    }
}

/// So many ready jobs for ada, and as many for bob.
async fn given(count: usize) -> TestBackstop {
    let test = start();
    for n in 0..count * 2 {
        let who = if n % 2 == 0 { "ada" } else { "bob" };
        test.backstop
            .draft("q")
            .payload(format!(r#"{{"to":"{who}"}}"#))
            .push()
            .await
            .unwrap();
    }
    test
}

/// Everything that is ready, ended like this.
async fn run(test: &TestBackstop, number: u64, outcome: impl Fn(usize) -> Outcome) {
    let (store, now) = (test.backstop.store(), test.backstop.now());
    let claim = Claim {
        number: LeaseNumber::draw(number),
        worker: WorkerName::new("w"),
        until: now.after(Span::minutes(1)),
        wants: vec![QueueQuota {
            queue: queue(),
            max: 1_000,
        }],
    };
    let granted = store.claim(claim, now).await.unwrap();
    let settle = |(at, LeasedRun { lease, .. })| Settlement {
        lease,
        outcome: outcome(at),
    };
    store
        .settle(
            granted.runs.into_iter().enumerate().map(settle).collect(),
            now,
        )
        .await
        .unwrap();
}

fn retry_in(test: &TestBackstop, secs: i64) -> Outcome {
    let at = test.backstop.now().after(Span::secs(secs));
    Outcome::Retry {
        at,
        history: FailureHistory::default(),
        anew: false,
    }
}

/// Walks to the end, with something done after each step; how often each job was changed.
async fn walk(
    test: &TestBackstop,
    state: Option<JobState>,
    after: impl AsyncFn(u64),
) -> BTreeMap<JobId, usize> {
    let (mut met, mut cursor) = (BTreeMap::new(), None);
    for step in 1.. {
        assert!(step < 100, "it does not end");
        let search = for_ada(state);
        let page = test
            .backstop
            .next_job_changes(&search, &Redaction::default(), &AmendAction::Retry, cursor)
            .await
            .unwrap();
        for amendment in page.amendments {
            let Selection::Within(_, ids) = &amendment.selection else {
                panic!("{amendment:?}")
            };
            for id in ids {
                *met.entry(*id).or_default() += 1;
            }
            test.backstop
                .store()
                .amend(amendment, test.backstop.now())
                .await
                .unwrap();
        }
        after(step).await;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    met
}

#[tokio::test]
async fn a_job_that_fails_again_while_others_are_retried_is_retried_once() {
    let test = given(250).await;
    run(&test, 1, |at| {
        retry_in(&test, 60 + i64::try_from(at).unwrap())
    })
    .await;
    // The service is still down: whatever is retried fails at once, and waits behind all others.
    let fails = async |step: u64| {
        run(&test, 1 + step, |_| {
            retry_in(&test, 7_200 + step.cast_signed())
        })
        .await;
    };
    let met = walk(&test, Some(JobState::Retrying), fails).await;
    assert_eq!((met.len(), met.values().max()), (250, Some(&1)));
}

#[tokio::test]
async fn a_letter_that_dies_again_while_others_are_retried_is_retried_once() {
    let test = given(250).await;
    let dies = || Outcome::Dead {
        reason: EndReason::Rejected,
        history: FailureHistory::default(),
    };
    run(&test, 1, |_| dies()).await;
    let again = async |step: u64| {
        test.clock.advance(Span::secs(1));
        run(&test, 1 + step, |_| dies()).await;
    };
    let met = walk(&test, Some(JobState::Dead), again).await;
    assert_eq!((met.len(), met.values().max()), (250, Some(&1)));
}

#[tokio::test]
async fn what_an_action_cannot_apply_to_does_not_fit_by_text_as_by_kind() {
    let test = given(3).await;
    let done = |at| match at {
        0 | 1 => Outcome::Dead {
            reason: EndReason::Rejected,
            history: FailureHistory::default(),
        },
        _ => Outcome::Done(backstop_core::verdict::DoneRetention::Listed),
    };
    run(&test, 1, done).await;
    let changes = test.backstop.changes("ada");
    let kind = test
        .backstop
        .search(&for_ada(None), &Redaction::default(), None, 1)
        .await
        .unwrap()
        .jobs[0]
        .kind
        .clone();
    let by_text = changes
        .amend_found(&for_ada(None), &Redaction::default(), &AmendAction::Retry)
        .await
        .unwrap();
    assert_eq!((by_text.count, by_text.refused), (1, Vec::new()));
    let by_kind = Selection::Matching(Filter {
        kind: Some(kind),
        ..Filter::default()
    });
    let by_kind = changes.amend(&by_kind, &AmendAction::Retry).await.unwrap();
    assert_eq!(
        (by_kind.count, by_kind.refused),
        (1, Vec::new()),
        "the letter of bob"
    );
}

#[tokio::test(start_paused = true)]
async fn what_would_be_changed_is_counted_up_to_a_bound() {
    let test = given(250).await;
    let count = async |search: &JobSearch, action, max| {
        let within = Duration::from_millis(100);
        test.backstop
            .count_job_changes(search, &Redaction::default(), action, max, within)
            .await
            .unwrap()
    };
    let all = for_ada(None);
    assert_eq!(
        count(&all, &AmendAction::Cancel, 10_000).await,
        JobChangeCount {
            count: 250,
            is_all: true
        }
    );
    assert_eq!(
        count(&all, &AmendAction::Cancel, 250).await,
        JobChangeCount {
            count: 250,
            is_all: true
        }
    );
    assert_eq!(
        count(&all, &AmendAction::Cancel, 249).await,
        JobChangeCount {
            count: 249,
            is_all: false
        }
    );
    assert_eq!(
        count(&all, &AmendAction::Retry, 10_000).await,
        JobChangeCount {
            count: 0,
            is_all: true
        },
        "all are ready"
    );
    let of_nobody = JobSearch {
        text: Some("nobody".parse().unwrap()),
        ..JobSearch::default()
    };
    assert_eq!(
        count(&of_nobody, &AmendAction::Cancel, 10).await,
        JobChangeCount {
            count: 0,
            is_all: true
        }
    );
}
