//! Which worker gets which result.

#[cfg(test)]
mod tests;

use crate::limits::{BATCH_RESULTS_MAX, BATCHES_IN_FLIGHT_MAX};
use crate::wire::SubscriptionId;
use clap::ValueEnum;
use std::collections::HashMap;

/// Which worker gets what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Dealing {
    /// Whoever has least to do: results of one subscription may be in several processes at once,
    /// and overtake there too
    Racing,
    /// The same, but a subscription stays with a process while that has a result of it: the trace
    /// alone decides the order
    Faithful,
}

/// Gives out results, and knows who has which.
pub(super) struct Dealer {
    dealing: Dealing,
    loads: Vec<Load>,
    /// Who has results of a subscription, and how many.
    holders: HashMap<SubscriptionId, (usize, usize)>,
    batches: u64,
}

/// What a worker has and has not answered yet.
#[derive(Default)]
struct Load {
    results: usize,
    batches: HashMap<u64, Vec<Option<SubscriptionId>>>,
}

/// What one go of dealing came to.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Dealt {
    /// How many results, from the first on.
    pub(super) taken: usize,
    pub(super) batches: Vec<Batch>,
}

/// What one worker gets: places among those that were to be dealt, in order.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub(super) worker: usize,
    pub(super) number: u64,
    pub(super) places: Vec<usize>,
}

impl Dealer {
    pub(super) fn new(dealing: Dealing, workers: usize) -> Self {
        let loads = (0..workers).map(|_| Load::default()).collect();
        Self {
            dealing,
            loads,
            holders: HashMap::new(),
            batches: 0,
        }
    }

    /// Whether everything given out was answered.
    pub(super) fn is_idle(&self) -> bool {
        self.loads.iter().all(|load| load.batches.is_empty())
    }

    /// Gives out results in order, until the next one's worker has no room.
    pub(super) fn deal(&mut self, keys: impl Iterator<Item = Option<SubscriptionId>>) -> Dealt {
        let mut hands: Vec<Vec<(usize, Option<SubscriptionId>)>> =
            self.loads.iter().map(|_| Vec::new()).collect();
        let mut taken = 0;
        for (place, key) in keys.enumerate() {
            let Some(worker) = self.choose(key, &hands) else {
                break;
            };
            hands[worker].push((place, key));
            self.loads[worker].results += 1;
            if let Some(key) = key {
                let holder = self.holders.entry(key).or_insert((worker, 0));
                *holder = (worker, holder.1 + 1);
            }
            taken = place + 1;
        }
        let hands = hands
            .into_iter()
            .enumerate()
            .filter(|(_, hand)| !hand.is_empty());
        let batches = hands.map(|(worker, hand)| {
            self.batches += 1;
            let (places, keys) = hand.into_iter().unzip();
            self.loads[worker].batches.insert(self.batches, keys);
            Batch {
                worker,
                number: self.batches,
                places,
            }
        });
        Dealt {
            taken,
            batches: batches.collect(),
        }
    }

    /// A worker has answered for a batch.
    pub(super) fn done(&mut self, worker: usize, number: u64) {
        let keys = self.loads[worker]
            .batches
            .remove(&number)
            .unwrap_or_default();
        self.loads[worker].results -= keys.len();
        for key in keys.into_iter().flatten() {
            if let Some(holder) = self.holders.get_mut(&key) {
                holder.1 -= 1;
                if holder.1 == 0 {
                    self.holders.remove(&key);
                }
            }
        }
    }

    fn choose(
        &self,
        key: Option<SubscriptionId>,
        hands: &[Vec<(usize, Option<SubscriptionId>)>],
    ) -> Option<usize> {
        let has_room = |worker: &usize| {
            self.loads[*worker].batches.len() < BATCHES_IN_FLIGHT_MAX
                && hands[*worker].len() < BATCH_RESULTS_MAX
        };
        let holder = key
            .and_then(|key| self.holders.get(&key))
            .map(|(worker, _)| *worker);
        match (self.dealing, holder) {
            (Dealing::Faithful, Some(worker)) => Some(worker).filter(has_room),
            _ => (0..self.loads.len())
                .filter(has_room)
                .min_by_key(|worker| self.loads[*worker].results),
        }
    }
}
