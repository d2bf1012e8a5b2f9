//! Cameras, a flaky detector and an analysis behind it.
//!
//! `cargo run -p detection` tells what happens: a service that fails now and then, an outage that a
//! breaker sits out, pictures that nobody can read and that become dead letters, and a redrive that
//! brings them back carefully.

mod detector;
mod pipeline;
mod story;

use anyhow::Result;
use backstop::Backstop;
use std::time::Duration;

/// Where pictures wait for the detector.
pub const DETECTION_QUEUE: &str = "detection_queue";
/// Where they wait for the analysis.
pub const ANALYSIS_QUEUE: &str = "analysis_queue";

/// How the story goes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pictures on a good day, and as many again in the outage.
    pub pictures: u64,
    /// Pictures that the detector cannot read.
    pub raw_pictures: u64,
    /// How long the outage lasts, once the breaker is open.
    pub outage: Duration,
    /// Whether nothing is printed.
    pub quiet: bool,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// Calls the detector got.
    pub calls: u64,
    /// Those of them while it was down.
    pub calls_during_outage: u64,
    /// Pictures that died in the outage.
    pub died_in_outage: u64,
    /// Dead letters before the redrive.
    pub dead: u64,
    /// Letters that were redriven.
    pub redriven: u64,
    /// Pictures analysed in the end.
    pub analysed: u64,
    /// Dead letters in the end.
    pub dead_at_the_end: u64,
}

/// Tells the story on a store.
pub async fn run(backstop: Backstop, options: Options) -> Result<Told> {
    let story = story::Story {
        backstop,
        detector: detector::Detector::default(),
        analysed: pipeline::Analysed::default(),
        options,
        told: Told::default(),
    };
    story.tell().await
}
