//! What was taken in, by whom, in which order: one file that all members append to, and that
//! outlives them.

use backstop_kafka::KafkaMessage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::path::{Path, PathBuf};

/// A file of entries.
pub(crate) struct Ledger(PathBuf);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) number: u64,
    pub(crate) member: String,
}

impl Ledger {
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Appends a batch in one write, and has it on disk before it answers. Each entry begins a line
    /// and ends with a mark: one that a kill has cut in the middle can neither be read nor spoil
    /// the next.
    pub(crate) fn append(&self, member: &str, batch: &[KafkaMessage]) -> Result<()> {
        let lines: String = batch.iter().map(|message| line(member, message)).collect();
        let mut file: File = OpenOptions::new().create(true).append(true).open(&self.0)?;
        file.write_all(lines.as_bytes())?;
        file.sync_data()
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().filter_map(read).collect()
    }

    /// How many different records there are.
    pub(crate) fn numbers(&self) -> usize {
        self.entries()
            .iter()
            .map(|entry| entry.number)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// The partitions of which a member has taken in records.
    pub(crate) fn partitions_of(&self, member: &str) -> BTreeSet<i32> {
        let entries = self
            .entries()
            .into_iter()
            .filter(|entry| entry.member == member);
        entries.map(|entry| entry.partition).collect()
    }

    /// The offsets that stand there more than once, by partition, each as often as it is too many;
    /// only those that were repeated after so many entries.
    pub(crate) fn repeated(&self, after: usize) -> BTreeMap<i32, Vec<i64>> {
        let (mut seen, mut repeated) = (BTreeSet::new(), BTreeMap::<i32, Vec<i64>>::new());
        for (index, entry) in self.entries().into_iter().enumerate() {
            if !seen.insert((entry.partition, entry.offset)) && index >= after {
                repeated
                    .entry(entry.partition)
                    .or_default()
                    .push(entry.offset);
            }
        }
        repeated
    }

    /// So many of each partition come twice at most, each time it is handed over. That may happen
    /// more often than there are members: what one rebalance takes from a member, the next may give
    /// back to it.
    pub(crate) fn check_repeated(&self, bound: usize, handovers: usize) {
        for (partition, offsets) in self.repeated(0) {
            assert!(
                offsets.len() <= bound * handovers,
                "partition {partition}: {offsets:?}"
            );
        }
    }
}

fn line(member: &str, message: &KafkaMessage) -> String {
    let payload = message
        .payload
        .as_deref()
        .and_then(|payload| std::str::from_utf8(payload).ok());
    let number = payload.expect("a number");
    format!(
        "\n{} {} {number} {member};",
        message.partition, message.offset
    )
}

fn read(line: &str) -> Option<Entry> {
    let mut words = line.strip_suffix(';')?.split(' ');
    let entry = Entry {
        partition: words.next()?.parse().ok()?,
        offset: words.next()?.parse().ok()?,
        number: words.next()?.parse().ok()?,
        member: words.next()?.to_owned(),
    };
    words.next().is_none().then_some(entry)
}
