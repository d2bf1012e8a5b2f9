use super::*;

const NOW: Time = Time::from_millis(1_000_000);

fn check(
    stands: Option<DesiredWorkerState>,
    order: WorkerCommand,
    expected: (Option<DesiredWorkerState>, CommandOutcome),
) {
    assert_eq!(
        apply_command(stands, WorkerState::Working, order),
        expected,
        "{stands:?} {order}"
    );
}

#[test]
fn every_order_makes_of_every_other_what_the_table_says() {
    let (quiet, stop) = (
        Some(DesiredWorkerState::Quiet),
        Some(DesiredWorkerState::Stop),
    );
    check(None, WorkerCommand::Quiet, (quiet, CommandOutcome::Given));
    check(None, WorkerCommand::Stop, (stop, CommandOutcome::Given));
    check(None, WorkerCommand::Resume, (None, CommandOutcome::Same));
    check(quiet, WorkerCommand::Quiet, (quiet, CommandOutcome::Same));
    check(quiet, WorkerCommand::Stop, (stop, CommandOutcome::Given));
    check(quiet, WorkerCommand::Resume, (None, CommandOutcome::Given));
    check(stop, WorkerCommand::Quiet, (stop, CommandOutcome::Same));
    check(stop, WorkerCommand::Stop, (stop, CommandOutcome::Same));
    check(stop, WorkerCommand::Resume, (None, CommandOutcome::Given));
}

#[test]
fn of_two_orders_at_once_the_greater_stands_whichever_comes_first() {
    for [first, second] in [
        [WorkerCommand::Quiet, WorkerCommand::Stop],
        [WorkerCommand::Stop, WorkerCommand::Quiet],
    ] {
        let (stands, _) = apply_command(None, WorkerState::Working, first);
        let (stands, _) = apply_command(stands, WorkerState::Working, second);
        assert_eq!(
            stands,
            Some(DesiredWorkerState::Stop),
            "{first} then {second}"
        );
    }
}

#[test]
fn a_worker_that_has_begun_to_stop_does_not_go_back_to_work() {
    for stands in [
        None,
        Some(DesiredWorkerState::Quiet),
        Some(DesiredWorkerState::Stop),
    ] {
        assert_eq!(
            apply_command(stands, WorkerState::Stopping, WorkerCommand::Resume),
            (stands, CommandOutcome::TooLate),
            "{stands:?}"
        );
        assert_eq!(
            WorkerState::Stopping.with_desired(stands),
            WorkerState::Stopping,
            "{stands:?}"
        );
    }
}

#[test]
fn a_worker_does_what_it_is_asked_for_and_goes_on_when_that_is_taken_back() {
    for duty in [WorkerState::Working, WorkerState::Quiet] {
        assert_eq!(
            duty.with_desired(Some(DesiredWorkerState::Quiet)),
            WorkerState::Quiet
        );
        assert_eq!(
            duty.with_desired(Some(DesiredWorkerState::Stop)),
            WorkerState::Stopping
        );
        assert_eq!(duty.with_desired(None), WorkerState::Working);
    }
}

fn standing(run: Option<&str>) -> ActiveCommand {
    ActiveCommand {
        desired_state: DesiredWorkerState::Stop,
        at: NOW,
        by: "ada".to_owned(),
        run: run.map(str::to_owned),
    }
}

#[test]
fn a_worker_that_was_started_again_under_the_same_name_was_not_asked() {
    let run = |id: &str, since| WorkerRun {
        id: id.to_owned(),
        since,
    };
    let check = |meant: Option<&str>, run: &WorkerRun, expected| {
        assert_eq!(standing(meant).is_for(run), expected, "{meant:?} {run:?}");
    };
    check(Some("a"), &run("a", NOW.before(Span::hours(1))), true);
    check(Some("a"), &run("b", NOW.before(Span::hours(1))), false);
    // A clock that was set back between the worker's start and the command changes nothing.
    check(Some("a"), &run("a", NOW.after(Span::hours(1))), true);
    check(None, &run("a", NOW.before(Span::secs(1))), true);
    check(None, &run("a", NOW.after(Span::secs(1))), false);
}

#[test]
fn a_call_is_meant_as_the_table_says() {
    let started = |id: &str, since| {
        RunIdentity::Run(WorkerRun {
            id: id.to_owned(),
            since,
        })
    };
    let process = RunIdentity::Process("h/1/".to_owned());
    let early = NOW.before(Span::hours(1));
    // The call's identity, the run that the command is for, the last reported run; and whether the
    // worker is meant, without and after a silence.
    for (told, run, last, expected) in [
        (started("a", early), Some("a"), None, (true, true)),
        (started("a", early), Some("b"), Some("b"), (false, false)),
        (started("a", early), None, None, (true, true)),
        (
            started("a", NOW.after(Span::secs(1))),
            None,
            None,
            (false, false),
        ),
        (process.clone(), Some("h/1/"), Some("h/1/"), (true, false)),
        (process.clone(), None, None, (true, false)),
        (process, Some("h/2/"), Some("h/2/"), (false, false)),
        (RunIdentity::Nothing, Some("a"), Some("a"), (true, false)),
        (RunIdentity::Nothing, None, Some("a"), (true, false)),
        (RunIdentity::Nothing, Some("b"), Some("a"), (false, false)),
        (RunIdentity::Nothing, Some("a"), None, (false, false)),
    ] {
        let order = standing(run);
        let meant = [false, true].map(|was_silent| order.is_for_call(&told, last, was_silent));
        assert_eq!((meant[0], meant[1]), expected, "{told:?} {run:?} {last:?}");
        assert_eq!(
            order.depends_on_silence(&told, last),
            meant[0] != meant[1],
            "{told:?} {run:?} {last:?}"
        );
    }
}
