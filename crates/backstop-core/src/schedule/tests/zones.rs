//! Two years of eight zones, checked minute by minute around every clock change: an oracle that
//! shares no code with the rules.

use super::*;
use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(super) const ZONES: [&str; 8] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/Santiago",
    "UTC",
];

const EXPRESSIONS: [(&str, bool); 9] = [
    ("30 2 * * *", true),
    ("0 0 * * *", true),
    ("15,45 0-3 * * *", true),
    ("30 23 * * 6", true),
    ("0 8 30 12 *", true),
    ("0 * * * *", false),
    ("*/20 * * * *", false),
    ("10 */3 * * *", false),
    ("*/7 2 * * *", false),
];

/// Whether a local minute matches the expression, judged by its fields alone.
fn fits(cron: &croner::Cron, local: jiff::civil::DateTime) -> bool {
    cron.is_time_matching(&local).unwrap()
}

/// The instants in [from, until), found by checking every minute.
fn walked(cron: &str, is_fixed: bool, zone: &TimeZone, from: i64, until: i64) -> Vec<Time> {
    let pattern: croner::Cron = cron.parse().unwrap();
    let local = |second: i64| zone.to_datetime(Timestamp::from_second(second).unwrap());
    let mut found = Vec::new();
    let mut furthest = local(from - 60);
    for second in (from..until).step_by(60) {
        let now = local(second);
        let fires = if is_fixed {
            // Every local minute counts when the clock first reaches it, or passes it.
            let mut minute = furthest;
            let mut any = false;
            while minute < now {
                minute = minute.checked_add(jiff::Span::new().minutes(1)).unwrap();
                any |= fits(&pattern, minute);
            }
            any
        } else {
            fits(&pattern, now)
        };
        furthest = furthest.max(now);
        if fires {
            found.push(Time::from_micros(second * 1_000_000));
        }
    }
    found
}

#[test]
fn around_every_change_of_clocks_the_instants_are_those_of_a_minute_by_minute_walk() {
    let mut changes = 0;
    for name in ZONES {
        let zone = TimeZone::get(name).unwrap();
        let years = if name == "Pacific/Apia" {
            ("2011-01-01T00:00:00Z", "2013-01-01T00:00:00Z")
        } else {
            ("2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z")
        };
        let (begin, end): (Timestamp, Timestamp) =
            (years.0.parse().unwrap(), years.1.parse().unwrap());
        let at: Vec<i64> = zone
            .following(begin)
            .map(|change| change.timestamp().as_second())
            .take_while(|at| *at < end.as_second())
            .collect();
        changes += at.len();
        for around in at.into_iter().chain([begin.as_second() + 86_400 * 9]) {
            let (from, until) = (around - 86_400 * 3 / 2, around + 86_400 * 3 / 2);
            for (cron, is_fixed) in EXPRESSIONS {
                let expected = walked(cron, is_fixed, &zone, from, until);
                let after = Time::from_micros(from * 1_000_000 - 1);
                let found: Vec<Time> = schedule(cron, name)
                    .between(after, Time::from_micros(until * 1_000_000 - 1))
                    .collect();
                assert_eq!(found, expected, "{cron} in {name}");
            }
        }
    }
    assert!(changes >= 24, "{changes} changes were looked at");
}
