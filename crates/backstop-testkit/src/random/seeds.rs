//! Which sequences a test runs: `BACKSTOP_SEED` repeats a failure, `BACKSTOP_SEQUENCES` says how
//! many to run.

use std::env;

/// Seeds in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Seeds {
    /// As many as the environment says, or `usual_count`; from another first one each time, so that
    /// every run of the tests looks somewhere new.
    pub fn from_environment(usual_count: u64) -> Self {
        Self {
            first: number("BACKSTOP_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000_000)),
            count: number("BACKSTOP_SEQUENCES").unwrap_or(usual_count),
        }
    }

    /// One after another.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |n| self.first.wrapping_add(n))
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable)
        .ok()
        .map(|text| text.parse().expect("a seed or a count is a whole number"))
}
