//! `backstop bench pages`.

use crate::place::Place;
use serde_json::Value;

#[test]
fn every_page_is_measured_and_claims_beside_them_and_nothing_is_left_behind() {
    let place = Place::new();
    let report = place.json(["bench", "pages", "--quick"]);
    let pages = report["figures"]["pages"].as_array().unwrap();
    let is_timed = |page: &Value| {
        page["first_ms"].as_f64() > Some(0.0) && page["median_ms"].as_f64() > Some(0.0)
    };
    assert!(pages.iter().all(is_timed), "{report}");
    let asked = |start: &str| {
        pages
            .iter()
            .filter(|page| page["address"].as_str().unwrap().starts_with(start))
            .count()
    };
    for (start, least) in [
        ("/jobs?", 30),
        ("/dead/", 4),
        ("/streams/uptime/keys/", 1),
        ("/v1/jobs", 30),
        ("/metrics", 1),
    ] {
        assert!(
            asked(start) >= least,
            "{start} was asked for {} times",
            asked(start)
        );
    }
    assert!(
        pages
            .iter()
            .any(|page| page["address"].as_str().unwrap().contains("after=")),
        "second pages, too"
    );
    let claims = &report["figures"]["claims"];
    assert!(
        ["open", "reloading"]
            .iter()
            .all(|who| claims[who]["ratio"].as_f64() > Some(0.0))
            && claims["alone"]["count"].as_u64() >= Some(5_000),
        "{claims}"
    );
    assert_eq!(
        std::fs::read_dir(place.path(".")).unwrap().count(),
        0,
        "the file of its own is gone"
    );
}
