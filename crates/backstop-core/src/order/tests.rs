use super::*;

const NOW: Time = Time::from_millis(1_000_000);

fn check(stands: Option<Asked>, order: Order, expected: (Option<Asked>, Ordered)) {
    assert_eq!(
        ordered(stands, Duty::Working, order),
        expected,
        "{stands:?} {order}"
    );
}

#[test]
fn every_order_makes_of_every_other_what_the_table_says() {
    let (quiet, stop) = (Some(Asked::Quiet), Some(Asked::Stop));
    check(None, Order::Quiet, (quiet, Ordered::Given));
    check(None, Order::Stop, (stop, Ordered::Given));
    check(None, Order::Resume, (None, Ordered::Same));
    check(quiet, Order::Quiet, (quiet, Ordered::Same));
    check(quiet, Order::Stop, (stop, Ordered::Given));
    check(quiet, Order::Resume, (None, Ordered::Given));
    check(stop, Order::Quiet, (stop, Ordered::Same));
    check(stop, Order::Stop, (stop, Ordered::Same));
    check(stop, Order::Resume, (None, Ordered::Given));
}

#[test]
fn of_two_orders_at_once_the_greater_stands_whichever_comes_first() {
    for [first, second] in [[Order::Quiet, Order::Stop], [Order::Stop, Order::Quiet]] {
        let (stands, _) = ordered(None, Duty::Working, first);
        let (stands, _) = ordered(stands, Duty::Working, second);
        assert_eq!(stands, Some(Asked::Stop), "{first} then {second}");
    }
}

#[test]
fn a_worker_that_has_begun_to_stop_does_not_go_back_to_work() {
    for stands in [None, Some(Asked::Quiet), Some(Asked::Stop)] {
        assert_eq!(
            ordered(stands, Duty::Stopping, Order::Resume),
            (stands, Ordered::TooLate),
            "{stands:?}"
        );
        assert_eq!(Duty::Stopping.heeding(stands), Duty::Stopping, "{stands:?}");
    }
}

#[test]
fn a_worker_does_what_it_is_asked_for_and_goes_on_when_that_is_taken_back() {
    for duty in [Duty::Working, Duty::Quiet] {
        assert_eq!(duty.heeding(Some(Asked::Quiet)), Duty::Quiet);
        assert_eq!(duty.heeding(Some(Asked::Stop)), Duty::Stopping);
        assert_eq!(duty.heeding(None), Duty::Working);
    }
}

fn standing(run: Option<&str>) -> Standing {
    Standing {
        asked: Asked::Stop,
        at: NOW,
        by: "ada".to_owned(),
        run: run.map(str::to_owned),
    }
}

#[test]
fn a_worker_that_was_started_again_under_the_same_name_was_not_asked() {
    let run = |id: &str, since| RunOf {
        id: id.to_owned(),
        since,
    };
    let check = |meant: Option<&str>, run: &RunOf, expected| {
        assert_eq!(standing(meant).is_for(run), expected, "{meant:?} {run:?}");
    };
    check(Some("a"), &run("a", NOW.before(Span::hours(1))), true);
    check(Some("a"), &run("b", NOW.before(Span::hours(1))), false);
    // A clock that was set back between its start and the order changes nothing.
    check(Some("a"), &run("a", NOW.after(Span::hours(1))), true);
    check(None, &run("a", NOW.before(Span::secs(1))), true);
    check(None, &run("a", NOW.after(Span::secs(1))), false);
}

#[test]
fn a_call_is_meant_as_the_table_says() {
    let started = |id: &str, since| {
        Told::Run(RunOf {
            id: id.to_owned(),
            since,
        })
    };
    let process = Told::Process("h/1/".to_owned());
    let early = NOW.before(Span::hours(1));
    // The call, for whom the order is, the run told last; meant, and meant after a silence.
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
        (Told::Nothing, Some("a"), Some("a"), (true, false)),
        (Told::Nothing, None, Some("a"), (true, false)),
        (Told::Nothing, Some("b"), Some("a"), (false, false)),
        (Told::Nothing, Some("a"), None, (false, false)),
    ] {
        let order = standing(run);
        let meant = [false, true].map(|was_silent| order.is_for_call(&told, last, was_silent));
        assert_eq!((meant[0], meant[1]), expected, "{told:?} {run:?} {last:?}");
        assert_eq!(
            order.hangs_on_silence(&told, last),
            meant[0] != meant[1],
            "{told:?} {run:?} {last:?}"
        );
    }
}
