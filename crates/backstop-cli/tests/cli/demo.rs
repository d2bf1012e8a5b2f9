use crate::place::{Place, json_args};

#[test]
fn the_demo_loses_nothing_and_leaves_something_to_look_at() {
    let place = Place::new();
    let args = ["demo", "--no-server", "--jobs", "300", "--store", "sqlite:demo.db"];
    let text = place.run(args).succeeded();
    for part in [
        "emails",
        "images",
        "webhooks",
        "none lost",
        "job list --state dead",
        "BACKSTOP_STORE=sqlite:demo.db",
    ] {
        assert!(text.stdout.contains(part), "{part:?} is missing: {text:#?}");
    }
    let dead = place.json(["job", "list", "--state", "dead", "--store", "sqlite:demo.db"]);
    assert!(!dead["jobs"].as_array().unwrap().is_empty());
}

#[test]
fn the_demo_does_not_run_anybodys_real_jobs() {
    let place = Place::new();
    place.json(["push", "emails", "1", "--store", "sqlite:real.db"]);
    place
        .run(json_args(["demo", "--no-server", "--store", "sqlite:real.db"]))
        .complains(2, &["live jobs in emails"]);
    assert_eq!(
        place.json(["job", "list", "--state", "ready", "--store", "sqlite:real.db"])["jobs"][0]["payload"],
        1
    );
}
