//! Schedules at work: fired once for each instant, made up where they are missing, whatever fails
//! in between.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is how to say no")]

mod clocks;
mod place;
mod stores;

use backstop::core::QueueBounds;
use backstop::core::port::{ListJobsRequest, Store};
use backstop::core::schedule::job_id;
use backstop::schedules::{
    InstantOutcome, LedgerEntry, MissedPolicy, MissedSettings, SkipReason, TriggerError,
};
use backstop::testing::VirtualClock;
use backstop::{Backstop, Clock, JobState, RandomSource, Run, Schedule, ServicePlacement, Span};
use backstop_memory::MemoryStore;
use backstop_testkit::counted::Counted;
use backstop_testkit::flaky::{Fault, Flaky, Odds};
use place::{Place, daily, schedule, time};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn a_run_whose_scheduler_was_killed_before_it_was_entered_is_entered_and_not_repeated() {
    let place = Place::in_memory("2026-11-16T00:00:00Z");
    let daily = daily();
    place.race(1, std::slice::from_ref(&daily)).await;
    place.set("2026-11-16T08:30:01Z");
    // Killed at each of its calls in turn: before the store sees it, and after.
    let mut calls = 0;
    for fault in [Fault::Refused, Fault::LostReply] {
        for at in 0..8 {
            place.clock.advance(Span::days(1));
            let flaky = Arc::new(Flaky::new(Arc::clone(&place.store), 1));
            let process = place.process_on(Arc::<Flaky>::clone(&flaky), 7 + at);
            let doomed = process.clone();
            let schedule = daily.clone();
            let calls_before = flaky.injected(fault);
            let killed = tokio::spawn(async move {
                for _ in 0..at {
                    flaky.next_call(Fault::LostHint);
                }
                for _ in 0..100 {
                    flaky.next_call(fault);
                }
                let _ = tokio::time::timeout(
                    Duration::from_millis(100),
                    doomed.schedules().look(&[schedule]),
                )
                .await;
                flaky.injected(fault)
            });
            calls += killed.await.unwrap() - calls_before;
            place.race(2, std::slice::from_ref(&daily)).await;
        }
    }
    assert!(calls > 16, "{calls} calls were hit");
    let (jobs, ledger) = (place.jobs().await.len(), place.ledger(&daily).await);
    assert_eq!((jobs, ledger.len()), (17, 17), "{ledger:?}");
    assert!(
        ledger.iter().skip(1).all(|line| line.ends_with(" fired")),
        "{ledger:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stutters_makes_runs_later_and_none_twice() {
    for seed in 1..4 {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let clock = Arc::new(VirtualClock::start());
        let often = Schedule {
            missed: MissedSettings::default(),
            ..schedule("often", "*/5 * * * *")
        };
        let worker = |n: u64| {
            let flaky = Flaky::with_odds(
                Arc::clone(&store),
                seed * 10 + n,
                Odds {
                    refused: 0.2,
                    lost_reply: 0.2,
                    ..Odds::default()
                },
            );
            let backstop = Backstop::on(
                Arc::new(flaky),
                Arc::<VirtualClock>::clone(&clock),
                RandomSource::seeded(seed * 10 + n),
            );
            backstop
                .worker()
                .name(&n.to_string())
                .services(ServicePlacement::CallersRuntime)
                .schedule(often.clone())
                .start()
                .unwrap()
        };
        let workers: Vec<_> = (0..3).map(worker).collect();
        tokio::time::sleep(Duration::from_mins(62)).await;
        for worker in workers {
            worker.stop();
            worker.stopped().await;
        }
        let backstop = Backstop::on(
            Arc::clone(&store),
            Arc::<VirtualClock>::clone(&clock),
            RandomSource::seeded(9),
        );
        let runs = backstop.schedules().runs(&often.name, 100).await.unwrap();
        // The first may have been registered late, by a store that did not answer at once.
        assert!(
            runs.len() == 12 || runs.len() == 13,
            "seed {seed}: {runs:?}"
        );
        assert!(
            runs.iter()
                .all(|entry| matches!(entry.outcome, InstantOutcome::Fired | InstantOutcome::Late)),
            "seed {seed}: {runs:?}"
        );
        let query = ListJobsRequest {
            limit: 1_000,
            ..ListJobsRequest::default()
        };
        assert_eq!(
            store.jobs(query, clock.now()).await.unwrap().jobs.len(),
            runs.len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_fires_at_the_instant_and_runs_what_it_fired() {
    let clock = Arc::new(VirtualClock::start());
    let backstop = Backstop::on(
        Arc::new(MemoryStore::new()),
        Arc::<VirtualClock>::clone(&clock),
        RandomSource::seeded(3),
    );
    let minutely = schedule("minutely", "* * * * *");
    let start = |name: &str| {
        let worker = backstop
            .worker()
            .name(name)
            .services(ServicePlacement::CallersRuntime)
            .schedule(minutely.clone());
        worker
            .handle_raw("digests", |_: Run| async { Ok(()) })
            .start()
            .unwrap()
    };
    let (a, b) = (start("a"), start("b"));
    tokio::time::sleep(Duration::from_secs(30 * 60 + 30)).await;
    let runs = backstop
        .schedules()
        .runs(&minutely.name, 100)
        .await
        .unwrap();
    assert_eq!(
        runs.len(),
        31,
        "the first instant is that of its registration"
    );
    for entry in &runs {
        assert_eq!(entry.outcome, InstantOutcome::Fired);
        assert!(entry.lateness() < Span::millis(200), "{entry:?}");
        let job = backstop
            .job(entry.job(&minutely.name).unwrap())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(job.state, JobState::Done);
    }
    let status = backstop.schedules().status(&minutely).await.unwrap();
    assert_eq!(
        (status.missing, status.last.unwrap().instant),
        (0, runs[0].instant)
    );
    assert_eq!(status.next, Some(runs[0].instant.after(Span::minutes(1))));
    a.stop();
    b.stop();
    assert_eq!(a.stopped().await.done + b.stopped().await.done, 31);
}

#[tokio::test(start_paused = true)]
async fn many_workers_leave_an_instant_to_the_one_that_was_first() {
    let store = Arc::new(Counted::new(Arc::new(MemoryStore::new())));
    let clock = Arc::new(VirtualClock::start());
    let minutely = schedule("minutely", "* * * * *");
    let start = |n: u64| {
        let (store, clock) = (
            Arc::<Counted>::clone(&store),
            Arc::<VirtualClock>::clone(&clock),
        );
        let worker = Backstop::on(store, clock, RandomSource::seeded(n))
            .worker()
            .name(&n.to_string());
        worker
            .services(ServicePlacement::CallersRuntime)
            .schedule(minutely.clone())
            .start()
            .unwrap()
    };
    let workers: Vec<_> = (0..10).map(start).collect();
    tokio::time::sleep(Duration::from_secs(30)).await;
    store.take_calls();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let calls = store.take_calls();
    assert_eq!(calls["enqueue"], 10, "one for each instant: {calls:?}");
    drop(workers);
}

#[tokio::test(start_paused = true)]
async fn what_a_process_agreed_to_fire_and_did_not_is_fired_by_another_within_seconds() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let clock = Arc::new(VirtualClock::start());
    let backstop = |store: Arc<dyn Store>| {
        Backstop::on(
            store,
            Arc::<VirtualClock>::clone(&clock),
            RandomSource::seeded(2),
        )
    };
    let hourly = schedule("hourly", "0 * * * *");
    let flaky = Arc::new(Flaky::new(Arc::clone(&store), 1));
    // It reads its standing, its page, the page to change it, and changes it; nothing it says after
    // that is heard.
    for _ in 0..5 {
        flaky.next_call(Fault::LostHint);
    }
    for _ in 0..100 {
        flaky.next_call(Fault::Refused);
    }
    let doomed = backstop(Arc::<Flaky>::clone(&flaky));
    let one = std::slice::from_ref(&hourly);
    let killed =
        tokio::time::timeout(Duration::from_millis(500), doomed.schedules().look(one)).await;
    assert!(
        killed.is_err() && flaky.injected_into("enqueue", Fault::Refused) > 0,
        "{flaky:?}"
    );
    let other = backstop(Arc::clone(&store));
    assert_eq!(
        other.schedules().runs(&hourly.name, 9).await.unwrap()[0].outcome,
        InstantOutcome::Due
    );
    let worker = other
        .worker()
        .services(ServicePlacement::CallersRuntime)
        .schedule(hourly.clone())
        .start()
        .unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await;
    let runs = other.schedules().runs(&hourly.name, 9).await.unwrap();
    assert_eq!(
        (runs.len(), runs[0].outcome),
        (1, InstantOutcome::Fired),
        "{runs:?}"
    );
    worker.stop();
    worker.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_slept_for_hours_makes_up_what_its_policy_says() {
    for (policy, expected) in [
        (MissedPolicy::Skip, 1),
        (MissedPolicy::One, 2),
        (MissedPolicy::All, 4),
    ] {
        let clock = Arc::new(VirtualClock::start());
        let backstop = Backstop::on(
            Arc::new(MemoryStore::new()),
            Arc::<VirtualClock>::clone(&clock),
            RandomSource::seeded(3),
        );
        let missed = MissedSettings {
            policy,
            max: 3,
            ..MissedSettings::default()
        };
        let hourly = Schedule {
            missed,
            ..schedule("hourly", "0 * * * *")
        };
        let worker = backstop
            .worker()
            .services(ServicePlacement::CallersRuntime)
            .schedule(hourly.clone())
            .start()
            .unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        clock.jump(Span::hours(6).plus(Span::minutes(50)).as_micros());
        tokio::time::sleep(Duration::from_mins(1)).await;
        let runs = backstop.schedules().runs(&hourly.name, 100).await.unwrap();
        let fired: Vec<&LedgerEntry> = runs
            .iter()
            .filter(|entry| entry.outcome.has_job())
            .collect();
        assert_eq!(
            (runs.len(), fired.len()),
            (7, expected),
            "{policy:?}: {runs:?}"
        );
        if policy == MissedPolicy::One {
            let newest = fired[0].instant;
            assert_eq!(
                (fired[0].outcome, newest.to_string().as_str()),
                (InstantOutcome::MadeUp, "2026-01-01T06:00:00Z")
            );
            assert!(
                runs[1..6]
                    .iter()
                    .all(|entry| entry.outcome == InstantOutcome::Coalesced(newest))
            );
        }
        worker.stop();
        worker.stopped().await;
    }
}

#[tokio::test]
async fn a_pause_outlasts_restarts_and_what_falls_into_it_is_skipped() {
    let place = Place::in_memory("2026-11-16T00:00:00Z");
    let daily = daily();
    let one = std::slice::from_ref(&daily);
    place.race(1, one).await;
    assert!(
        place
            .process(1)
            .schedules()
            .pause(&daily.name)
            .await
            .unwrap()
    );
    assert!(
        !place
            .process(2)
            .schedules()
            .pause(&daily.name)
            .await
            .unwrap()
    );
    assert!(
        place
            .process(2)
            .schedules()
            .status(&daily)
            .await
            .unwrap()
            .paused
            .is_some()
    );
    for day in [16, 17, 18] {
        place.set(&format!("2026-11-{day}T08:30:00Z"));
        place.race(2, one).await;
    }
    // Nobody looks on the 19th: what falls into a pause is explained later, too.
    place.set("2026-11-20T08:00:00Z");
    assert!(
        place
            .process(3)
            .schedules()
            .resume(&daily.name)
            .await
            .unwrap()
    );
    assert!(
        !place
            .process(3)
            .schedules()
            .resume(&daily.name)
            .await
            .unwrap()
    );
    place.set("2026-11-20T08:30:00Z");
    place.race(2, one).await;
    let skipped = |day| format!("11-{day}T08:30 skipped (paused)");
    let expected = [
        skipped(16),
        skipped(17),
        skipped(18),
        skipped(19),
        "11-20T08:30 fired".to_owned(),
    ];
    assert_eq!(place.ledger(&daily).await, expected);
    assert_eq!(place.digests().await, ["daily 2026-11-20"]);
}

#[tokio::test]
async fn a_full_queue_is_tried_again_and_nothing_is_entered_meanwhile() {
    let place = Place::in_memory("2026-11-16T00:00:00Z");
    let daily = daily();
    let one = std::slice::from_ref(&daily);
    place.race(1, one).await;
    let bounds = |max| QueueBounds {
        max_size: Some(max),
        ..QueueBounds::default()
    };
    place
        .store
        .set_bounds(daily.queue.clone(), bounds(1), place.clock.now())
        .await
        .unwrap();
    place
        .process(1)
        .draft("digests")
        .payload(&br#"{"range":"other","date":"-"}"#[..])
        .push()
        .await
        .unwrap();
    place.set("2026-11-16T08:30:00Z");
    let looked = place
        .process(2)
        .schedules()
        .look(one)
        .await
        .unwrap()
        .remove(0);
    assert_eq!((looked.waiting, looked.entered.len()), (1, 0));
    assert_eq!(place.ledger(&daily).await, ["11-16T08:30 due"]);
    assert!(
        place
            .process(2)
            .schedules()
            .missed(one, place.clock.now())
            .await
            .unwrap()
            .is_empty()
    );
    place.set("2026-11-16T10:00:00Z");
    place.race(2, one).await;
    let missed = place
        .process(2)
        .schedules()
        .missed(one, place.clock.now())
        .await
        .unwrap();
    assert_eq!(
        missed,
        [(time("2026-11-16T08:30:00Z"), daily.name.clone())],
        "in no queue is missing"
    );
    let refused = place.process(2).schedules().trigger(&daily).await;
    assert!(matches!(refused, Err(TriggerError::Full(_))), "{refused:?}");
    place
        .store
        .set_bounds(daily.queue.clone(), bounds(10), place.clock.now())
        .await
        .unwrap();
    place.race(2, one).await;
    assert_eq!(place.ledger(&daily).await, ["11-16T08:30 made_up"]);
    // One that stays full for longer than anybody looks back is given up, and that is said.
    place
        .store
        .set_bounds(daily.queue.clone(), bounds(2), place.clock.now())
        .await
        .unwrap();
    place.set("2026-11-17T08:30:00Z");
    place.race(2, one).await;
    place.set("2026-11-24T08:31:00Z");
    place.race(2, one).await;
    let ledger = place.ledger(&daily).await;
    assert_eq!(ledger[1], "11-17T08:30 missed (queue full)", "{ledger:?}");
}

#[tokio::test]
async fn a_run_by_hand_is_entered_under_its_own_id_and_touches_no_instant() {
    let place = Place::in_memory("2026-11-16T08:00:00.25Z");
    let daily = daily();
    place.race(1, std::slice::from_ref(&daily)).await;
    let process = place.process(1);
    process.schedules().pause(&daily.name).await.unwrap();
    let first = process.schedules().trigger(&daily).await.unwrap();
    let second = process.schedules().trigger(&daily).await.unwrap();
    process.schedules().resume(&daily.name).await.unwrap();
    assert_ne!(first.id, second.id);
    place.set("2026-11-16T08:30:00Z");
    place.race(1, std::slice::from_ref(&daily)).await;
    let runs = process.schedules().runs(&daily.name, 10).await.unwrap();
    assert_eq!(
        runs.iter()
            .map(|entry| entry.outcome.as_str())
            .collect::<Vec<_>>(),
        ["fired", "triggered", "triggered"]
    );
    assert_eq!(
        runs[0].job(&daily.name),
        Some(job_id(&daily.name, time("2026-11-16T08:30:00Z")))
    );
    assert!(
        runs[1..]
            .iter()
            .any(|entry| entry.job(&daily.name) == Some(first.id))
    );
    assert_eq!(place.digests().await, ["daily 2026-11-16"; 3]);
    assert_eq!(first.instant, time("2026-11-16T08:00:00Z"));
}

#[tokio::test]
async fn even_a_job_that_is_long_gone_is_not_fired_again_when_the_ledger_is_lost() {
    let place = Place::in_memory("2026-11-16T00:00:00Z");
    let daily = Schedule {
        since: Some(time("2026-11-16T00:00:00Z")),
        ..daily()
    };
    let one = std::slice::from_ref(&daily);
    place.race(1, one).await;
    place.set("2026-11-16T08:30:00Z");
    place.race(1, one).await;
    let worked = place
        .process(1)
        .worker()
        .handle_raw("digests", |_: Run| async { Ok(()) });
    let gone = backstop::QueueSettings {
        retention: backstop::core::port::Retention {
            done_for: Span::ZERO,
            ..Default::default()
        },
        ..Default::default()
    };
    assert_eq!(worked.queue("digests", gone).drain().await.unwrap().done, 1);
    assert!(place.jobs().await.is_empty());
    let query = backstop::core::port::ListCellsRequest {
        prefix: "ledger/".to_owned(),
        after: None,
        limit: 10,
    };
    for cell in place.store.list_cells(query).await.unwrap() {
        let removal = backstop::core::port::CellSwap {
            name: cell.name,
            seen: Some(cell.version),
            version: 1,
            value: None,
        };
        place.store.swap(vec![removal]).await.unwrap();
    }
    place.set("2026-11-17T08:00:00Z");
    place.race(3, one).await;
    assert!(place.jobs().await.is_empty(), "its key outlasts it");
    assert_eq!(place.ledger(&daily).await, ["11-16T08:30 made_up"]);
}

#[tokio::test]
async fn the_ledger_is_bounded_and_years_leave_two_months_behind() {
    let place = Place::in_memory("2026-01-01T00:00:00Z");
    let hourly = Schedule {
        missed: MissedSettings {
            policy: MissedPolicy::Skip,
            ..MissedSettings::default()
        },
        ..schedule("hourly", "0 * * * *")
    };
    let one = std::slice::from_ref(&hourly);
    place.race(1, one).await;
    for _ in 0..100 {
        place.clock.advance(Span::days(3));
        place.race(1, one).await;
    }
    let query = backstop::core::port::ListCellsRequest {
        prefix: "ledger/".to_owned(),
        after: None,
        limit: 1_000,
    };
    let pages = place.store.list_cells(query).await.unwrap().len();
    assert!((60..70).contains(&pages), "{pages} pages");
    // Away for longer than it looks back: what is older is explained as far as the ledger goes.
    place.clock.advance(Span::days(10));
    place.race(1, one).await;
    let runs = place
        .process(1)
        .schedules()
        .runs(&hourly.name, 24 * 11)
        .await
        .unwrap();
    let old = runs
        .iter()
        .filter(|entry| entry.outcome == InstantOutcome::Missed(SkipReason::TooOld))
        .count();
    assert!((71..=73).contains(&old), "{old}");
}

#[tokio::test]
async fn a_worker_whose_schedule_cannot_work_does_not_start() {
    let place = Place::in_memory("2026-01-01T00:00:00Z");
    let bad = Schedule {
        missed: MissedSettings {
            max: 0,
            ..MissedSettings::default()
        },
        ..daily()
    };
    let refused = place
        .process(1)
        .worker()
        .schedule(bad)
        .start()
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains("schedule daily: missed.max is 0"),
        "{refused}"
    );
}
