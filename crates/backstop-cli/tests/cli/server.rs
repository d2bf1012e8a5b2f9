//! Stores on a server: reached, not reached, and never with their password shown.

use crate::place::{Place, finished, json_args};
use backstop_testkit::servers::{cluster, postgres, redis};
use serde_json::Value;

/// Nobody listens there.
const NOBODY: [(&str, &str); 3] = [
    ("postgres://u:secret@127.0.0.1:1/d?password=secret", "psql"),
    ("redis://u:secret@127.0.0.1:1", "redis-cli"),
    (
        "redis+cluster://u:secret@127.0.0.1:1,127.0.0.1:2",
        "redis-cli",
    ),
];

#[test]
fn a_store_that_cannot_be_reached_is_named_with_what_to_look_at() {
    // Each takes as long as the store keeps trying; all of them at once take no longer.
    std::thread::scope(|scope| {
        for (address, program) in NOBODY {
            for command in [
                vec!["doctor"],
                vec!["push", "q", "1"],
                vec!["doctor", "--json"],
            ] {
                scope.spawn(move || check_not_reached(address, program, &command));
            }
        }
    });
}

fn check_not_reached(address: &str, program: &str, command: &[&str]) {
    let scheme = address.split("u:").next().unwrap();
    let answer = Place::at(address.to_owned()).run(command);
    let answer = answer.complains(1, &[scheme, "did not answer", program]);
    assert!(!answer.stderr.contains("secret"), "{answer:#?}");
    if command.contains(&"--json") {
        let told: Value = serde_json::from_str(&answer.stderr).unwrap();
        assert!(
            told["error"].is_string() && told["try"].is_string(),
            "{told}"
        );
    } else {
        assert!(answer.stderr.contains("\n  try: "), "{answer:#?}");
    }
}

#[test]
fn an_address_that_cannot_be_one_is_wrong_use() {
    let cases = [
        ("postgres://u:secret@h:port/d", "postgres://USER"),
        ("postgres://u:secret@h/d?schema=No-Name", "lower-case"),
        ("redis://u:secret@h:port", "redis://HOST"),
        ("redis://u:secret@h/name", "a number"),
        ("redis+sentinel://u:secret@h", "/MASTER"),
    ];
    for (address, part) in cases {
        let answer = Place::at(address.to_owned())
            .run(["queue", "list"])
            .complains(2, &[part, "try: --store "]);
        assert!(!answer.stderr.contains("secret"), "{answer:#?}");
    }
    let place = Place::at("redis://u:secret@h".to_owned());
    let answer = place.run(["push", "q", "1", "--durability", "relaxed"]);
    answer.complains(
        2,
        &["appendfsync", "try: the same without relaxed durability"],
    );
}

#[test]
fn a_role_that_may_not_migrate_is_told_what_it_takes() {
    let role = format!("may_not_{}", std::process::id());
    postgres().sql(&format!("CREATE ROLE {role} LOGIN"));
    let place = Place::at(
        postgres()
            .fresh_url()
            .replace("backstop@", &format!("{role}@")),
    );
    for command in [vec!["migrate"], vec!["push", "q", "1"]] {
        place.run(command).complains(
            1,
            &[
                "not allowed: ",
                "try: backstop migrate as the owner",
                "GRANT CREATE",
            ],
        );
    }
}

#[test]
fn a_store_of_a_pre_release_is_refused_with_what_to_do() {
    let (database, server) = (postgres().fresh_url(), redis().fresh_url());
    let schema = database
        .split_once("schema=")
        .expect("a schema of its own")
        .1;
    postgres().sql(&format!(
        "CREATE SCHEMA {schema} AUTHORIZATION backstop; CREATE TABLE {schema}.version (number int)"
    ));
    let prefix = server.split_once("prefix=").expect("a prefix of its own").1;
    redis().cli(&["set", &format!("{prefix}:schema"), "4"]);
    for address in [&database, &server] {
        for command in [
            vec!["migrate"],
            vec!["push", "q", "1"],
            vec!["queue", "list"],
        ] {
            Place::at(address.clone()).run(command).complains(
                1,
                &[
                    "made by a pre-release of backstop. Export what you need",
                    "try: another --store",
                ],
            );
        }
    }
}

#[test]
fn a_password_is_never_shown() {
    let address = postgres()
        .fresh_url()
        .replace("backstop@", "backstop:secret@");
    let place = Place::at(address.clone());
    let commands: [&[&str]; 9] = [
        &["migrate"],
        &["push", "q", "1", "-vv"],
        &["work", "q", "--exec", "exit 0", "--until-empty", "-vv"],
        &["queue", "list"],
        &["doctor"],
        &["doctor", "--json"],
        &["demo", "--no-server", "--jobs", "30", "--store", &address],
        &[
            "demo",
            "--no-server",
            "--jobs",
            "30",
            "--store",
            &address,
            "--json",
        ],
        &["bench", "--quick", "--store", &address],
    ];
    for command in commands {
        // The server of the tests does not wait for the disk, and the doctor says that this falls
        // short.
        let answer = place.run(command).exits(i32::from(command[0] == "doctor"));
        assert!(
            !answer.stdout.contains("secret") && !answer.stderr.contains("secret"),
            "{answer:#?}"
        );
    }
    let wrong = Place::at(address.replace("/backstop?", "/no_such_database?"));
    assert!(!wrong.run(["doctor"]).exits(1).stderr.contains("secret"));
}

