//! What a retry policy does, before anybody depends on it: for the command line and for the page.

mod picture;
mod rate;
mod simulation;
mod summary;
mod waits;

pub use picture::{PictureStyle, render_picture};
pub use rate::{ArrivalRate, InvalidArrivalRate};
pub use simulation::{AFTERMATH_MAX, SimulationRequest};
pub use summary::{catches_up, summarize};
pub use waits::{WaitTable, describe_end, wait_table};

use backstop_core::Span;

/// Lengths of time that people divide hours and days into.
const STEPS: [Span; 24] = [
    Span::millis(1),
    Span::millis(10),
    Span::millis(100),
    Span::millis(200),
    Span::millis(500),
    Span::secs(1),
    Span::secs(2),
    Span::secs(5),
    Span::secs(10),
    Span::secs(15),
    Span::secs(30),
    Span::minutes(1),
    Span::minutes(2),
    Span::minutes(5),
    Span::minutes(10),
    Span::minutes(15),
    Span::minutes(30),
    Span::hours(1),
    Span::hours(2),
    Span::hours(6),
    Span::hours(12),
    Span::days(1),
    Span::days(7),
    Span::days(30),
];

/// The shortest round length of which at most `most` make up the whole.
pub fn round_step(whole: Span, most: i64) -> Span {
    STEPS
        .into_iter()
        .find(|step| step.times(most) >= whole)
        .unwrap_or(Span::days(30))
}

#[cfg(test)]
mod tests;
