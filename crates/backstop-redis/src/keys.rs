//! Names of Redis keys. All keys of a queue share one hash tag, so a cluster keeps a queue on one
//! master and spreads queues over its masters. All keys of a stream shard share a tag in the same
//! way.

use backstop_core::{QueueName, StreamName};

/// The keys of a queue, in the order in which every script gets them: see `lua/keys.lua`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueKey {
    Records,
    Payloads,
    Histories,
    Order,
    Ready,
    Scheduled,
    Retrying,
    Done,
    Dead,
    Cancelled,
    Leases,
    Claims,
    Terms,
    Held,
    Left,
    Unique,
    Lapses,
    Meta,
    Deaths,
    Groups,
    Moving,
    Moved,
    Received,
    Runs,
    Void,
    Ends,
}

impl QueueKey {
    /// All keys, in the order that scripts expect.
    pub(crate) const ALL: [Self; 26] = [
        Self::Records,
        Self::Payloads,
        Self::Histories,
        Self::Order,
        Self::Ready,
        Self::Scheduled,
        Self::Retrying,
        Self::Done,
        Self::Dead,
        Self::Cancelled,
        Self::Leases,
        Self::Claims,
        Self::Terms,
        Self::Held,
        Self::Left,
        Self::Unique,
        Self::Lapses,
        Self::Meta,
        Self::Deaths,
        Self::Groups,
        Self::Moving,
        Self::Moved,
        Self::Received,
        Self::Runs,
        Self::Void,
        Self::Ends,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Payloads => "payloads",
            Self::Histories => "histories",
            Self::Order => "order",
            Self::Ready => "ready",
            Self::Scheduled => "scheduled",
            Self::Retrying => "retrying",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Leases => "leases",
            Self::Claims => "claims",
            Self::Terms => "terms",
            Self::Held => "held",
            Self::Left => "left",
            Self::Unique => "unique",
            Self::Lapses => "lapses",
            Self::Meta => "meta",
            Self::Deaths => "deaths",
            Self::Groups => "groups",
            Self::Moving => "moving",
            Self::Moved => "moved",
            Self::Received => "received",
            Self::Runs => "runs",
            Self::Void => "void",
            Self::Ends => "ends",
        }
    }
}

/// Builds the key names of one store from its prefix.
#[derive(Clone, Debug)]
pub(crate) struct KeyNames {
    prefix: String,
}

impl KeyNames {
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// The name of one key of a queue. Queue names contain no brace, so they can be hash tags
    /// unescaped.
    pub(crate) fn part(&self, queue: &QueueName, part: QueueKey) -> String {
        format!("{}:{{{queue}}}:{}", self.prefix, part.as_str())
    }

    /// The set with the names of all queues.
    pub(crate) fn queues(&self) -> String {
        format!("{}:queues", self.prefix)
    }

    /// The hash with the last heartbeats of all workers.
    pub(crate) fn workers(&self) -> String {
        format!("{}:workers", self.prefix)
    }

    /// The key with the schema version of the store.
    pub(crate) fn schema(&self) -> String {
        format!("{}:schema", self.prefix)
    }

    /// The lock that lets only one process repair at a time.
    pub(crate) fn repair(&self) -> String {
        format!("{}:repair", self.prefix)
    }

    /// The values and the names of all cells, in one slot. No queue name contains a colon, so no
    /// queue has this tag.
    pub(crate) fn cells(&self) -> [String; 2] {
        ["values", "names"].map(|part| format!("{}:{{:cells}}:{part}", self.prefix))
    }

    pub(crate) fn hints(&self) -> String {
        format!("{}:hints", self.prefix)
    }

    /// The name of one key of a stream shard. No queue has such a tag, and neither have the cells.
    pub(crate) fn shard(&self, stream: &StreamName, shard: usize, part: &str) -> String {
        format!("{}:{{:{stream}:{shard}}}:{part}", self.prefix)
    }

    /// The set with the names of all streams.
    pub(crate) fn streams(&self) -> String {
        format!("{}:streams", self.prefix)
    }

    /// The `SCAN` pattern that matches every key of every stream shard.
    pub(crate) fn any_shard(&self) -> String {
        format!("{}:{{:*}}:*", self.prefix)
    }

    /// The stream that a key belongs to, if it is the key of a stream shard.
    pub(crate) fn stream_of(&self, key: &str) -> Option<StreamName> {
        let (tag, _) = key
            .strip_prefix(&self.prefix)?
            .strip_prefix(":{:")?
            .split_once('}')?;
        StreamName::new(tag.split_once(':')?.0).ok()
    }

    /// The `SCAN` pattern that matches the one key that every queue has.
    pub(crate) fn any_queue(&self) -> String {
        format!("{}:{{*}}:{}", self.prefix, QueueKey::Meta.as_str())
    }

    /// The queue that a key belongs to, if it is the key of a queue.
    pub(crate) fn queue_of(&self, key: &str) -> Option<QueueName> {
        let name = key
            .strip_prefix(&self.prefix)?
            .strip_prefix(":{")?
            .strip_suffix("}:meta")?;
        QueueName::new(name).ok()
    }
}

/// A key that never exists, with the same hash tag as `key`: no queue, shard or cell has a part of
/// this name.
pub(crate) fn absent_beside(key: &str) -> String {
    let (tagged, _part) = key.rsplit_once(':').unwrap_or((key, ""));
    format!("{tagged}:absent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_is_absent_has_the_tag_of_the_others() {
        let keys = KeyNames::new("shop".to_owned());
        let (queue, stream) = (
            QueueName::new("emails").expect("a name"),
            StreamName::new("up").expect("a name"),
        );
        assert_eq!(
            absent_beside(&keys.part(&queue, QueueKey::Ready)),
            "shop:{emails}:absent"
        );
        assert_eq!(
            absent_beside(&keys.shard(&stream, 7, "heads")),
            "shop:{:up:7}:absent"
        );
        assert_eq!(absent_beside(&keys.cells()[0]), "shop:{:cells}:absent");
        assert!(QueueKey::ALL.iter().all(|part| part.as_str() != "absent"));
    }

    #[test]
    fn a_queue_is_found_by_its_key_and_shares_one_tag() {
        let keys = KeyNames::new("shop".to_owned());
        let queue = QueueName::new("emails.v2").expect("a name");
        assert_eq!(keys.part(&queue, QueueKey::Ready), "shop:{emails.v2}:ready");
        assert_eq!(
            keys.queue_of(&keys.part(&queue, QueueKey::Meta)),
            Some(queue)
        );
        assert_eq!(keys.queue_of("other:{emails}:meta"), None);
        assert_eq!(keys.queue_of("shop:queues"), None);
    }

    #[test]
    fn a_stream_is_found_by_any_key_of_its_shards() {
        let keys = KeyNames::new("shop".to_owned());
        let stream = StreamName::new("uptime").expect("a name");
        assert_eq!(keys.shard(&stream, 7, "heads"), "shop:{:uptime:7}:heads");
        assert_eq!(keys.stream_of("shop:{:uptime:7}:heads"), Some(stream));
        for other in [
            "shop:{uptime}:meta",
            "shop:{:cells}:names",
            "other:{:uptime:7}:heads",
        ] {
            assert_eq!(keys.stream_of(other), None, "{other}");
        }
    }
}
