//! A clock that was wrong for a while, a rule that changed while nobody was there, and what is
//! missing meanwhile.

use crate::place::{Place, daily, schedule, time};
use backstop::schedules::{Cron, InstantOutcome, LedgerEntry, MissedPolicy, MissedSettings};
use backstop::testing::VirtualClock;
use backstop::{Backstop, Clock, RandomSource, Schedule, ServicePlacement, Span};
use backstop_memory::MemoryStore;
use std::sync::Arc;
use std::time::Duration;

fn with(policy: MissedPolicy, schedule: Schedule) -> Schedule {
    Schedule {
        missed: MissedSettings {
            policy,
            ..MissedSettings::default()
        },
        ..schedule
    }
}

#[tokio::test]
async fn a_clock_that_was_days_ahead_for_a_moment_silences_nothing() {
    for policy in [MissedPolicy::Skip, MissedPolicy::One, MissedPolicy::All] {
        let place = Place::in_memory("2026-11-16T07:00:00Z");
        let daily = with(policy, daily());
        let one = std::slice::from_ref(&daily);
        place.race(2, one).await;
        place
            .ahead(Span::days(10), Span::minutes(1), async || {
                place.race(2, one).await;
            })
            .await;
        let early = place.digests().await;
        assert!(
            early.len() <= 7 && (policy == MissedPolicy::Skip) == early.is_empty(),
            "{policy:?}: {early:?}"
        );
        let missed = place
            .process(9)
            .schedules()
            .missed(one, time("2026-11-16T12:00:00Z"))
            .await
            .unwrap();
        assert_eq!(
            missed.len(),
            1,
            "{policy:?}: what the clock said of the 16th counts for nothing"
        );
        // Each later day fires, once: those that had no run yet when they come, and the others have
        // theirs.
        for day in 16..=27 {
            place.set(&format!("2026-11-{day}T08:30:00Z"));
            place.race(2, one).await;
        }
        let expected: Vec<String> = (16..=27)
            .map(|day| format!("daily 2026-11-{day}"))
            .collect();
        assert_eq!(place.digests().await, expected, "{policy:?}");
        let ledger = place.ledger(&daily).await;
        let with_job = ledger
            .iter()
            .filter(|line| line.ends_with(" fired") || line.ends_with(" made_up"));
        assert_eq!(
            (with_job.count(), ledger.len()),
            (12, 12),
            "{policy:?}: {ledger:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn workers_go_on_when_the_clock_is_right_again() {
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(
        Arc::new(MemoryStore::new()),
        Arc::<VirtualClock>::clone(&clock),
        RandomSource::seeded(3),
    );
    let hourly = with(MissedPolicy::One, schedule("hourly", "0 * * * *"));
    let start = |name: &str| {
        backstop
            .worker()
            .name(name)
            .services(ServicePlacement::CallersRuntime)
            .schedule(hourly.clone())
            .start()
            .unwrap()
    };
    let workers = [start("a"), start("b")];
    // It is 00:30 when the clock is set to 14:30 for a minute, and 01:00 comes after that.
    tokio::time::sleep(Duration::from_mins(30)).await;
    clock.jump(Span::hours(14).as_micros());
    tokio::time::sleep(Duration::from_mins(1)).await;
    clock.jump(-Span::hours(14).as_micros());
    tokio::time::sleep(Duration::from_hours(5)).await;
    let runs = backstop.schedules().runs(&hourly.name, 100).await.unwrap();
    let told =
        |entry: &LedgerEntry| format!("{} {}", &entry.instant.to_string()[11..13], entry.outcome);
    let told: Vec<String> = runs.iter().rev().map(told).collect();
    let each = [
        "00 fired", "01 fired", "02 fired", "03 fired", "04 fired", "05 fired",
    ];
    assert_eq!(told[..6], each, "{told:?}");
    assert_eq!(
        told[6..],
        ["13 made_up", "14 late"],
        "what the clock fired ahead of its time"
    );
    for worker in workers {
        worker.stop();
        worker.stopped().await;
    }
}

#[tokio::test]
async fn an_instant_that_fell_into_a_jump_is_fired_and_what_was_fired_before_it_is_not_again() {
    for days in [10, 400] {
        let place = Place::in_memory("2026-11-14T00:00:00Z");
        let daily = with(MissedPolicy::All, daily());
        let one = std::slice::from_ref(&daily);
        for day in 14..=16 {
            place.set(&format!("2026-11-{day}T08:30:00Z"));
            place.race(1, one).await;
        }
        place.set("2026-11-17T08:29:00Z");
        place
            .ahead(Span::days(days), Span::minutes(6), async || {
                place.race(2, one).await;
            })
            .await;
        place.race(3, one).await;
        let ledger = place.ledger(&daily).await;
        let expected = [
            "11-14T08:30 fired",
            "11-15T08:30 fired",
            "11-16T08:30 fired",
            "11-17T08:30 late",
        ];
        let now = place.clock.now().to_string();
        let past: Vec<&String> = ledger
            .iter()
            .filter(|line| line.as_str() < &now[5..16])
            .collect();
        assert_eq!(past, expected, "{days} days");
    }
}

#[tokio::test]
async fn a_schedule_that_was_first_registered_by_a_clock_that_was_ahead_counts_from_when_it_is_right()
 {
    let place = Place::in_memory("2026-11-16T00:00:00Z");
    let daily = daily();
    let one = std::slice::from_ref(&daily);
    place
        .ahead(Span::days(10), Span::ZERO, async || {
            place.race(1, one).await;
        })
        .await;
    place.race(1, one).await;
    place.set("2026-11-16T08:30:00Z");
    place.race(2, one).await;
    assert_eq!(place.digests().await, ["daily 2026-11-16"]);
    let status = place.process(1).schedules().status(&daily).await.unwrap();
    assert_eq!(status.since, time("2026-11-16T00:00:00Z"));
}

#[tokio::test]
async fn a_cron_that_is_changed_after_days_without_anybody_leaves_no_date_unexplained() {
    for (cron, changed) in [("30 08 * * *", "08:30"), ("0 9 * * *", "09:00")] {
        let place = Place::in_memory("2026-11-16T00:00:00Z");
        let daily = daily();
        place.race(1, std::slice::from_ref(&daily)).await;
        place.set("2026-11-16T08:30:00Z");
        place.race(1, std::slice::from_ref(&daily)).await;
        // Down until Thursday; the deploy that brings it back writes another cron.
        place.set("2026-11-19T12:00:00Z");
        let daily = Schedule {
            cron: Cron::new(cron).unwrap(),
            ..daily
        };
        let one = std::slice::from_ref(&daily);
        assert_eq!(
            place
                .process(1)
                .schedules()
                .missed(one, place.clock.now())
                .await
                .unwrap()
                .len(),
            3
        );
        place.race(3, one).await;
        place.set(&format!("2026-11-20T{changed}:00Z"));
        place.race(3, one).await;
        let ledger = place.ledger(&daily).await;
        let made_up = |day| format!("11-{day}T08:30 made_up");
        let first = "11-16T08:30 fired".to_owned();
        assert_eq!(
            ledger,
            [
                first,
                made_up(17),
                made_up(18),
                made_up(19),
                format!("11-20T{changed} fired")
            ]
        );
    }
}

#[tokio::test]
async fn what_was_given_up_is_listed_as_missed_and_nobody_is_asked_to_do_something_about_it() {
    for (policy, max, listed) in [
        (MissedPolicy::Skip, 7, 3),
        (MissedPolicy::All, 1, 2),
        (MissedPolicy::One, 7, 0),
    ] {
        let place = Place::in_memory("2026-11-16T00:00:00Z");
        let daily = Schedule {
            missed: MissedSettings {
                policy,
                max,
                ..MissedSettings::default()
            },
            ..daily()
        };
        let one = std::slice::from_ref(&daily);
        place.race(1, one).await;
        place.set("2026-11-18T12:00:00Z");
        let process = place.process(1);
        let schedules = process.schedules();
        assert_eq!(
            schedules.unfired(one).await.unwrap().len(),
            3,
            "nobody has looked"
        );
        assert_eq!(schedules.status(&daily).await.unwrap().missing, 3);
        place.race(2, one).await;
        assert_eq!(
            schedules
                .missed(one, place.clock.now())
                .await
                .unwrap()
                .len(),
            listed,
            "{policy:?}"
        );
        assert_eq!(schedules.unfired(one).await.unwrap(), [], "{policy:?}");
        assert_eq!(schedules.status(&daily).await.unwrap().missing, 0);
        let runs = schedules.runs(&daily.name, 9).await.unwrap();
        assert!(
            runs.iter()
                .all(|entry| entry.outcome != InstantOutcome::Due),
            "{runs:?}"
        );
    }
}
