use super::watch::{RedrivenJob, RedrivenStatus};
use super::*;
use crate::dead::letter::tests::job;
use crate::dead::{DeadFilter, DeadSelection};
use backstop_core::{Job, JobState};

const NOW: Time = Time::from_millis(1_000_000);

/// How many are gone through, and when the last one goes, in seconds from now.
fn check_progress(report: &RedriveReport, reached: u64, last_in_secs: Option<i64>) {
    assert_eq!(report.reached(), reached);
    assert_eq!(
        report.last_goes_at(NOW),
        last_in_secs.map(|secs| NOW.after(Span::secs(secs)))
    );
}

#[test]
fn progress_is_what_was_gone_through_of_what_fitted() {
    let of = |expected| {
        let report = report(RedrivePhase::Rate, 7, 0, 0);
        let plan = RedrivePlan {
            then_rate: "2/s".parse().unwrap(),
            ..report.plan.clone()
        };
        RedriveReport {
            expected,
            refused: 2,
            damaged: 1,
            plan,
            ..report
        }
    };
    check_progress(&of(Some(30)), 10, Some(10));
    check_progress(&of(None), 10, None);
    check_progress(&of(Some(10)), 10, None);
    check_progress(&of(Some(4)), 10, None);
    check_progress(
        &RedriveReport {
            stalled: true,
            ..of(Some(30))
        },
        10,
        None,
    );
    check_progress(
        &RedriveReport {
            phase: RedrivePhase::Watching,
            ..of(Some(30))
        },
        10,
        None,
    );
}

fn report(phase: RedrivePhase, requeued: u64, died_again: u64, open: u64) -> RedriveReport {
    RedriveReport {
        id: "r".to_owned(),
        phase,
        by: "ada".to_owned(),
        reason: None,
        started_at: NOW,
        ended_at: None,
        plan: RedrivePlan {
            canary: 5,
            max_failures: 1,
            then_rate: "100/s".parse().unwrap(),
            selection: DeadSelection::All,
        },
        picked: None,
        expected: None,
        stalled: false,
        requeued,
        done: requeued - died_again - open,
        died_again,
        open,
        refused: 0,
        damaged: 0,
        why: None,
    }
}

const MORE: RedriveObservation = RedriveObservation {
    stop_requested: false,
    has_more: true,
    free_at: NOW,
};

fn check(report: &RedriveReport, observed: RedriveObservation, expected: &str) {
    let step = match decide(report, &observed, NOW) {
        RedriveStep::Requeue(count) => format!("requeue {count}"),
        RedriveStep::Wait(span) => format!("wait {span}"),
        RedriveStep::Enter(phase) => format!("enter {phase}"),
        RedriveStep::End(phase, why) => format!("{phase}: {why}"),
    };
    assert!(step.starts_with(expected), "{step}, not {expected}");
}

#[test]
fn the_canary_goes_first_and_only_as_many() {
    check(&report(RedrivePhase::Canary, 0, 0, 0), MORE, "requeue 5");
    check(&report(RedrivePhase::Canary, 3, 0, 3), MORE, "requeue 2");
    check(
        &report(RedrivePhase::Canary, 5, 0, 5),
        MORE,
        "enter watching",
    );
    check(
        &report(RedrivePhase::Canary, 2, 0, 2),
        RedriveObservation {
            has_more: false,
            ..MORE
        },
        "enter watching",
    );
}

#[test]
fn the_others_follow_when_the_canary_has_ended() {
    check(&report(RedrivePhase::Watching, 5, 0, 5), MORE, "wait 500ms");
    check(&report(RedrivePhase::Watching, 5, 1, 1), MORE, "wait 500ms");
    check(&report(RedrivePhase::Watching, 5, 1, 0), MORE, "enter rate");
    check(&report(RedrivePhase::Rate, 5, 1, 0), MORE, "requeue 25");
}

#[test]
fn too_many_deaths_stop_it_at_once() {
    check(
        &report(RedrivePhase::Watching, 5, 2, 3),
        MORE,
        "failed: 2 of the first 5 died again, and at most 1 may",
    );
    check(&report(RedrivePhase::Canary, 3, 2, 1), MORE, "failed");
    check(&report(RedrivePhase::Rate, 100, 20, 10), MORE, "requeue");
    check(
        &report(RedrivePhase::Rate, 100, 21, 10),
        MORE,
        "failed: 21 of 100 died again, a larger share than 1 of 5",
    );
}

#[test]
fn the_rate_is_kept() {
    let later = |millis| RedriveObservation {
        free_at: NOW.after(Span::millis(millis)),
        ..MORE
    };
    check(
        &report(RedrivePhase::Rate, 50, 0, 0),
        later(100),
        "wait 100ms",
    );
    check(
        &report(RedrivePhase::Rate, 50, 0, 0),
        later(60_000),
        "wait 1s",
    );
}

