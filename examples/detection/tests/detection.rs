//! The story ends well, on real time and a real store: nothing is lost, and the service was left
//! alone while it was down.

use backstop::Backstop;
use detection::{Options, run};
use std::time::Duration;

#[tokio::test]
async fn every_picture_is_analysed_in_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("detection.db").display());
    let backstop = Backstop::open(&store).await.unwrap();
    let options = Options {
        pictures: 60,
        raw_pictures: 20,
        outage: Duration::from_secs(2),
        quiet: true,
    };
    let told = run(backstop, options).await.unwrap();
    assert_eq!(
        (told.analysed, told.dead_at_the_end),
        (60 + 60 + 20, 0),
        "{told:?}"
    );
    assert_eq!(told.redriven, told.dead, "{told:?}");
    assert!(
        told.dead >= 20,
        "raw pictures are refused for good: {told:?}"
    );
    // Five open the breaker, with at most three beside them; then three probes each half second at
    // most.
    assert!(told.calls_during_outage <= 8 + 3 * 10, "{told:?}");
}
