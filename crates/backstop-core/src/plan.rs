//! Decides which queues to claim from, and how many jobs of each.

use crate::lease::LeasedRun;
use crate::limits::{CLAIM_BYTES_MAX, CLAIM_QUEUES_MAX};
use crate::name::QueueName;

/// A claim of this many jobs is worthwhile even while the worker still has enough to do: its own
/// cost is small compared with so many jobs.
const CLAIM_JOBS_WORTHWHILE: usize = 250;

/// The current load of one queue of a worker.
#[derive(Clone, Debug)]
pub struct QueueLoad {
    pub queue: QueueName,
    /// How many jobs of the queue this worker may run at once.
    pub concurrency: usize,
    /// How many more jobs may wait in this worker's buffer.
    pub prefetch: usize,
    pub running: usize,
    pub buffered: usize,
}

/// How many jobs to claim from one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueQuota {
    pub queue: QueueName,
    /// The maximum number of jobs; never zero.
    pub max: usize,
}

/// Decides what to claim now: nothing for a queue that has enough, and for the others at most
/// `total_max` jobs together, shared so that a large queue cannot crowd out a small one. `turn`
/// rotates which queue is served first when there is less than one job each.
pub fn plan_claim(lanes: &[QueueLoad], total_max: usize, turn: usize) -> Vec<QueueQuota> {
    let requested: Vec<usize> = lanes.iter().map(QueueLoad::room).collect();
    let granted = share(&requested, total_max, turn);
    let mut wants: Vec<QueueQuota> = lanes
        .iter()
        .zip(granted)
        .filter(|(_, max)| *max > 0)
        .map(|(lane, max)| QueueQuota {
            queue: lane.queue.clone(),
            max,
        })
        .collect();
    if wants.len() > CLAIM_QUEUES_MAX {
        let first = turn % wants.len();
        wants.rotate_left(first);
        wants.truncate(CLAIM_QUEUES_MAX);
    }
    wants
}

/// Bytes of payloads after which a claim takes no further job of one queue, in a store that claims
/// from each queue separately.
pub const fn claim_bytes_of_each(queues: usize) -> usize {
    if queues == 0 {
        CLAIM_BYTES_MAX
    } else {
        CLAIM_BYTES_MAX.div_ceil(queues)
    }
}

/// Whether the byte limit may have ended a claim before `queue` was empty. A short answer then does
/// not mean that the queue is empty.
pub fn is_cut_short(queue: &QueueName, wants: &[QueueQuota], granted: &[LeasedRun]) -> bool {
    let bytes = |leased: &LeasedRun| leased.payload.len();
    let all: usize = granted.iter().map(bytes).sum();
    let own: usize = granted
        .iter()
        .filter(|leased| leased.lease.queue == *queue)
        .map(bytes)
        .sum();
    all >= CLAIM_BYTES_MAX || own >= claim_bytes_of_each(wants.len())
}

impl QueueLoad {
    /// The number of jobs to ask for. A claim costs the same for one job as for many. So a queue
    /// whose handlers are all busy waits until half its buffer is used, or until there is room for
    /// [`CLAIM_JOBS_WORTHWHILE`] jobs: in a large buffer the other half would be used up before the
    /// answer arrives.
    fn room(&self) -> usize {
        let held = self.running + self.buffered;
        let room = (self.concurrency + self.prefetch).saturating_sub(held);
        let has_enough = held >= self.concurrency
            && self.buffered > self.prefetch / 2
            && room < CLAIM_JOBS_WORTHWHILE;
        if has_enough { 0 } else { room }
    }
}

