//! What earlier pushes have shown of queues: an existing queue stays, but an operator may give it a
//! bound.

use backstop_core::{NewJob, QueueName};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Queues that are remembered. Pushes to other queues are sent in per-queue batches.
const QUEUES_MAX: usize = 16_384;

/// Whether a push to this queue may have to wait for other transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KnownQueueBound {
    Open,
    /// The queue has a bound, or had one.
    Bounded,
}

/// Queues that are known to exist.
#[derive(Clone, Default)]
pub(super) struct KnownQueues(Arc<Mutex<HashMap<QueueName, KnownQueueBound>>>);

impl KnownQueues {
    fn queues(&self) -> MutexGuard<'_, HashMap<QueueName, KnownQueueBound>> {
        // A poisoned lock is harmless: each change of the map is complete by itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the queues of these jobs all exist, and have no bound as far as is known.
    pub(super) fn are_open(&self, jobs: &[NewJob]) -> bool {
        let queues = self.queues();
        distinct(jobs.iter().map(|job| &job.queue))
            .all(|queue| queues.get(queue) == Some(&KnownQueueBound::Open))
    }

    /// Whether the queues of these jobs all exist.
    pub(super) fn are_seen(&self, jobs: &[NewJob]) -> bool {
        let queues = self.queues();
        distinct(jobs.iter().map(|job| &job.queue)).all(|queue| queues.contains_key(queue))
    }

    /// Remembers queues that jobs were inserted into, and which of them have a bound.
    pub(super) fn note<'a>(
        &self,
        taken: impl Iterator<Item = &'a QueueName>,
        bounded: Vec<QueueName>,
    ) {
        let mut queues = self.queues();
        for queue in distinct(taken) {
            if !queues.contains_key(queue) && queues.len() < QUEUES_MAX {
                queues.insert(queue.clone(), KnownQueueBound::Open);
            }
        }
        for queue in bounded {
            if queues.contains_key(&queue) || queues.len() < QUEUES_MAX {
                queues.insert(queue, KnownQueueBound::Bounded);
            }
        }
    }

    /// Forgets queues without a bound after pushes to them had to wait: they may have changed.
    pub(super) fn forget(&self, jobs: &[NewJob]) {
        let mut queues = self.queues();
        for queue in distinct(jobs.iter().map(|job| &job.queue)) {
            if queues.get(queue) == Some(&KnownQueueBound::Open) {
                queues.remove(queue);
            }
        }
    }
}

/// Skips repeated neighbours: most calls are for one queue.
pub(super) fn distinct<'a>(
    queues: impl Iterator<Item = &'a QueueName>,
) -> impl Iterator<Item = &'a QueueName> {
    let mut last = None;
    queues.filter(move |queue| last.replace(*queue) != Some(*queue))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_testkit::given::{job, queue};

    fn jobs(queues: &[&str]) -> Vec<NewJob> {
        queues
            .iter()
            .map(|queue| job(queue, queue).into())
            .collect()
    }

    #[test]
    fn a_queue_is_open_once_it_took_a_job_and_until_it_has_a_bound() {
        let known = KnownQueues::default();
        assert!(!known.are_open(&jobs(&["a"])), "nobody has seen it");
        known.note(
            [&queue("a"), &queue("a"), &queue("b")].into_iter(),
            vec![queue("b")],
        );
        assert!(known.are_open(&jobs(&["a", "a"])));
        assert!(
            !known.are_open(&jobs(&["a", "b", "a"])),
            "who pushes to a bounded one may have to wait"
        );
        assert!(known.are_seen(&jobs(&["a", "b"])) && !known.are_seen(&jobs(&["a", "c"])));
    }

    #[test]
    fn a_queue_that_made_somebody_wait_has_to_prove_itself_again() {
        let known = KnownQueues::default();
        known.note([&queue("a"), &queue("b")].into_iter(), vec![queue("b")]);
        known.forget(&jobs(&["a", "b"]));
        assert!(!known.are_seen(&jobs(&["a"])) && known.are_seen(&jobs(&["b"])));
        known.note([&queue("a"), &queue("b")].into_iter(), Vec::new());
        assert!(known.are_open(&jobs(&["a"])) && !known.are_open(&jobs(&["b"])));
    }
}
