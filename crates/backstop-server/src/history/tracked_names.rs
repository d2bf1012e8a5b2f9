//! Which queues and streams are followed one by one. Whoever is followed stays so: the sum of all
//! others would jump with every change of places.

use backstop::core::port::QueueStatus;
use backstop::streams::{StreamCounter, StreamStatus};
use backstop_core::{QueueName, StreamName};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Queues that are followed one by one; all others together.
pub const QUEUES_MAX: usize = 64;
pub const STREAMS_MAX: usize = 32;

/// The names that are followed, the same for all servers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct TrackedNames {
    pub(super) queues: BTreeSet<QueueName>,
    pub(super) streams: BTreeSet<StreamName>,
}

impl TrackedNames {
    /// Who is gone makes room; who is new gets it, the busiest first.
    pub(super) fn admit(&mut self, queues: &[QueueStatus], streams: &[StreamStatus]) {
        let busy = queues
            .iter()
            .map(|status| (status.totals.enqueued, &status.name));
        admit(&mut self.queues, busy.collect(), QUEUES_MAX);
        let handled = |status: &StreamStatus| {
            status.counts[StreamCounter::Handled] + status.counts[StreamCounter::Added]
        };
        let busy = streams.iter().map(|status| (handled(status), &status.name));
        admit(&mut self.streams, busy.collect(), STREAMS_MAX);
    }
}

fn admit<N: Ord + Clone>(followed: &mut BTreeSet<N>, mut present: Vec<(u64, &N)>, max: usize) {
    followed.retain(|name| present.iter().any(|(_, there)| *there == name));
    present.sort_by_key(|(busy, name)| (Reverse(*busy), *name));
    for (_, name) in present {
        if followed.len() >= max {
            break;
        }
        followed.insert(name.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_followed_stays_and_the_busiest_get_what_room_is_left() {
        let mut followed: BTreeSet<&str> = BTreeSet::from(["idle", "gone"]);
        admit(
            &mut followed,
            vec![(0, &"idle"), (5, &"b"), (9, &"c"), (9, &"a")],
            3,
        );
        assert_eq!(followed, BTreeSet::from(["idle", "a", "c"]));
    }
}
