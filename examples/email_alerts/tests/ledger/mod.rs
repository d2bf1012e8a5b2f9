//! Which digests are missing: the rule of the source, and what the ledgers of our schedules say.
//!
//! The source looks at seven dates that end with today, once it is later than 09:00 in London, and
//! with yesterday before that; and at the one Saturday among them. A ledger looks at instants of
//! the last seven times 24 hours that are later than their grace of half an hour.

use backstop::schedules::Schedule;
use backstop::{Time, testing};
use email_alerts::config::{self, COMPLETION, Pace};
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};
use std::collections::BTreeSet;

/// A digest: its kind and date.
type Digest = (String, String);

/// The source's rule, for somebody who has made no digest at all.
fn source(now: &Zoned) -> BTreeSet<Digest> {
    let is_late = now.time() > jiff::civil::time(9, 0, 0, 0);
    let last = if is_late {
        now.date()
    } else {
        now.date().yesterday().unwrap()
    };
    let dates: Vec<Date> = (0..7).map(|back| last - back.days()).collect();
    let daily = dates
        .iter()
        .map(|date| ("DailyDigestInitiator".to_owned(), date.to_string()));
    let saturdays = dates
        .iter()
        .filter(|date| date.weekday() == Weekday::Saturday);
    daily
        .chain(saturdays.map(|date| ("WeeklyDigestInitiator".to_owned(), date.to_string())))
        .collect()
}

/// What the ledgers say, for somebody who has made no digest at all.
async fn ledger(now: &Zoned) -> BTreeSet<Digest> {
    let since: Time = "2026-01-01T00:00:00Z".parse().unwrap();
    let text = config::text(
        "postgres://alerts@localhost/alerts",
        Pace::REAL,
        Some(since),
    );
    let schedules = config::read(&text).unwrap().schedules.into_values();
    let digests: Vec<Schedule> = schedules
        .filter(|schedule| schedule.name.as_str() != COMPLETION)
        .collect();
    let store = testing::start();
    let at = Time::from_millis(now.timestamp().as_millisecond());
    let missed = store
        .backstop
        .schedules()
        .missed(&digests, at)
        .await
        .unwrap();
    let named = missed.into_iter().map(|(instant, name)| {
        let schedule = digests
            .iter()
            .find(|schedule| schedule.name == name)
            .unwrap();
        (
            schedule.kind.as_str().to_owned(),
            schedule.timezone.date(instant),
        )
    });
    named.collect()
}

fn london(text: &str) -> Zoned {
    let timestamp: Timestamp = text.parse().unwrap();
    timestamp.to_zoned(TimeZone::get("Europe/London").unwrap())
}

#[tokio::test]
async fn the_ledger_misses_what_the_source_misses() {
    // Two weeks of summer in steps of 17 minutes, which fall on every time of day.
    let mut now = london("2026-07-01T00:00:00Z");
    let end = london("2026-07-15T00:00:00Z");
    while now < end {
        let half_hour = jiff::civil::time(8, 30, 0, 0)..=jiff::civil::time(9, 0, 0, 0);
        if !half_hour.contains(&now.time()) {
            assert_eq!(ledger(&now).await, source(&now), "at {now}");
        }
        now = &now + 17.minutes();
    }
}

#[tokio::test]
async fn between_half_past_eight_and_nine_the_source_looks_back_half_an_hour_further() {
    let now = london("2026-07-08T07:45:00Z");
    let only_source: Vec<Digest> = source(&now)
        .difference(&ledger(&now).await)
        .cloned()
        .collect();
    assert_eq!(
        only_source,
        [("DailyDigestInitiator".to_owned(), "2026-07-01".to_owned())]
    );
    assert!(
        ledger(&now).await.is_subset(&source(&now)),
        "and the ledger sees nothing else"
    );
}

#[tokio::test]
async fn a_digest_is_missing_half_an_hour_after_it_was_due_also_where_clocks_were_changed() {
    let today = |date: &str| ("DailyDigestInitiator".to_owned(), date.to_owned());
    for (nine, date) in [
        ("2026-03-29T08:00:00Z", "2026-03-29"),
        ("2026-10-25T09:00:00Z", "2026-10-25"),
    ] {
        let nine = london(nine);
        let later = &nine + 1.second();
        assert!(
            !source(&nine).contains(&today(date)) && !ledger(&nine).await.contains(&today(date))
        );
        assert!(
            source(&later).contains(&today(date)) && ledger(&later).await.contains(&today(date))
        );
    }
}
