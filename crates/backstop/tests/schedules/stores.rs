//! What every store must do for schedules alike.

use crate::place::{Place, daily, schedule, weekly};
use backstop::schedules::{MissedPolicy, MissedSettings};
use backstop::{Clock, Run, Schedule, Span};
use std::sync::{Arc, Mutex};

const BEGIN: &str = "2026-10-26T12:00:00Z";

/// Tests of these rules, on every store.
macro_rules! on_every_store {
    ($($rule:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $rule() {
                super::$rule(&crate::place::Place::in_memory(super::BEGIN)).await;
            })+
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")] async fn $rule() {
                let folder = tempfile::tempdir().unwrap();
                let address = format!("sqlite:{}", folder.path().join("b.db").display());
                super::$rule(&crate::place::Place::at(&address, super::BEGIN).await).await;
            })+
        }
        on_every_store!(postgres "postgres": $($rule),+);
        on_every_store!(redis "redis": $($rule),+);
        on_every_store!(cluster "redis": $($rule),+);
    };
    ($server:ident $feature:literal: $($rule:ident),+) => {
        #[cfg(feature = $feature)]
        mod $server {
            $(#[tokio::test(flavor = "multi_thread")] async fn $rule() {
                let address = backstop_testkit::servers::$server().fresh_url();
                super::$rule(&crate::place::Place::at(&address, super::BEGIN).await).await;
            })+
        }
    };
}

on_every_store!(a_lost_week_is_made_up, what_is_made_up_runs_oldest_first);

/// Daily at 08:30 and Saturdays at 08:30, London: all of it lost for a week, except the one that
/// ran on Wednesday.
async fn a_lost_week_is_made_up(place: &Place) {
    let (daily, weekly) = (daily(), weekly());
    let both = [daily.clone(), weekly.clone()];
    place.race(3, &both).await;
    assert_eq!(
        place.digests().await,
        Vec::<String>::new(),
        "nothing was expected before it was registered"
    );
    place.set("2026-10-27T08:30:00Z");
    place.race(3, &both).await;
    assert_eq!(place.digests().await, ["daily 2026-10-27"]);
    // Summer time ended on the 25th; the week that is lost is one of winter time.
    place.set("2026-11-03T09:31:00Z");
    let missed = place
        .process(5)
        .schedules()
        .missed(&both, place.clock.now())
        .await
        .unwrap();
    let missed: Vec<String> = missed
        .iter()
        .map(|(at, name)| format!("{} {name}", &at.to_string()[5..16]))
        .collect();
    let expected = [
        "10-28T08:30 daily",
        "10-29T08:30 daily",
        "10-30T08:30 daily",
        "10-31T08:30 daily",
        "10-31T08:30 weekly",
        "11-01T08:30 daily",
        "11-02T08:30 daily",
        "11-03T08:30 daily",
    ];
    assert_eq!(missed, expected);
    for _ in 0..3 {
        place.race(3, &both).await;
    }
    let digests = [
        "daily 2026-10-27",
        "daily 2026-10-28",
        "daily 2026-10-29",
        "daily 2026-10-30",
        "daily 2026-10-31",
        "daily 2026-11-01",
        "daily 2026-11-02",
        "daily 2026-11-03",
        "weekly 2026-10-31",
    ];
    assert_eq!(
        place.digests().await,
        digests,
        "exactly the missing dates, none twice"
    );
    assert_eq!(place.ledger(&weekly).await, ["10-31T08:30 made_up"]);
    let ledger = place.ledger(&daily).await;
    assert_eq!(
        (ledger.len(), ledger[0].as_str(), ledger[1].as_str()),
        (8, "10-27T08:30 fired", "10-28T08:30 made_up")
    );
    assert!(
        place
            .process(5)
            .schedules()
            .missed(&both, place.clock.now())
            .await
            .unwrap()
            .is_empty()
    );
}

/// However many race for them, and in whatever order they come to agree on days.
async fn what_is_made_up_runs_oldest_first(place: &Place) {
    let often = Schedule {
        missed: MissedSettings {
            policy: MissedPolicy::All,
            max: 100,
            ..MissedSettings::default()
        },
        ..schedule("often", "0 */3 * * *")
    };
    let one = std::slice::from_ref(&often);
    place.race(1, one).await;
    place.clock.advance(Span::days(5).plus(Span::minutes(100)));
    place.race(4, one).await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let noting = Arc::clone(&ran);
    let note = move |run: Run| {
        let payload: serde_json::Value = serde_json::from_slice(run.payload()).unwrap();
        noting
            .lock()
            .unwrap()
            .push(payload["instant"].as_str().unwrap().to_owned());
        async { Ok(()) }
    };
    place
        .process(7)
        .worker()
        .handle_raw("digests", note)
        .drain()
        .await
        .unwrap();
    let ran = ran.lock().unwrap().clone();
    let mut sorted = ran.clone();
    sorted.sort();
    assert_eq!(ran, sorted, "as they were due");
    assert!(
        (40..=42).contains(&ran.len()),
        "{} since {}",
        ran.len(),
        place.clock.now()
    );
}
