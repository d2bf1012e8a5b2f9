//! The effects of a clock that was ahead, and of a rule that was replaced.

use super::*;

/// The days of the month with their outcomes.
fn decided(
    schedule: &Schedule,
    standing: &ScheduleState,
    known: &[&str],
    now: &str,
) -> Vec<String> {
    let (now, known): (Time, BTreeSet<Time>) = (time(now), times(known).into_iter().collect());
    let from = standing.look_from(schedule, None, now);
    let decision = decide(
        schedule,
        ScheduleSnapshot {
            state: standing,
            from,
            known: &known,
        },
        now,
    );
    decision
        .enter
        .iter()
        .map(|entry| format!("{} {}", &entry.instant.to_string()[8..16], entry.outcome))
        .collect()
}

#[test]
fn what_a_clock_that_was_ahead_entered_without_a_job_counts_for_nothing() {
    let (instant, ahead) = (time("2026-11-20T08:30:00Z"), time("2026-11-26T12:00:00Z"));
    let entry = |what, at| LedgerEntry {
        instant,
        outcome: what,
        at,
    };
    let later = time("2026-11-22T08:30:00Z");
    for what in [
        InstantOutcome::Coalesced(later),
        InstantOutcome::Missed(SkipReason::TooOld),
        InstantOutcome::Skipped(SkipReason::Policy),
    ] {
        let mut page = LedgerPage::empty(UtcDay::of(instant));
        assert!(page.enter(entry(what, ahead), ahead));
        assert!(
            !page.enter(entry(InstantOutcome::Due, ahead), ahead),
            "as long as the clock is there, it counts"
        );
        assert!(
            !entry(what, instant).is_void(instant.before(Span::minutes(1))),
            "clocks are never quite the same"
        );
        assert!(
            page.enter(entry(InstantOutcome::Due, instant), instant),
            "{what}"
        );
        assert!(page.conclude(entry(InstantOutcome::Fired, instant)));
        assert!(
            !page.enter(entry(InstantOutcome::Due, ahead), ahead),
            "{what}: once it has a run it stays"
        );
    }
    // An instant that was fired, or may have been, stays: its job is never made twice. A future
    // instant waits for its time.
    let due = entry(InstantOutcome::Due, ahead);
    assert!(
        !due.is_void(instant) && due.is_due(instant) && !due.is_due(instant.before(Span::secs(1)))
    );
    let mut page = LedgerPage::empty(UtcDay::of(instant));
    page.enter(entry(InstantOutcome::Due, ahead), ahead);
    page.conclude(entry(InstantOutcome::MadeUp, ahead));
    assert!(!page.enter(entry(InstantOutcome::Due, instant), instant));
}

#[test]
fn what_a_clock_that_was_ahead_noted_is_taken_back() {
    let schedule = Schedule {
        since: None,
        ..daily(MissedPolicy::All, 7)
    };
    let (ahead, now) = (time("2026-11-26T12:00:00Z"), time(NOON));
    let mut standing = standing_of(&schedule, ahead);
    standing.pause(ahead);
    standing.settle(&schedule, ahead);
    standing.record_run(LatestRun {
        instant: time("2026-11-26T08:30:00Z"),
        what: "made_up".to_owned(),
        at: ahead,
    });
    standing.register(&schedule, now);
    assert_eq!(
        (
            standing.registered,
            standing.since(&schedule),
            standing.paused
        ),
        (now, now, Some(now))
    );
    assert_eq!(standing.settled(&schedule), Some(now.before(Span::days(7))));
    standing.resume(now);
    assert_eq!(
        decided(&schedule, &standing, &[], "2026-11-17T08:30:00Z"),
        ["17T08:30 due"]
    );
    let next = LatestRun {
        instant: time("2026-11-17T08:30:00Z"),
        what: "fired".to_owned(),
        at: time("2026-11-17T08:30:01Z"),
    };
    standing.record_run(next.clone());
    assert_eq!(standing.last, Some(next));
    // A pause that ended while the clock was ahead counts as ended now.
    standing.pause(now);
    standing.resume(ahead);
    standing.register(&schedule, time("2026-11-16T12:05:00Z"));
    assert!(!standing.is_paused_at(time("2026-11-17T08:30:00Z")));
    // The same holds for a rule that took over while the clock was ahead.
    let other = Schedule {
        cron: Cron::new("0 9 * * *").unwrap(),
        ..schedule
    };
    standing.register(&other, ahead);
    standing.register(&other, time("2026-11-16T12:10:00Z"));
    assert_eq!(standing.since(&other), time("2026-11-16T12:10:00Z"));
}

#[test]
fn whoever_has_settled_what_is_still_to_come_looks_at_the_whole_window() {
    let schedule = daily(MissedPolicy::All, 7);
    let standing = standing_of(&schedule, time("2026-11-01T00:00:00Z"));
    let (now, window) = (time(NOON), time(NOON).before(Span::days(7)));
    let from = |settled: Option<Time>| standing.look_from(&schedule, settled, now);
    assert_eq!(
        from(Some(now.before(Span::minutes(3)))),
        now.before(Span::minutes(3))
    );
    assert_eq!(
        from(Some(now.after(Span::secs(2)))),
        now,
        "clocks are never quite the same"
    );
    assert_eq!(from(Some(now.after(Span::days(400)))), from(None));
    assert!(from(None) <= window && from(None) >= now.before(Span::days(32)));
}