/// Gives every queue an equal share, and divides what some do not need among the others.
fn share(requested: &[usize], total_max: usize, turn: usize) -> Vec<usize> {
    let mut granted = vec![0; requested.len()];
    let mut left = total_max;
    let mut hungry: Vec<usize> = (0..requested.len())
        .filter(|lane| requested[*lane] > 0)
        .collect();
    if !hungry.is_empty() {
        let first = turn % hungry.len();
        hungry.rotate_left(first);
    }
    while left > 0 && !hungry.is_empty() {
        let portion = (left / hungry.len()).max(1);
        for lane in &hungry {
            let grant = portion.min(requested[*lane] - granted[*lane]).min(left);
            granted[*lane] += grant;
            left -= grant;
        }
        hungry.retain(|lane| granted[*lane] < requested[*lane]);
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lane(
        queue: &str,
        concurrency: usize,
        prefetch: usize,
        running: usize,
        buffered: usize,
    ) -> QueueLoad {
        QueueLoad {
            queue: QueueName::new(queue).expect("a name"),
            concurrency,
            prefetch,
            running,
            buffered,
        }
    }

    fn check(lanes: &[QueueLoad], total_max: usize, turn: usize, expected: &[(&str, usize)]) {
        let wants: Vec<_> = plan_claim(lanes, total_max, turn)
            .into_iter()
            .map(|want| (want.queue.to_string(), want.max))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(queue, max)| ((*queue).to_owned(), *max))
            .collect();
        assert_eq!(wants, expected);
    }

    #[test]
    fn an_idle_lane_asks_for_all_it_can_hold() {
        check(&[lane("a", 8, 8, 0, 0)], 1_000, 0, &[("a", 16)]);
    }

    #[test]
    fn a_busy_lane_asks_when_half_its_buffer_is_used() {
        check(&[lane("a", 8, 8, 8, 5)], 1_000, 0, &[]);
        check(&[lane("a", 8, 8, 8, 4)], 1_000, 0, &[("a", 4)]);
        check(&[lane("a", 8, 0, 8, 0)], 1_000, 0, &[]);
        check(&[lane("a", 8, 0, 7, 0)], 1_000, 0, &[("a", 1)]);
    }

    #[test]
    fn a_lane_with_a_large_buffer_asks_when_there_is_room_for_what_is_worth_a_claim() {
        check(&[lane("a", 8, 1_000, 8, 751)], 1_000, 0, &[]);
        check(&[lane("a", 8, 1_000, 8, 750)], 1_000, 0, &[("a", 250)]);
        check(&[lane("a", 8, 400, 8, 201)], 1_000, 0, &[]);
        check(&[lane("a", 8, 400, 8, 200)], 1_000, 0, &[("a", 200)]);
    }

    #[test]
    fn a_large_lane_does_not_crowd_out_a_small_one() {
        check(
            &[lane("big", 1_000, 0, 0, 0), lane("small", 4, 0, 0, 0)],
            100,
            0,
            &[("big", 96), ("small", 4)],
        );
    }

    #[test]
    fn with_less_than_one_each_the_turn_decides() {
        let lanes = [
            lane("a", 1, 0, 0, 0),
            lane("b", 1, 0, 0, 0),
            lane("c", 1, 0, 0, 0),
        ];
        check(&lanes, 2, 0, &[("a", 1), ("b", 1)]);
        check(&lanes, 2, 1, &[("b", 1), ("c", 1)]);
        check(&lanes, 2, 2, &[("a", 1), ("c", 1)]);
    }

    #[test]
    fn more_queues_than_one_claim_may_name_take_turns() {
        let lanes: Vec<_> = (0..300)
            .map(|n| lane(&format!("q{n}"), 1, 0, 0, 0))
            .collect();
        let mut requested = std::collections::BTreeSet::new();
        for turn in 0..300 {
            let wants = plan_claim(&lanes, 1_000, turn);
            assert_eq!(wants.len(), CLAIM_QUEUES_MAX);
            requested.extend(wants.into_iter().map(|want| want.queue));
        }
        assert_eq!(requested.len(), 300);
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_it_can_hold_and_all_of_the_total_is_used(
            shapes in prop::collection::vec((0..50_usize, 0..50_usize, 0..50_usize, 0..50_usize), 0..8),
            total_max in 0..200_usize, turn: usize,
        ) {
            let lanes: Vec<_> = shapes
                .iter()
                .enumerate()
                .map(|(n, (concurrency, prefetch, running, buffered))| {
                    lane(&format!("q{n}"), *concurrency, *prefetch, *running, *buffered)
                })
                .collect();
            let wants = plan_claim(&lanes, total_max, turn);
            for want in &wants {
                let lane = lanes.iter().find(|lane| lane.queue == want.queue).expect("a lane of ours");
                prop_assert!(want.max > 0);
                prop_assert!(want.max + lane.running + lane.buffered <= lane.concurrency + lane.prefetch);
            }
            let requested: usize = lanes.iter().map(QueueLoad::room).sum();
            prop_assert_eq!(wants.iter().map(|want| want.max).sum::<usize>(), requested.min(total_max));
        }
    }
}
