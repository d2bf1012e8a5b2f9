//! `backstop bench http`.

use crate::place::Place;

#[test]
fn the_api_is_measured_beside_the_library_and_leaves_nothing_behind() {
    let place = Place::new();
    let report = place.json(["bench", "http", "--quick"]);
    for what in ["push", "lease_and_settle"] {
        let figures = &report["figures"][what];
        for who in ["http", "library"] {
            assert!(
                figures[who]["count"].as_u64().unwrap() >= 5_000,
                "{what} {who}: {report}"
            );
        }
        assert!(
            figures["ratio"].as_f64().unwrap() > 0.0 && figures["target"].is_u64(),
            "{report}"
        );
    }
    let memory = &report["figures"]["memory"];
    assert_eq!(memory["waiting"], 3_000, "{report}");
    for what in ["idle_mb", "waiting_mb"] {
        assert!(
            memory[what].as_f64().unwrap() > 1.0 && memory[format!("{what}_max")].is_f64(),
            "{report}"
        );
    }
    assert_eq!(
        std::fs::read_dir(place.path(".")).unwrap().count(),
        0,
        "the file of its own is gone"
    );
}
