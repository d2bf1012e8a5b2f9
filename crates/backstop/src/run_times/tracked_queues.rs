//! Which queues and kinds are followed one by one. Whoever is followed stays so while it is heard
//! of.

use backstop_core::{Kind, QueueName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Queues that are followed one by one.
pub const QUEUES_MAX: usize = 64;
/// Kinds that are followed one by one, over all queues.
pub const KINDS_MAX: usize = 50;
/// Whoever was not heard of for so many days makes room.
const DAYS_KEPT: i64 = 7;

/// The names that are followed, and the day each was last heard of; the same for all processes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct TrackedQueues {
    queues: BTreeMap<QueueName, i64>,
    kinds: BTreeMap<QueueName, BTreeMap<Kind, i64>>,
}

impl TrackedQueues {
    /// Takes note of who was heard of on a day; who is new is followed if there is room.
    pub(super) fn track(&mut self, heard: &BTreeSet<(QueueName, Option<Kind>)>, day: i64) {
        let is_recent = |last: &i64| day.saturating_sub(*last) <= DAYS_KEPT;
        self.queues.retain(|_, last| is_recent(last));
        self.kinds.retain(|_, kinds| {
            kinds.retain(|_, last| is_recent(last));
            !kinds.is_empty()
        });
        for (queue, kind) in heard {
            if self.queues.len() < QUEUES_MAX || self.queues.contains_key(queue) {
                self.queues.insert(queue.clone(), day);
            }
            let Some(kind) = kind else { continue };
            let followed: usize = self.kinds.values().map(BTreeMap::len).sum();
            if followed < KINDS_MAX || self.tracks_kind(queue, kind) {
                self.kinds
                    .entry(queue.clone())
                    .or_default()
                    .insert(kind.clone(), day);
            }
        }
    }

    pub(super) fn tracks(&self, queue: &QueueName) -> bool {
        self.queues.contains_key(queue)
    }

    pub(super) fn tracks_kind(&self, queue: &QueueName, kind: &Kind) -> bool {
        self.kinds
            .get(queue)
            .is_some_and(|kinds| kinds.contains_key(kind))
    }

    /// The kinds that are followed, with their queues.
    pub(super) fn tracked_kinds(self) -> impl Iterator<Item = (QueueName, Kind)> {
        self.kinds
            .into_iter()
            .flat_map(|(queue, kinds)| kinds.into_keys().map(move |kind| (queue.clone(), kind)))
    }
}
