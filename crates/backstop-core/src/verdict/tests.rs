use super::*;
use crate::job::{JobId, Priority};
use crate::job_options::JobOptions;
use crate::lease::LeaseNumber;
use crate::name::{Kind, QueueName};
use crate::payload::Payload;
use proptest::prelude::*;

const NOW: Time = Time::from_millis(1_000_000);

fn run(attempts_before: u32) -> LeasedRun {
    let queue = QueueName::new("q").expect("a name");
    LeasedRun {
        lease: Lease {
            queue,
            job: JobId::named("j"),
            number: LeaseNumber::draw(1),
        },
        kind: Kind::default(),
        payload: Payload::default(),
        priority: Priority::Normal,
        attempts_before,
        lost_leases: 0,
        inserted_at: Time::default(),
        run_at: Time::default(),
        options: JobOptions::default(),
        history: FailureHistory::default(),
    }
}

fn worker() -> WorkerName {
    WorkerName::new("w1")
}

fn judged(run: &LeasedRun, ending: RunEnding) -> Outcome {
    let retry = RetryPolicy::from_json(
        br#"{"kind":"constant","every":"10s","max_attempts":3,"max_age":"1h"}"#,
    )
    .expect("a policy");
    judge(
        run,
        ending,
        &worker(),
        QueueRules {
            retry: &retry,
            keep: DoneRetention::Listed,
        },
        NOW,
        RandomDraw::LOWEST,
    )
}

fn failed(advice: FailureAdvice) -> RunEnding {
    RunEnding::Failed {
        cause: FailureCause::Failed,
        error: ErrorReport::message("boom"),
        advice,
        progressed: false,
    }
}

fn described(outcome: &Outcome) -> String {
    let wait = |at: &Time| at.since(NOW).to_string();
    match outcome {
        Outcome::Done(_) => "done".to_owned(),
        Outcome::Retry { at, .. } => format!("retry in {}", wait(at)),
        Outcome::Dead { reason, .. } => format!("dead: {reason}"),
        Outcome::Cancelled { reason, .. } => format!("cancelled: {reason}"),
        Outcome::Released { at } => format!("released for {}", wait(at)),
        Outcome::Reran { at, .. } => format!("reran, released for {}", wait(at)),
        Outcome::Lost { at, .. } => format!("lost, again in {}", wait(at)),
    }
}

fn check(attempts_before: u32, ending: RunEnding, expected: &str) {
    assert_eq!(described(&judged(&run(attempts_before), ending)), expected);
}

#[test]
fn a_success_is_done() {
    check(0, RunEnding::Done, "done");
}

#[test]
fn a_failure_is_tried_again_until_the_last_attempt() {
    check(0, failed(FailureAdvice::Retry), "retry in 10s");
    check(1, failed(FailureAdvice::Retry), "retry in 10s");
    check(2, failed(FailureAdvice::Retry), "dead: attempts_exhausted");
}

#[test]
fn advice_counts_but_does_not_add_attempts() {
    check(
        0,
        failed(FailureAdvice::RetryAfter(Span::secs(99))),
        "retry in 99s",
    );
    check(
        2,
        failed(FailureAdvice::RetryAfter(Span::secs(99))),
        "dead: attempts_exhausted",
    );
    check(0, failed(FailureAdvice::Dead), "dead: rejected");
    check(0, failed(FailureAdvice::Discard), "cancelled: discarded");
}

#[test]
fn what_did_not_fail_is_not_charged() {
    check(2, RunEnding::Snoozed(Span::minutes(5)), "released for 5m");
    check(2, RunEnding::Released(Span::ZERO), "released for 0s");
    check(
        0,
        RunEnding::Cancelled("no longer wanted".to_owned()),
        "cancelled: unwanted",
    );
}

#[test]
fn a_rerun_that_is_put_off_leaves_word_that_it_began() {
    let vanished = LostLease {
        worker: worker(),
        lease: run(0).lease,
    };
    let Outcome::Lost { history, .. } = judge_lost(&run(0), &vanished, NOW.before(Span::secs(9)))
    else {
        unreachable!()
    };
    let lost = LeasedRun {
        lost_leases: 1,
        history,
        ..run(0)
    };
    assert_eq!(
        described(&judged(&lost, RunEnding::Snoozed(Span::secs(5)))),
        "released for 5s"
    );
    let (_, history) = lost.history.record_rerun(NOW).expect("it was lost");
    let rerun = LeasedRun {
        history: history.clone(),
        ..lost
    };
    let outcome = judged(&rerun, RunEnding::Snoozed(Span::secs(5)));
    assert_eq!(described(&outcome), "reran, released for 5s");
    assert_eq!(outcome.transition(NOW).history, Some(&history));
}

#[test]
fn a_job_that_is_too_old_dies() {
    let old = LeasedRun {
        inserted_at: NOW.before(Span::hours(1)),
        ..run(0)
    };
    assert_eq!(
        described(&judged(&old, failed(FailureAdvice::Retry))),
        "dead: max_age"
    );
}