#[test]
fn it_ends_when_nothing_is_left_or_somebody_wants_it_to() {
    let none_left = RedriveObservation {
        has_more: false,
        ..MORE
    };
    check(
        &report(RedrivePhase::Rate, 50, 0, 40),
        none_left,
        "done: all that fit",
    );
    check(
        &report(RedrivePhase::Rate, 0, 0, 0),
        none_left,
        "done: no dead letter fits",
    );
    let refused = RedriveReport {
        refused: 2,
        ..report(RedrivePhase::Rate, 0, 0, 0)
    };
    check(
        &refused,
        none_left,
        "done: none of those that fit could be requeued",
    );
    check(
        &report(RedrivePhase::Rate, LETTERS_MAX, 0, 0),
        MORE,
        "done: 100000",
    );
    for phase in [
        RedrivePhase::Canary,
        RedrivePhase::Watching,
        RedrivePhase::Rate,
    ] {
        check(
            &report(phase, 5, 5, 0),
            RedriveObservation {
                stop_requested: true,
                ..MORE
            },
            "stopped: it was stopped on request",
        );
    }
}

#[test]
fn a_plan_that_makes_no_sense_is_refused() {
    let plan = report(RedrivePhase::Canary, 0, 0, 0).plan;
    assert_eq!(plan.check(), Ok(()));
    let oldest = |count| DeadSelection::Oldest {
        queue: "q".parse().unwrap(),
        count,
    };
    assert_eq!(
        RedrivePlan {
            selection: oldest(100_000),
            ..plan.clone()
        }
        .check(),
        Ok(())
    );
    let matching = |filter| RedrivePlan {
        selection: DeadSelection::Matching(filter),
        ..plan.clone()
    };
    for wrong in [
        RedrivePlan {
            canary: 0,
            ..plan.clone()
        },
        RedrivePlan {
            canary: CANARY_MAX + 1,
            ..plan.clone()
        },
        RedrivePlan {
            max_failures: 5,
            ..plan.clone()
        },
        RedrivePlan {
            selection: DeadSelection::Ids(vec![]),
            ..plan.clone()
        },
        RedrivePlan {
            selection: oldest(0),
            ..plan.clone()
        },
        RedrivePlan {
            selection: oldest(100_001),
            ..plan.clone()
        },
        matching(DeadFilter::default()),
        matching(DeadFilter {
            text: Some("x".repeat(1_025)),
            ..DeadFilter::default()
        }),
        matching(DeadFilter {
            text: Some(" ".to_owned()),
            ..DeadFilter::default()
        }),
    ] {
        assert!(
            matches!(wrong.check(), Err(RedriveError::BadPlan(_))),
            "{wrong:?}"
        );
    }
}

#[test]
fn what_became_of_a_redriven_job() {
    let redriven = RedrivenJob {
        id: backstop_core::JobId::named("a"),
        requeues: 3,
        queue: None,
    };
    let seen = |state, requeues| Job {
        state,
        requeues,
        ..job("1", &[])
    };
    let check =
        |job: Option<Job>, expected| assert_eq!(redriven.status(job.as_ref()), expected, "{job:?}");
    check(None, RedrivenStatus::Done);
    check(Some(seen(JobState::Done, 4)), RedrivenStatus::Done);
    for state in [JobState::Dead, JobState::Cancelled] {
        check(Some(seen(state, 4)), RedrivenStatus::Died);
    }
    for state in [
        JobState::Scheduled,
        JobState::Ready,
        JobState::Running,
        JobState::Retrying,
    ] {
        check(Some(seen(state, 4)), RedrivenStatus::Open);
        check(Some(seen(state, 5)), RedrivenStatus::Died);
    }
    assert!(!redriven.was_requeued(Some(&seen(JobState::Dead, 3))));
    assert!(redriven.was_requeued(Some(&seen(JobState::Dead, 4))));
    assert!(redriven.was_requeued(None));
}

#[test]
fn a_redriven_job_is_kept_as_it_was_before_it_had_a_queue() {
    let job = job("1", &[]);
    for (redriven, parts) in [
        (RedrivenJob::in_named_queue(&job), 2),
        (RedrivenJob::in_own_queue(&job), 3),
    ] {
        let written = serde_json::to_value(&redriven).unwrap();
        assert_eq!(written.as_array().unwrap().len(), parts, "{written}");
        assert_eq!(
            serde_json::from_value::<RedrivenJob>(written).unwrap(),
            redriven
        );
    }
}

#[test]
fn a_full_part_of_the_longest_queue_names_fits_into_a_cell() {
    use backstop_core::limits::{CELL_BYTES_MAX, QUEUE_NAME_MAX};
    let queue = "q".repeat(QUEUE_NAME_MAX).parse().unwrap();
    let job = Job {
        queue,
        requeues: u32::MAX,
        ..job("1", &[])
    };
    let part = vec![RedrivenJob::in_own_queue(&job); super::record::PART_MAX];
    let bytes = serde_json::to_vec(&part).unwrap().len();
    assert!(
        bytes + 4_096 < CELL_BYTES_MAX,
        "{bytes}: the report is beside them"
    );
}

#[test]
fn a_report_reads_back() {
    let report = RedriveReport {
        why: Some("x".to_owned()),
        ..report(RedrivePhase::Rate, 5, 1, 2)
    };
    let text = serde_json::to_string(&report).unwrap();
    assert!(
        text.contains(r#""then_rate":"100/s","selection":{"all":true}"#),
        "{text}"
    );
    assert_eq!(
        serde_json::from_str::<RedriveReport>(&text).unwrap(),
        report
    );
}
