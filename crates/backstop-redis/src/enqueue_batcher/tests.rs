use super::*;
use backstop_core::{JobId, Kind, Payload};
use std::iter::repeat_n;

type AnswerReceiver = oneshot::Receiver<StoreResult<Vec<EnqueueOutcome>>>;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn part(jobs: usize) -> (CallPart, AnswerReceiver) {
    let (answer, answered) = oneshot::channel();
    let kind = Kind::new("kind").expect("a kind");
    let payload = Payload::json(b"1".to_vec()).expect("JSON");
    let job = NewJob::new(JobId::from_bytes([1; 16]), queue("q"), kind, payload);
    let (arrivals, now) = ((0..).take(jobs).collect(), Time::from_micros(0));
    (
        CallPart {
            jobs: repeat_n(job, jobs).collect(),
            arrivals,
            bytes: jobs,
            now,
            answer,
        },
        answered,
    )
}

/// Submits calls with these numbers of jobs, and checks the sizes of the first batches.
fn check(calls: &[usize], expected: &[&[usize]]) {
    let (group, mut waiting) = (EnqueueBatcher::default(), Vec::new());
    for jobs in calls {
        let (part, answered) = part(*jobs);
        group.join(&queue("q"), part);
        waiting.push(answered);
    }
    for batch in expected {
        let mut filled = ScriptBatch::default();
        group.fill(&queue("q"), &mut filled);
        let sizes: Vec<usize> = filled.parts.iter().map(|part| part.jobs.len()).collect();
        assert_eq!(sizes, *batch, "{calls:?}");
    }
}

#[test]
fn what_waits_goes_together_as_far_as_one_script_carries_it() {
    check(&[1, 1, 1], &[&[1, 1, 1], &[]]);
    check(&[JOBS_AT_ONCE - 1, 1, 1], &[&[JOBS_AT_ONCE - 1, 1], &[1]]);
    check(&[1, JOBS_AT_ONCE, 1], &[&[1], &[JOBS_AT_ONCE], &[1]]);
    check(&[JOBS_AT_ONCE * 2, 1], &[&[JOBS_AT_ONCE * 2], &[1]]);
}

#[test]
fn a_caller_that_went_away_is_skipped() {
    let group = EnqueueBatcher::default();
    let ((gone, dropped), (staying, _answered)) = (part(1), part(2));
    group.join(&queue("q"), gone);
    group.join(&queue("q"), staying);
    drop(dropped);
    let mut batch = ScriptBatch::default();
    group.fill(&queue("q"), &mut batch);
    assert_eq!(batch.jobs, 2);
}

#[test]
fn a_lane_has_a_few_turns_and_is_gone_when_they_end() {
    let group = EnqueueBatcher::default();
    let turns: Vec<bool> = (0..UNDER_WAY_MAX + 2)
        .map(|_| group.join(&queue("q"), part(1).0))
        .collect();
    assert_eq!(turns.iter().filter(|begun| **begun).count(), UNDER_WAY_MAX);
    assert!(
        group.join(&queue("other"), part(1).0),
        "another queue does not wait for this one"
    );
    assert!(
        !group.leave(&queue("q"), LeaveMode::IfNothingWaits),
        "something waits"
    );
    group.fill(&queue("q"), &mut ScriptBatch::default());
    for _ in 0..UNDER_WAY_MAX {
        assert!(group.leave(&queue("q"), LeaveMode::IfNothingWaits));
    }
    assert!(!group.backlogs().contains_key(&queue("q")));
}

#[test]
fn a_turn_lost_with_its_runtime_is_free_for_the_next_caller() {
    let group = EnqueueBatcher::default();
    while group.join(&queue("q"), part(1).0) {}
    group.leave(&queue("q"), LeaveMode::Anyway);
    assert!(group.join(&queue("q"), part(1).0));
}
