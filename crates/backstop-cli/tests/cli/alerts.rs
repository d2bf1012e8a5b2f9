//! `backstop alerts`.

use crate::place::Place;
use serde_json::Value;

#[test]
fn rules_and_board_are_written_to_stdout() {
    let place = Place::new();
    let rules = place.run(["alerts", "--prometheus"]).succeeded().stdout;
    assert_eq!(rules, backstop_server::alerts::RULES);
    let board = place.run(["alerts", "--grafana"]).succeeded().stdout;
    let board: Value = serde_json::from_str(&board).unwrap();
    assert_eq!(board["title"], "backstop");
    assert!(!place.path("backstop.db").exists(), "no store is needed");
}

#[test]
fn one_of_them_must_be_asked_for() {
    let place = Place::new();
    place.run(["alerts"]).complains(2, &["--prometheus"]);
    place
        .run(["alerts", "--prometheus", "--grafana"])
        .complains(2, &["--grafana"]);
}