#[test]
fn a_jobs_own_policy_beats_the_queues() {
    let own = RetryPolicy::from_json(br#"{"kind":"constant","every":"1s","max_attempts":9}"#)
        .expect("a policy");
    let run = LeasedRun {
        options: JobOptions::encode(Some(&own), None),
        ..run(7)
    };
    assert_eq!(
        described(&judged(&run, failed(FailureAdvice::Retry))),
        "retry in 1s"
    );
}

#[test]
fn an_unreadable_policy_leaves_the_queues_in_charge() {
    let run = LeasedRun {
        options: JobOptions::from_stored(Some(b"{".to_vec())),
        ..run(0)
    };
    assert_eq!(
        described(&judged(&run, failed(FailureAdvice::Retry))),
        "retry in 10s"
    );
}

#[test]
fn the_third_lost_lease_within_three_days_is_the_last() {
    let vanished = LostLease {
        worker: worker(),
        lease: run(0).lease,
    };
    let mut run = run(0);
    for (hour, expected) in [
        (0, "lost"),
        (1, "lost"),
        (2, "dead: crashed_worker"),
        (74, "lost"),
    ] {
        let at = NOW.after(Span::hours(hour));
        let outcome = judge_lost(&run, &vanished, at);
        assert!(
            described(&outcome).starts_with(expected),
            "hour {hour}: {outcome:?}"
        );
        let transition = outcome.transition(at);
        assert_eq!(
            (transition.attempts, transition.lost_leases),
            (0, 1),
            "a crash is counted apart"
        );
        let (Outcome::Lost { history, .. } | Outcome::Dead { history, .. }) = outcome else {
            unreachable!()
        };
        run.history = history;
        run.lost_leases += 1;
    }
}

#[test]
fn an_outcome_says_what_a_store_changes() {
    let history = FailureHistory::default();
    let later = NOW.after(Span::secs(1));
    let check = |outcome: Outcome, state, place, attempts, lost_leases| {
        let transition = outcome.transition(NOW);
        let seen = (
            transition.state,
            transition.requeue,
            transition.attempts,
            transition.lost_leases,
        );
        assert_eq!(seen, (state, place, attempts, lost_leases), "{outcome:?}");
    };
    let (reason, retry) = (EndReason::Rejected, |at| Outcome::Retry {
        at,
        history: FailureHistory::default(),
        anew: false,
    });
    check(
        Outcome::Done(DoneRetention::Listed),
        JobState::Done,
        Requeue::End,
        1,
        0,
    );
    check(
        Outcome::Dead {
            reason,
            history: history.clone(),
        },
        JobState::Dead,
        Requeue::End,
        1,
        0,
    );
    check(
        Outcome::Cancelled {
            reason,
            history: history.clone(),
        },
        JobState::Cancelled,
        Requeue::End,
        1,
        0,
    );
    check(retry(later), JobState::Retrying, Requeue::End, 1, 0);
    check(retry(NOW), JobState::Ready, Requeue::End, 1, 0);
    check(
        Outcome::Released { at: later },
        JobState::Scheduled,
        Requeue::OldPlace,
        0,
        0,
    );
    check(
        Outcome::Released { at: NOW },
        JobState::Ready,
        Requeue::OldPlace,
        0,
        0,
    );
    check(
        Outcome::Reran {
            at: later,
            history: history.clone(),
        },
        JobState::Scheduled,
        Requeue::OldPlace,
        0,
        0,
    );
    check(
        Outcome::Lost { at: NOW, history },
        JobState::Ready,
        Requeue::OldPlace,
        0,
        1,
    );
    assert!(Outcome::Done(DoneRetention::Gone).transition(NOW).gone);
}

fn any_ending() -> impl Strategy<Value = RunEnding> {
    let span = (0..i64::MAX).prop_map(Span::micros);
    let advice = prop_oneof![
        Just(FailureAdvice::Retry),
        span.clone().prop_map(FailureAdvice::RetryAfter),
        Just(FailureAdvice::Dead),
        Just(FailureAdvice::Discard),
    ];
    prop_oneof![
        Just(RunEnding::Done),
        advice.prop_map(failed),
        span.clone().prop_map(RunEnding::Snoozed),
        span.prop_map(RunEnding::Released),
        any::<String>().prop_map(RunEnding::Cancelled),
    ]
}

proptest! {
    #[test]
    fn no_ending_leaves_a_job_nowhere_or_running(ending in any_ending(), attempts_before in 0..1_000_000_u32) {
        let outcome = judged(&run(attempts_before), ending);
        let transition = outcome.transition(NOW);
        prop_assert_ne!(transition.state, JobState::Running);
        prop_assert_eq!(transition.state.is_final(), transition.run_at.is_none());
        prop_assert!(transition.run_at.is_none_or(|at| at >= NOW));
        prop_assert!(transition.attempts + transition.lost_leases <= 1);
    }
}
