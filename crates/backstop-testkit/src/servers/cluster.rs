//! A Redis Cluster of its own.

use super::process::on_a_free_port;
use super::redis::{Append, Redis, Settings, is_in_step};
use super::unique_name;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// As many masters as a cluster needs to agree on a failure.
const MASTERS: usize = 3;
/// A node that is silent for so long has failed.
const NODE_TIMEOUT_MS: u32 = 1_000;
/// A cluster that does not agree on its state by then never will.
const AGREE_TIME_MAX: Duration = Duration::from_mins(1);
/// Between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A cluster of three masters, each with the same number of replicas.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts one.
    pub fn start(replicas_per_master: usize) -> Self {
        let settings = Settings {
            append: Append::EverySecond,
            options: vec![
                ("cluster-enabled", "yes".to_owned()),
                ("cluster-node-timeout", NODE_TIMEOUT_MS.to_string()),
                // A replica that was cut off for long may still be the best there is.
                ("cluster-replica-validity-factor", "0".to_owned()),
                ("repl-diskless-sync-delay", "0".to_owned()),
            ],
        };
        let node = |_| {
            on_a_free_port("a node of a Redis Cluster", |addr| {
                Redis::start_at(addr, &settings)
            })
        };
        let nodes: Vec<Redis> = (0..MASTERS * (1 + replicas_per_master)).map(node).collect();
        let addresses: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let mut words = vec!["--cluster", "create"];
        words.extend(addresses.iter().map(String::as_str));
        let replicas = replicas_per_master.to_string();
        words.extend(["--cluster-replicas", &replicas, "--cluster-yes"]);
        nodes[0].cli(&words);
        let cluster = Self { nodes };
        cluster.until("all nodes agree", |cluster| {
            cluster
                .nodes
                .iter()
                .all(|node| agrees(node) && is_in_step(node))
        });
        cluster
    }

    /// Its address: all nodes that were masters at the start.
    pub fn url(&self) -> String {
        let masters: Vec<String> = self.nodes[..MASTERS]
            .iter()
            .map(|node| node.addr().to_string())
            .collect();
        format!("redis+cluster://{}", masters.join(","))
    }

    /// Its address with a prefix for keys that nobody else has.
    pub fn fresh_url(&self) -> String {
        format!("{}?prefix={}", self.url(), unique_name())
    }

    /// The nodes that are masters now.
    pub fn masters(&self) -> Vec<&Redis> {
        self.nodes
            .iter()
            .filter(|node| slots(node).is_some_and(|slots| !slots.is_empty()))
            .collect()
    }

    /// The master that serves a key now.
    pub fn master_of(&self, key: &str) -> &Redis {
        let slot = self.slot_of(key);
        let serves = |node: &&Redis| {
            slots(node).is_some_and(|slots| slots.iter().any(|slots| slots.contains(&slot)))
        };
        self.nodes
            .iter()
            .find(serves)
            .expect("every slot is served")
    }

    fn slot_of(&self, key: &str) -> u16 {
        let slot = self
            .nodes
            .iter()
            .find_map(|node| node.ask(&["cluster", "keyslot", key]));
        slot.expect("a node answers")
            .trim()
            .parse()
            .expect("a slot is a number")
    }

    /// Begins to move the slot of a key to another master. Until it is there, some of its keys are
    /// here and some there.
    pub fn begin_to_move(&self, key: &str) -> Moving<'_> {
        let (from, slot) = (self.master_of(key), self.slot_of(key));
        let to = self
            .masters()
            .into_iter()
            .find(|master| master.addr() != from.addr());
        let moving = Moving {
            cluster: self,
            from,
            to: to.expect("there are three"),
            slot,
        };
        let number = slot.to_string();
        moving
            .to
            .cli(&["cluster", "setslot", &number, "importing", &id(from)]);
        moving
            .from
            .cli(&["cluster", "setslot", &number, "migrating", &id(moving.to)]);
        moving
    }

    /// Kills a master with `kill -9`, and returns when one of its replicas has taken its place.
    pub fn fail_over(&self, master: &Redis) {
        let lost = slots(master).expect("it is alive");
        master.kill();
        self.until("a replica takes over", |cluster| {
            let others = || {
                cluster
                    .nodes
                    .iter()
                    .filter(|node| node.addr() != master.addr())
            };
            others().any(|node| slots(node).as_ref() == Some(&lost)) && others().all(agrees)
        });
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + AGREE_TIME_MAX;
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "the Redis Cluster: waited {AGREE_TIME_MAX:?} until {what}"
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// A slot on its way from one master to another.
#[derive(Debug)]
pub struct Moving<'a> {
    cluster: &'a Cluster,
    from: &'a Redis,
    to: &'a Redis,
    slot: u16,
}

impl Moving<'_> {
    /// Moves so many keys at most; answers how many.
    pub fn move_keys(&self, max: usize) -> usize {
        let keys = self.from.cli(&[
            "cluster",
            "getkeysinslot",
            &self.slot.to_string(),
            &max.to_string(),
        ]);
        let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
        if !keys.is_empty() {
            let (host, port) = (
                self.to.addr().ip().to_string(),
                self.to.addr().port().to_string(),
            );
            let words = ["migrate", &host, &port, "", "0", "5000", "keys"];
            self.from.cli(&[&words[..], &keys].concat());
        }
        keys.len()
    }

    /// Moves what is left, and lets all masters know.
    pub fn finish(self) {
        while self.move_keys(100) > 0 {}
        let (slot, owner) = (self.slot.to_string(), id(self.to));
        self.to.cli(&["cluster", "setslot", &slot, "node", &owner]);
        for node in self.cluster.masters() {
            node.cli(&["cluster", "setslot", &slot, "node", &owner]);
        }
    }
}

/// What a node calls itself.
fn id(node: &Redis) -> String {
    node.cli(&["cluster", "myid"]).trim().to_owned()
}

/// The slots that a node serves as master; a replica serves none. `None` if it does not answer.
fn slots(node: &Redis) -> Option<Vec<RangeInclusive<u16>>> {
    let nodes = node.ask(&["cluster", "nodes"])?;
    let own = nodes.lines().find(|line| line.contains("myself"))?;
    // Eight words about the node come before its slots; a slot on its way from or to it is in
    // brackets.
    let words = own.split(' ').skip(8).filter(|word| !word.starts_with('['));
    words.map(range).collect()
}

fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// Whether a node sees all slots served.
fn agrees(node: &Redis) -> bool {
    node.ask(&["cluster", "info"])
        .is_some_and(|info| info.contains("cluster_state:ok"))
}
