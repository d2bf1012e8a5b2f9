//! What kill -9 must not cost, on any store.

use crate::place::{Place, ended, lines, wait_until};
use crate::stores::on_every_store;

const LINES: u64 = 100_000;

on_every_store! {
    a_load_killed_half_way_and_repeated_ends_with_one_job_per_line,
    the_job_of_a_killed_worker_runs_again_and_counts_as_lost_not_as_failed,
}

fn a_load_killed_half_way_and_repeated_ends_with_one_job_per_line(place: &Place) {
    let lines = lines(LINES);
    place.write("jobs.ndjson", &lines);
    let load = [
        "push",
        "q",
        "--file",
        "jobs.ndjson",
        "--batch",
        "b",
        "--quiet",
    ];
    let mut child = place.start(load);
    wait_until("a part of the load", || place.count("q", "ready") > 0);
    child.kill().unwrap();
    let code = child.wait().unwrap().code();
    assert_eq!(code, None, "killed before it was through");
    let before = place.count("q", "ready");
    assert!(
        before > 0 && before < LINES,
        "{before} jobs went in before the end"
    );
    let report = place.json(load);
    let (inserted, same) = (
        report["inserted"].as_u64().unwrap(),
        report["same"].as_u64().unwrap(),
    );
    assert_eq!(inserted + same, LINES);
    // A server ends what the dead process had asked for: more may have gone in after the count.
    assert!(same >= before, "{same} of {before} were recognised");
    assert_eq!(place.count("q", "ready"), LINES);
}

fn the_job_of_a_killed_worker_runs_again_and_counts_as_lost_not_as_failed(place: &Place) {
    place.json(["push", "q", "1", "--id", "a"]);
    let started = place.path("started");
    let hang = format!("touch {}; exec sleep 30", started.display());
    let mut first = place.start(["work", "q", "--exec", &hang, "--lease", "500ms"]);
    wait_until("a first run", || started.exists());
    first.kill().unwrap();
    first.wait().unwrap();
    let second = place.start([
        "work",
        "q",
        "--exec",
        "exit 0",
        "--lease",
        "500ms",
        "--until-empty",
    ]);
    let answer = ended(second).succeeded();
    assert!(answer.stdout.starts_with("1 done"), "{answer:#?}");
    let job = place.job("a");
    assert_eq!(
        (job["state"].as_str(), job["lost_leases"].as_u64()),
        (Some("done"), Some(1))
    );
    assert_eq!(job["attempt"], 1, "the lost run spent no attempt");
}
