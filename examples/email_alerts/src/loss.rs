//! Enqueues that get lost after their row was committed: a connection breaks, a process is
//! restarted, somebody forgets a line.

use backstop::NewJob;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Which enqueues get lost. The same ones in every process and every repetition, so that they can
/// be counted.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Loss {
    /// Their share, from 0 to 1.
    pub share: f64,
    /// Which ones.
    pub seed: u64,
}

impl Loss {
    /// Whether the enqueue of this key gets lost.
    #[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
    pub fn takes(&self, key: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        (hasher.finish() as f64) < self.share * (u64::MAX as f64)
    }

    /// What is left of jobs on their way to the queue.
    pub fn leaves(&self, jobs: Vec<NewJob>) -> Vec<NewJob> {
        let is_lost = |job: &NewJob| {
            job.unique
                .as_ref()
                .is_some_and(|unique| self.takes(unique.key.as_str()))
        };
        jobs.into_iter().filter(|job| !is_lost(job)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(share: f64, seed: u64) -> Vec<u32> {
        (0..1_000)
            .filter(|n| Loss { share, seed }.takes(&format!("email:{n}")))
            .collect()
    }

    #[test]
    fn as_many_get_lost_as_was_said_and_always_the_same() {
        assert!(lost(0.0, 1).is_empty());
        assert_eq!(lost(1.0, 1).len(), 1_000);
        assert!((150..350).contains(&lost(0.25, 1).len()));
        assert_eq!(lost(0.25, 1), lost(0.25, 1));
        assert_ne!(lost(0.25, 1), lost(0.25, 2));
    }
}
