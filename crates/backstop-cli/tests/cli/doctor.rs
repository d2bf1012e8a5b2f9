//! `backstop doctor` on servers that fall short, and on those that do not.

use crate::place::{Place, json_args};
use backstop_testkit::servers::postgres::{Fsync, Postgres, Settings as PostgresSettings};
use backstop_testkit::servers::redis::{Append, Redis, Settings as RedisSettings};
use serde_json::Value;

/// What it says of a store: its promise, and what it finds bad.
fn examined(place: &Place, code: i32) -> (String, Vec<String>) {
    let shape: Value = place.run(json_args(["doctor"])).exits(code).json();
    let findings = shape["findings"].as_array().unwrap().iter();
    let bad = findings.filter(|finding| finding["grade"] == "bad");
    (
        shape["promise"].as_str().unwrap().to_owned(),
        bad.map(|finding| finding["what"].as_str().unwrap().to_owned())
            .collect(),
    )
}

#[track_caller]
fn check(place: &Place, promise: &str, bad: &[&str]) {
    let (promised, found) = examined(place, i32::from(!bad.is_empty()));
    assert!(promised.contains(promise), "{promised}");
    assert_eq!(found.len(), bad.len(), "{found:?}");
    for (found, bad) in found.iter().zip(bad) {
        assert!(found.contains(bad), "{found}");
    }
}

#[test]
fn a_redis_is_judged_by_its_log_and_by_what_it_deletes() {
    for (append, promise, bad) in [
        (
            Append::Always,
            "survives a crash of Redis and a power cut",
            &[][..],
        ),
        (Append::EverySecond, "younger than about two seconds", &[]),
        (Append::Off, "may lose everything", &["appendonly = no"]),
    ] {
        let server = Redis::start(RedisSettings {
            append,
            ..RedisSettings::default()
        });
        let place = Place::at(server.fresh_url());
        place.json(["push", "q", "1"]);
        check(&place, promise, bad);
        server.cli(&["config", "set", "maxmemory-policy", "allkeys-lru"]);
        check(
            &place,
            promise,
            &[&["maxmemory-policy = allkeys-lru"], bad].concat(),
        );
    }
}

#[test]
fn a_postgres_is_judged_by_what_it_waits_for() {
    let with = |options: &[(&'static str, &str)]| {
        let options = options
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        Postgres::start(PostgresSettings {
            fsync: Fsync::On,
            options,
            ..PostgresSettings::default()
        })
    };
    for (options, promise, bad) in [
        (&[][..], "of the server, and a power cut", &[][..]),
        (
            &[("fsync", "off")],
            "may lose or damage everything",
            &["fsync = off"],
        ),
        (
            &[("full_page_writes", "off")],
            "may lose or damage everything",
            &["full_page_writes = off"],
        ),
        (
            &[("synchronous_commit", "off")],
            "may lose the last moments",
            &["synchronous_commit = off"],
        ),
    ] {
        let server = with(options);
        let place = Place::at(server.fresh_url());
        place.json(["push", "q", "1"]);
        check(&place, promise, bad);
    }
}
