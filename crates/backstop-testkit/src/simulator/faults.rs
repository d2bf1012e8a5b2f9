//! Which faults a seed brings, how often, and which of them came.

use crate::flaky::Odds;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Everything that must come up at least once over a few hundred seeds: a path that never fires was
/// not tested.
pub const FAULTS: [&str; 12] = [
    "request lost",
    "reply lost",
    "delivered twice",
    "hint lost",
    "store down",
    "crash",
    "pause",
    "clock jumped",
    "handler failed",
    "handler panicked",
    "shutdown",
    "lease lost",
];

/// How often each fault came.
#[derive(Clone, Debug, Default)]
pub struct Fired(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Fired {
    pub(super) fn note(&self, fault: &'static str) {
        self.add(fault, 1);
    }

    pub(super) fn add(&self, fault: &'static str, count: u64) {
        *self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(fault)
            .or_default() += count;
    }

    /// The counts, by name.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// How often what happens: probabilities a call, a step of the world, or a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) calls: Odds,
    pub(super) twice: f64,
    pub(super) crash: f64,
    pub(super) shutdown: f64,
    pub(super) pause: f64,
    pub(super) clock_jump: f64,
    pub(super) store_down: f64,
    pub(super) handler_fails: f64,
    pub(super) handler_panics: f64,
}

impl Faults {
    /// A quarter of the faults are absent from any one seed: rare combinations come up that way.
    pub(super) fn from_seed(dice: &mut StdRng) -> Self {
        let mut chance = |most: f64| {
            if dice.random_bool(0.25) {
                0.0
            } else {
                dice.random_range(0.0..most)
            }
        };
        let calls = Odds {
            refused: chance(0.1),
            lost_reply: chance(0.1),
            delay_before: chance(0.3),
            delay_after: chance(0.3),
            lost_hint: chance(0.5),
            delay_max: Duration::from_millis(2_500),
        };
        Self {
            calls,
            twice: chance(0.1),
            crash: chance(0.3),
            shutdown: chance(0.1),
            pause: chance(0.2),
            clock_jump: chance(0.1),
            store_down: chance(0.1),
            handler_fails: chance(0.3),
            handler_panics: chance(0.1),
        }
    }
}
