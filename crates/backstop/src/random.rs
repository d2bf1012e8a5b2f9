//! The one source of randomness, so that a simulation can seed it.

use backstop_core::lease::LeaseNumber;
use backstop_core::retry::RandomDraw;
use backstop_core::{JobId, Time};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Random numbers: for job ids, lease numbers and jitter.
#[derive(Clone)]
pub struct RandomSource(Arc<Mutex<StdRng>>);

impl RandomSource {
    /// Seeded by the operating system.
    pub fn from_system() -> Self {
        Self(Arc::new(Mutex::new(rand::make_rng())))
    }

    /// The same numbers for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    pub fn bits(&self) -> u64 {
        // A panic while drawing a number leaves the generator usable: any state of it is a good
        // state.
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next_u64()
    }

    pub(crate) fn roll(&self) -> RandomDraw {
        RandomDraw::from_bits(self.bits())
    }

    /// At least 0, below 1.
    pub(crate) fn unit(&self) -> f64 {
        self.roll().value()
    }

    pub(crate) fn lease_number(&self) -> LeaseNumber {
        LeaseNumber::draw(self.bits())
    }

    pub(crate) fn job_id(&self, now: Time) -> JobId {
        let mut random = [0; 10];
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill_bytes(&mut random);
        JobId::at(now, random)
    }
}

impl fmt::Debug for RandomSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}