#[test]
fn a_rule_that_is_written_in_another_way_is_the_same() {
    let old = daily(MissedPolicy::All, 7);
    let mut standing = standing_of(&old, time("2026-11-01T00:00:00Z"));
    standing.settle(&old, time("2026-11-13T12:00:00Z"));
    let written = |cron: &str| Schedule {
        cron: Cron::new(cron).unwrap(),
        ..old.clone()
    };
    let known: Vec<String> = (9..14)
        .map(|day| format!("2026-11-{day:02}T08:30:00Z"))
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    for same in [
        "30 08 * * *",
        "30  8 * * *",
        "30 8 * * 0-6",
        "30 8 1-31 * *",
    ] {
        let mut standing = standing.clone();
        standing.register(&written(same), time(NOON));
        let made_up = ["14T08:30 due", "15T08:30 due", "16T08:30 due"];
        assert_eq!(
            decided(&written(same), &standing, &known, NOON),
            made_up,
            "{same}"
        );
    }
    let other = Schedule {
        timezone: Zone::new("Europe/London").unwrap(),
        ..old.clone()
    };
    standing.register(&other, time(NOON));
    assert_eq!(
        standing.since(&other),
        time(NOON),
        "another zone is another rule"
    );
    // A rhythm and the same fixed times differ where clocks change.
    assert!(
        !Cron::new("*/30 2 * * *")
            .unwrap()
            .is_equivalent(&Cron::new("0,30 2 * * *").unwrap())
    );
}

#[test]
fn what_a_replaced_rule_left_behind_is_made_up_under_the_new_one() {
    let old = Schedule {
        since: None,
        ..daily(MissedPolicy::All, 7)
    };
    let new = Schedule {
        cron: Cron::new("0 9 * * *").unwrap(),
        ..old.clone()
    };
    let mut standing = standing_of(&old, time("2026-11-01T00:00:00Z"));
    // Down from the evening of the 13th; the deploy on the 16th changes the time of day.
    standing.settle(&old, time("2026-11-13T20:00:00Z"));
    standing.register(&new, time(NOON));
    let left = ["14T08:30 due", "15T08:30 due", "16T08:30 due"];
    assert_eq!(decided(&new, &standing, &[], NOON), left);
    let known = [
        "2026-11-14T08:30:00Z",
        "2026-11-15T08:30:00Z",
        "2026-11-16T08:30:00Z",
    ];
    assert_eq!(
        decided(&new, &standing, &known, "2026-11-17T12:00:00Z"),
        ["17T09:00 due"]
    );
    let seen = ScheduleSnapshot {
        state: &standing,
        from: time(NOON).before(Span::days(7)),
        known: &BTreeSet::new(),
    };
    assert_eq!(missing(&new, seen, time(NOON)).len(), 3);
    // Down for longer than `look_back`: the oldest instants get an entry, too.
    let mut long = standing_of(&old, time("2026-10-01T00:00:00Z"));
    long.settle(&old, time("2026-11-06T20:00:00Z"));
    long.register(&new, time(NOON));
    let told = decided(&new, &long, &[], NOON);
    assert_eq!(
        told[..3],
        ["07T08:30 missed", "08T08:30 missed", "09T08:30 missed"],
        "{told:?}"
    );
    assert_eq!((told.len(), told[9].as_str()), (10, "16T08:30 due"));
    // No instant is expected from before `since`, nor from before the first registration.
    let late = Schedule {
        since: Some(time("2026-11-16T00:00:00Z")),
        ..new.clone()
    };
    assert_eq!(decided(&late, &standing, &[], NOON), ["16T08:30 due"]);
    let mut young = standing_of(&old, time("2026-11-15T12:00:00Z"));
    young.register(&new, time(NOON));
    assert_eq!(decided(&new, &young, &[], NOON), ["16T08:30 due"]);
}

#[test]
fn a_rule_that_was_tried_and_taken_back_leaves_nothing_behind() {
    let old = Schedule {
        since: None,
        ..daily(MissedPolicy::All, 7)
    };
    let with = |cron: &str| Schedule {
        cron: Cron::new(cron).unwrap(),
        ..old.clone()
    };
    let (tried, new) = (with("0 * * * *"), with("0 9 * * *"));
    let mut standing = standing_of(&old, time("2026-11-01T00:00:00Z"));
    standing.settle(&old, time("2026-11-14T10:00:00Z"));
    standing.register(&tried, time("2026-11-14T10:00:00Z"));
    standing.settle(&tried, time("2026-11-14T11:00:00Z"));
    // The old version runs for two more days, until the next change.
    standing.settle(&old, time("2026-11-16T11:00:00Z"));
    standing.register(&new, time(NOON));
    let known = ["2026-11-09T08:30:00Z", "2026-11-16T08:30:00Z"];
    assert_eq!(decided(&new, &standing, &known, NOON), [] as [&str; 0]);
}
