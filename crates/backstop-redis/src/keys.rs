//! Names of keys. All keys of a queue share its hash tag, so that a cluster keeps a queue in one
//! place and spreads queues over its masters; and so do all keys of a shard of a stream.

use backstop_core::{QueueName, StreamName};

/// The parts of a queue, in the order in which every script gets them: see `lua/keys.lua`.
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
    /// All of them, in order.
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

/// The keys of one store.
#[derive(Clone, Debug)]
pub(crate) struct KeyNames {
    prefix: String,
}

impl KeyNames {
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// A part of a queue. A queue's name has no brace in it, so it is a hash tag as it is.
    pub(crate) fn part(&self, queue: &QueueName, part: QueueKey) -> String {
        format!("{}:{{{queue}}}:{}", self.prefix, part.as_str())
    }

    /// The names of all queues.
    pub(crate) fn queues(&self) -> String {
        format!("{}:queues", self.prefix)
    }

    /// The signs of life of all workers.
    pub(crate) fn workers(&self) -> String {
        format!("{}:workers", self.prefix)
    }

    /// The version of all this.
    pub(crate) fn schema(&self) -> String {
        format!("{}:schema", self.prefix)
    }

    /// Who repairs, so that not all do at once.
    pub(crate) fn repair(&self) -> String {
        format!("{}:repair", self.prefix)
    }

    /// The values and the names of all cells, in one place. No queue can have that tag.
    pub(crate) fn cells(&self) -> [String; 2] {
        ["values", "names"].map(|part| format!("{}:{{:cells}}:{part}", self.prefix))
    }

    pub(crate) fn hints(&self) -> String {
        format!("{}:hints", self.prefix)
    }

    /// A part of a shard of a stream. No queue can have that tag, and the cells have none like it.
    pub(crate) fn shard(&self, stream: &StreamName, shard: usize, part: &str) -> String {
        format!("{}:{{:{stream}:{shard}}}:{part}", self.prefix)
    }

    /// The names of all streams.
    pub(crate) fn streams(&self) -> String {
        format!("{}:streams", self.prefix)
    }

    /// What fits all keys of streams.
    pub(crate) fn any_shard(&self) -> String {
        format!("{}:{{:*}}:*", self.prefix)
    }

    /// The stream whose key that is.
    pub(crate) fn stream_of(&self, key: &str) -> Option<StreamName> {
        let (tag, _) = key
            .strip_prefix(&self.prefix)?
            .strip_prefix(":{:")?
            .split_once('}')?;
        StreamName::new(tag.split_once(':')?.0).ok()
    }

    /// What fits the key that every queue has.
    pub(crate) fn any_queue(&self) -> String {
        format!("{}:{{*}}:{}", self.prefix, QueueKey::Meta.as_str())
    }

    /// The queue whose key that is.
    pub(crate) fn queue_of(&self, key: &str) -> Option<QueueName> {
        let name = key
            .strip_prefix(&self.prefix)?
            .strip_prefix(":{")?
            .strip_suffix("}:meta")?;
        QueueName::new(name).ok()
    }
}

/// A key that never exists, with the tag of this one: nothing that has keys has a part of that
/// name.
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
