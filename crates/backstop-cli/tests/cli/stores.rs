//! The main flow, the same on every store.

use crate::place::{Place, ended, json_args, lines, signal, wait_until};
use serde_json::json;

/// Makes a test of each rule, a function of a place, on each store.
macro_rules! on_every_store {
    ($($rule:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test] fn $rule() { super::$rule(&crate::place::Place::new()); })+
        }
        mod postgres {
            use backstop_testkit::servers::postgres;
            $(#[test] fn $rule() { super::$rule(&crate::place::Place::at(postgres().fresh_url())); })+
        }
        mod redis {
            use backstop_testkit::servers::redis;
            $(#[test] fn $rule() { super::$rule(&crate::place::Place::at(redis().fresh_url())); })+
        }
        mod cluster {
            use backstop_testkit::servers::cluster;
            $(#[test] fn $rule() { super::$rule(&crate::place::Place::at(cluster().fresh_url())); })+
        }
    };
}
pub(crate) use on_every_store;

on_every_store! {
    a_job_goes_from_push_to_done,
    a_job_that_fails_is_tried_again_and_one_that_is_rejected_is_dead,
    a_paused_queue_keeps_its_jobs_until_it_is_resumed,
    a_long_list_is_read_page_by_page_and_called_off_as_a_whole,
    doctor_says_what_can_be_relied_on,
    migrate_says_from_where_to_where,
    the_demo_loses_nothing,
    a_job_whose_worker_is_killed_while_it_waits_for_its_retry_goes_on_with_its_count,
    a_full_queue_refuses_and_says_so,
}

fn a_job_goes_from_push_to_done(place: &Place) {
    let pushed = place.json([
        "push",
        "q",
        r#"{"b":1.50,  "a":"é"}"#,
        "--id",
        "a",
        "--kind",
        "Send mail",
    ]);
    assert_eq!(pushed["result"], "inserted");
    assert_eq!(
        place.json(["push", "q", "2", "--id", "a"])["result"],
        "same"
    );
    let unique = ["push", "q", "3", "--unique-key", "k"];
    assert_eq!(place.json(unique)["result"], "inserted");
    assert_eq!(place.json(unique)["result"], "duplicate");
    place.json(["push", "q", "4", "--delay", "1h", "--id", "later"]);
    let list = |state| place.json(["job", "list", "--queue", "q", "--state", state]);
    assert_eq!(list("ready")["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(list("scheduled")["jobs"][0]["payload"], 4);
    let why = place.run(["job", "why", "later"]).succeeded().stdout;
    assert!(why.contains("not due before"), "{why}");
    place.json(["job", "delete", "later"]);
    let line = "cat > $BACKSTOP_JOB_ID; echo $BACKSTOP_KIND $BACKSTOP_ATTEMPT > kind";
    let worked = place.json([
        "work",
        "q",
        "--exec",
        line,
        "--until-empty",
        "--concurrency",
        "1",
    ]);
    assert_eq!((&worked["done"], &worked["dead"]), (&json!(2), &json!(0)));
    let job = place.job("a");
    assert_eq!(
        (&job["state"], &job["attempt"], &job["errors"]),
        (&json!("done"), &json!(1), &json!([]))
    );
    assert_eq!(
        place.read(job["id"].as_str().unwrap()),
        r#"{"b":1.50,  "a":"é"}"#,
        "byte for byte"
    );
    assert_eq!(
        (place.count("q", "done"), place.count("q", "ready")),
        (2, 0)
    );
}

fn a_job_that_fails_is_tried_again_and_one_that_is_rejected_is_dead(place: &Place) {
    place.json(["push", "q", r#""again""#, "--id", "again"]);
    place.json(["push", "q", r#""never""#, "--id", "never"]);
    let line = r#"read p; [ $p = '"never"' ] && { echo no such user >&2; exit 65; }; [ $BACKSTOP_ATTEMPT = 2 ]"#;
    let retry = r#"{"kind":"constant","every":"100ms","max_attempts":3}"#;
    let args = [
        "work",
        "q",
        "--exec",
        line,
        "--retry",
        retry,
        "--until-empty",
    ];
    let worked = place.run(json_args(args)).exits(1).json();
    assert_eq!(
        (&worked["done"], &worked["retried"], &worked["dead"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(place.job("again")["attempt"], 2);
    let dead = place.job("never");
    assert_eq!(
        (&dead["state"], &dead["errors"][0]["message"]),
        (&json!("dead"), &json!("no such user"))
    );
    assert_eq!(
        place.json(["job", "retry", "--state", "dead"]),
        json!({ "count": 1, "refused": [] })
    );
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert_eq!(
        (&place.job("never")["state"], place.count("q", "done")),
        (&json!("done"), 2)
    );
}

fn a_paused_queue_keeps_its_jobs_until_it_is_resumed(place: &Place) {
    assert_eq!(
        place.json(["queue", "pause", "q"]),
        json!({ "name": "q", "paused": true })
    );
    place.json(["push", "q", "1", "--id", "a"]);
    let why = place.run(["job", "why", "a"]).succeeded().stdout;
    assert!(why.contains("paused"), "{why}");
    assert_eq!(place.json(["queue", "resume", "q"])["paused"], false);
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert_eq!(place.job("a")["state"], "done");
    place.json(["push", "q", "2"]);
    assert_eq!(
        place.json(["queue", "clear", "q", "--yes"]),
        json!({ "count": 1 })
    );
}

fn a_long_list_is_read_page_by_page_and_called_off_as_a_whole(place: &Place) {
    let report = place
        .feed(lines(2_500).as_bytes(), json_args(["push", "q", "-"]))
        .succeeded()
        .json();
    assert_eq!(report["inserted"], 2_500);
    let all = place.json(["job", "list", "--queue", "q", "--all"]);
    let mut ids: Vec<&str> = all["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|job| job["id"].as_str())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2_500);
    assert_eq!(
        place.json(["job", "cancel", "--queue", "q"])["count"],
        2_500
    );
    assert_eq!(
        (place.count("q", "cancelled"), place.count("q", "ready")),
        (2_500, 0)
    );
    assert_eq!(
        place.json(["job", "delete", "--queue", "q", "--yes"])["count"],
        2_500
    );
    assert_eq!(place.json(["job", "list"])["jobs"], json!([]));
}

fn doctor_says_what_can_be_relied_on(place: &Place) {
    place.json(["push", "q", "1"]);
    let answer = place.run(json_args(["doctor"]));
    let shape = answer.json();
    let findings = shape["findings"].as_array().unwrap();
    let falls_short = findings.iter().any(|finding| finding["grade"] == "bad");
    let answer = answer.exits(i32::from(falls_short));
    assert!(
        shape["promise"].as_str().unwrap().contains("acknowledged"),
        "{answer:#?}"
    );
    let is_clock = |what: &str| what.contains("clock") && what.contains("this machine's");
    let clock = findings
        .iter()
        .find(|finding| finding["what"].as_str().is_some_and(is_clock));
    assert_eq!(
        clock.unwrap()["grade"],
        "good",
        "both on one machine: {answer:#?}"
    );
    let text = place.run(["doctor"]).exits(i32::from(falls_short)).stdout;
    assert!(
        text.contains("GRADE\tFINDING\tADVICE")
            && text.contains(shape["promise"].as_str().unwrap()),
        "{text}"
    );
}

fn migrate_says_from_where_to_where(place: &Place) {
    let first = place.json(["migrate"]);
    assert_eq!(first["from"], 0);
    assert!(first["to"].as_u64().unwrap() > 0);
    assert_eq!(place.json(["migrate"])["from"], first["to"]);
    let text = place.run(["migrate"]).succeeded().stdout;
    assert!(text.contains("nothing to do"), "{text}");
}

fn the_demo_loses_nothing(place: &Place) {
    let store = place.store();
    let shape = place.json(["demo", "--no-server", "--jobs", "200", "--store", &store]);
    assert_eq!(shape["lost"], 0);
    assert!(shape["done"].as_u64().unwrap() > 0, "{shape}");
    place.run(["queue", "list", "--store", &store]).succeeded();
}

fn a_job_whose_worker_is_killed_while_it_waits_for_its_retry_goes_on_with_its_count(place: &Place) {
    place.json(["push", "q", "1", "--id", "a"]);
    let retry = r#"{"kind":"constant","every":"1s","max_attempts":3}"#;
    let worker = place.start(["work", "q", "--exec", "exit 1", "--retry", retry]);
    wait_until("it waits for its retry", || {
        place.job("a")["state"] == "retrying"
    });
    signal(&worker, "KILL");
    ended(worker);
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    let job = place.job("a");
    assert_eq!(job["state"], "done", "{job}");
    let failed = job["errors"].as_array().unwrap().len() as u64;
    assert_eq!(job["attempt"], failed + 1, "{job}");
    assert!(
        (1..=2).contains(&failed) && job["lost_leases"] == 0,
        "{job}"
    );
}

fn a_full_queue_refuses_and_says_so(place: &Place) {
    place.write("backstop.toml", "[queues.q]\nmax_size = 5\n");
    let report = place
        .feed(b"1\n2\n3\n4\n5\n6\n7\n", ["push", "q", "-", "--json"])
        .exits(1)
        .json();
    assert_eq!(
        (&report["inserted"], &report["full"]),
        (&json!(5), &json!(2))
    );
    let answer = place.run(["push", "q", "8"]).exits(1);
    assert!(
        answer
            .stderr
            .contains("q holds 5 of at most 5 jobs; then reject"),
        "{answer:#?}"
    );
    assert!(
        answer.stderr.contains("q is full and did not take it"),
        "{answer:#?}"
    );
    place
        .run(["work", "q", "--exec", "exit 0", "--until-empty"])
        .succeeded();
    assert_eq!(place.json(["push", "q", "8"])["result"], "inserted");
}

#[test]
fn on_redis_an_id_of_two_queues_is_not_shown_by_guessing() {
    let place = Place::at(backstop_testkit::servers::redis().fresh_url());
    for queue in ["a", "b"] {
        place.json(["push", queue, "1", "--id", "same"]);
        place
            .run(["work", queue, "--exec", "exit 65", "--until-empty"])
            .exits(1);
    }
    for command in [
        ["job", "show", "same"],
        ["job", "why", "same"],
        ["dead", "show", "same"],
    ] {
        let refused = place.run(command).exits(1);
        let told = ["several queues have a job of this id: a, b", "--queue a"];
        assert!(
            told.iter().all(|told| refused.stderr.contains(told)),
            "{refused:#?}"
        );
        let shown = place
            .run([&command[..], &["--queue", "b", "--json"]].concat())
            .succeeded()
            .json();
        assert!(shown.is_object(), "{shown}");
    }
    assert_eq!(
        place.json(["dead", "show", "same", "--queue", "b"])["queue"],
        "b"
    );
}
