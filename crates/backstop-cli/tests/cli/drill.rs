use crate::place::{Place, json_args};
use crate::stores::on_every_store;
use serde_json::json;

on_every_store! {
    a_drill_kills_a_worker_and_leaves_no_job_behind,
}

fn a_drill_kills_a_worker_and_leaves_no_job_behind(place: &Place) {
    let store = place.store();
    place.json(["push", "q", "1", "--id", "mine"]);
    let report = place.json(["drill", "--lease", "1s", "--store", &store]);
    assert_eq!(
        (&report["kill"], &report["within"]),
        (&json!("worker"), &json!(true)),
        "{report}"
    );
    let (took, bound) = (
        report["took_ms"].as_i64().unwrap(),
        report["bound_ms"].as_i64().unwrap(),
    );
    // Nobody can have had the job before its lease was over.
    assert!(took >= 500 && took <= bound, "{report}");
    let jobs = place.json(["job", "list"])["jobs"].take();
    assert_eq!(
        (jobs.as_array().unwrap().len(), &jobs[0]["state"]),
        (1, &json!("ready")),
        "{jobs}"
    );
}

#[test]
fn a_killed_workers_job_runs_again_within_what_is_promised() {
    let place = Place::new();
    let report = place.json(["drill", "--lease", "1s"]);
    assert_eq!(
        (&report["kill"], &report["lease_ms"], &report["within"]),
        (&json!("worker"), &json!(1000), &json!(true))
    );
    let (took, bound) = (
        report["took_ms"].as_i64().unwrap(),
        report["bound_ms"].as_i64().unwrap(),
    );
    assert!(took > 0 && took <= bound && bound == 4_000, "{report}");
    assert!(
        !place.path("backstop.db").exists(),
        "it was held in a file of its own"
    );
}

#[test]
fn a_drill_on_a_store_of_yours_leaves_no_job_behind_and_touches_none() {
    let place = Place::new();
    place.json([
        "push",
        "q",
        "1",
        "--id",
        "mine",
        "--store",
        "sqlite:mine.db",
    ]);
    let text = place
        .run(["drill", "--lease", "500ms", "--store", "sqlite:mine.db"])
        .succeeded();
    assert!(text.stdout.contains("promised within"), "{text:#?}");
    let jobs = place.json(["job", "list", "--store", "sqlite:mine.db"])["jobs"].take();
    assert_eq!(
        (jobs.as_array().unwrap().len(), &jobs[0]["state"]),
        (1, &json!("ready"))
    );
}

#[test]
fn a_rerun_that_comes_too_late_is_told_and_exits_1() {
    let place = Place::new();
    // No lease of a second is over within a hundredth of it.
    let late = ["drill", "--lease", "1s", "--within", "10ms"];
    let report = place.run(json_args(late)).exits(1).json();
    let took = report["took_ms"].as_i64().unwrap();
    assert_eq!(
        (&report["within"], &report["asked_ms"]),
        (&json!(false), &json!(10))
    );
    assert!(took > 10, "{report}");
    let text = place.run(late).exits(1);
    assert!(text.stdout.contains("asked for within 10ms"), "{text:#?}");
}

#[test]
fn all_processes_of_a_drill_go_by_the_same_configuration() {
    let place = Place::new();
    place.write("backstop.toml", "this is no configuration");
    place.write("other.toml", "[store]\ndurability = \"relaxed\"");
    place
        .run(["drill", "--lease", "500ms"])
        .complains(2, &["backstop.toml"]);
    place
        .run(["drill", "--lease", "500ms", "--config", "other.toml"])
        .succeeded();
}

#[test]
fn a_killed_writer_loses_nothing_that_was_acknowledged() {
    let place = Place::new();
    let report = place.json(["drill", "--kill", "store"]);
    assert_eq!(
        (&report["whole"], &report["missing"], &report["faults"]),
        (&json!(true), &json!([]), &json!([]))
    );
    assert!(report["acknowledged"].as_u64().unwrap() >= 600, "{report}");
}

#[test]
fn what_a_drill_cannot_do_it_says() {
    let place = Place::new();
    for store in ["postgres://app@localhost/shop", "redis://localhost"] {
        place
            .run(["drill", "--kill", "store", "--store", store])
            .complains(
                2,
                &["does not kill servers it did not start", "--kill worker"],
            );
    }
    place
        .run(["drill", "--store", "memory:"])
        .complains(2, &["gone with its process"]);
    place
        .run(json_args(["drill", "--lease", "1ms"]))
        .complains(2, &["--lease"]);
    place.run(["drill", "--kill", "dog"]).exits(2);
}