/// Measures quickly, and answers the report, with the name that is part of whatever it makes:
/// others measure there as well.
fn bench(place: &Place, more: &[&str]) -> (Value, String) {
    let store = place.store();
    let child = place.start(json_args(
        ["bench", "--quick", "--store", &store].iter().chain(more),
    ));
    let name = format!("backstop_bench_{:010}", child.id());
    let report = finished(child).succeeded().json();
    for round in report["rounds"].as_array().unwrap() {
        for measure in ["enqueue_bulk", "enqueue_callers", "drain"] {
            assert!(
                round["ratio_to_raw"][measure].as_f64().unwrap() > 0.0,
                "{measure}: {report}"
            );
        }
        assert!(
            round["pickup"]["p50_ms"].as_f64().unwrap() > 0.0,
            "{report}"
        );
    }
    (report, name)
}

#[test]
fn bench_on_postgresql_leaves_nothing_behind_and_can_hold_a_snapshot() {
    let place = Place::at(postgres().fresh_url());
    place.json(["push", "backstop-bench", "1"]);
    let (report, name) = bench(&place, &["--held-snapshot"]);
    assert_eq!(
        (report["store"].as_str(), report["durability"].as_str()),
        (Some("postgres"), Some("full"))
    );
    for rounds in ["rounds", "single"] {
        assert_eq!(
            report["held_snapshot"][rounds].as_array().unwrap().len(),
            10
        );
    }
    assert_eq!(
        place.count("backstop-bench", "ready"),
        1,
        "what was there is as it was"
    );
    let left =
        format!("SELECT count(*) FROM pg_namespace WHERE nspname IN ('{name}', '{name}_raw')");
    assert_eq!(postgres().sql(&left).trim(), "0");
    Place::new()
        .run(["bench", "--held-snapshot"])
        .complains(2, &["PostgreSQL"]);
}

#[test]
fn bench_on_redis_leaves_nothing_behind() {
    let place = Place::at(redis().fresh_url());
    place.json(["push", "backstop-bench", "1"]);
    let (report, name) = bench(&place, &[]);
    assert_eq!(report["store"], "redis");
    assert_eq!(
        place.count("backstop-bench", "ready"),
        1,
        "what was there is as it was"
    );
    assert_eq!(redis().cli(&["keys", &format!("*{name}*")]).trim(), "");
}

#[test]
fn bench_on_a_cluster_leaves_nothing_behind() {
    let (report, name) = bench(&Place::at(cluster().fresh_url()), &[]);
    assert_eq!(report["store"], "redis");
    for node in cluster().masters() {
        assert_eq!(node.cli(&["keys", &format!("*{name}*")]).trim(), "");
    }
}

#[test]
fn looking_at_a_database_without_a_store_leaves_nothing_behind() {
    let place = Place::at(postgres().fresh_url());
    let schemas = || postgres().sql("SELECT string_agg(nspname, ' ') FROM pg_namespace");
    let schema = place
        .store()
        .split("schema=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap()
        .to_owned();
    for command in [
        vec!["queue", "list"],
        vec!["job", "list"],
        vec!["dead", "stats"],
        vec!["schedule", "list"],
    ] {
        let answer = place.run(command).succeeded();
        for part in ["there is no store at", "the first push", "backstop migrate"] {
            assert!(answer.stderr.contains(part), "{answer:#?}");
        }
        assert!(!schemas().contains(&schema), "{answer:#?}");
    }
    place.json(["push", "q", "1"]);
    assert!(schemas().contains(&schema));
    assert!(
        !place
            .run(["queue", "list"])
            .succeeded()
            .stderr
            .contains("no store")
    );
}

#[test]
fn looking_at_an_empty_redis_leaves_nothing_behind_and_doctor_finds_it_fine() {
    use backstop_testkit::servers::redis::{Append, Redis, Settings};
    let server = Redis::start(Settings {
        append: Append::Always,
        ..Settings::default()
    });
    let place = Place::at(server.url());
    let answer = place.run(["queue", "list"]).succeeded();
    assert!(
        answer.stderr.contains("there is no store at"),
        "{answer:#?}"
    );
    let answer = place.run(["doctor"]).succeeded();
    assert!(
        answer
            .stdout
            .contains("it comes into being with the first push"),
        "{answer:#?}"
    );
    assert_eq!(server.cli(&["dbsize"]).trim(), "0");
    place.json(["push", "q", "1"]);
    server.cli(&["del", "backstop:schema"]);
    assert_eq!(
        place.run(["queue", "list"]).succeeded().stderr,
        "",
        "it has a queue"
    );
}

#[test]
fn a_worker_whose_role_may_nothing_says_so_once() {
    let address = postgres().fresh_url();
    Place::at(address.clone()).run(["migrate"]).succeeded();
    let (_, schema) = address.split_once("schema=").unwrap();
    postgres().sql(&format!(
        "CREATE ROLE idle_{schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO idle_{schema};
         GRANT SELECT ON {schema}.version TO idle_{schema}"
    ));
    let place = Place::at(address.replace("backstop@", &format!("idle_{schema}@")));
    let answer = place.run(["work", "q", "--exec", "true"]);
    assert!(!answer.stderr.contains("WARN"), "{answer:#?}");
    answer.complains(
        1,
        &[
            "not allowed: function ",
            "try: as the owner of the schema: GRANT USAGE",
        ],
    );
}
