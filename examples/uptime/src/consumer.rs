//! The consumer: results come in as bytes, are validated, and go on to a sequencer.
//!
//! Knows no source: a file, a web request and a topic all end in [`Consumer::take`], and may
//! acknowledge a batch when it has answered. A batch that was cut off may come again; what had
//! become of it stays so.

#[cfg(test)]
mod tests;

use crate::directory::Change;
use crate::event::Record;
use crate::memory::Memory;
use crate::sequencer::{Became, Hold, Offered, Sequencer, SharedDirectory};
use crate::validate::{Ending, Tags, validate};
use crate::wire::{Broken, Received};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::mem;
use std::sync::PoisonError;

/// Takes results.
pub struct Consumer {
    memory: Box<dyn Memory>,
    directory: SharedDirectory,
    sequencer: Box<dyn Sequencer>,
    /// The last change to the directory that was made here.
    seen: i64,
}

/// What became of a batch.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Taken {
    /// How many of which kind.
    pub counts: Counts,
    /// Results by what they are counted under.
    pub by_tags: BTreeMap<Tags, u64>,
    /// What is no result, each with its place in the batch.
    pub broken: Vec<(usize, Broken)>,
    /// What became of each, in the order of the batch.
    pub outcomes: Vec<Outcome>,
}

/// What became of one of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is no result.
    Broken,
    /// Validation let it go no further.
    Ended(Ending),
    /// It was admitted, and the sequencer has it.
    Became(Became),
}

impl Outcome {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Ended(ending) => ending.as_str(),
            Self::Became(became) => became.as_str(),
        }
    }
}

/// A result that validation let pass, and its place in the batch.
type Admitted = (usize, Record);

/// What became of all batches together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// How many of which kind.
    pub counts: Counts,
    /// Results by what they are counted under.
    pub by_tags: BTreeMap<Tags, u64>,
}

impl Totals {
    /// Adds a batch.
    pub fn add(&mut self, taken: &Taken) {
        self.counts.add(taken.counts);
        for (tags, count) in &taken.by_tags {
            *self.by_tags.entry(tags.clone()).or_default() += count;
        }
    }
}

/// How many results came to what end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words of `Ending` and `Offered`")]
pub struct Counts {
    pub received: u64,
    pub broken: u64,
    pub unknown_subscription: u64,
    pub disallowed_by_robots: u64,
    pub shadow_region: u64,
    pub no_detector: u64,
    pub detector_disabled: u64,
    pub feature_off: u64,
    pub admitted: u64,
    pub offered: Offered,
}

impl Consumer {
    /// A consumer with a memory of its own connection and a way of putting results in order.
    pub fn new(
        memory: Box<dyn Memory>,
        directory: SharedDirectory,
        sequencer: Box<dyn Sequencer>,
    ) -> Self {
        Self {
            memory,
            directory,
            sequencer,
            seen: 0,
        }
    }

    /// Takes a batch, in its order.
    pub fn take(&mut self, batch: Vec<Bytes>, now_ms: i64) -> anyhow::Result<Taken> {
        self.catch_up()?;
        let mut taken = Taken::default();
        let mut admitted = Vec::new();
        for (place, bytes) in batch.into_iter().enumerate() {
            taken.counts.received += 1;
            match Received::read(bytes) {
                Ok(received) => self.admit(place, received, now_ms, &mut admitted, &mut taken)?,
                Err(broken) => {
                    taken.counts.broken += 1;
                    taken.outcomes.push(Outcome::Broken);
                    taken.broken.push((place, broken));
                }
            }
        }
        self.offer(&mut admitted, &mut taken)?;
        Ok(taken)
    }

    /// Waits until nothing is held any more.
    pub fn drain(&mut self) -> anyhow::Result<()> {
        self.sequencer.drain()
    }

    /// No more results come.
    pub fn finish(self) -> anyhow::Result<Option<Hold>> {
        self.sequencer.finish()
    }

    /// Makes the changes to the directory that other processes made.
    fn catch_up(&mut self) -> anyhow::Result<()> {
        let mut directory = self
            .directory
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for (seq, change) in self.memory.changes(self.seen)? {
            directory.apply(&change);
            self.seen = seq;
        }
        Ok(())
    }

    /// Validates one result, and does what that demands. Those admitted go on together, unless
    /// something comes between.
    fn admit(
        &mut self,
        place: usize,
        received: Received,
        now_ms: i64,
        admitted: &mut Vec<Admitted>,
        taken: &mut Taken,
    ) -> anyhow::Result<()> {
        let verdict = {
            let directory = self
                .directory
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            validate(&received.result, &directory, now_ms)
        };
        taken.count(verdict.tags, verdict.ending);
        taken.outcomes.push(Outcome::Ended(verdict.ending));
        for change in &verdict.changes {
            // What was admitted before a change is handled before it.
            self.offer(admitted, taken)?;
            self.change(change)?;
        }
        match verdict.ending {
            Ending::Admitted(at) => {
                let tenant = at.organization.to_string();
                let (key, position, step, payload) = (at.key, at.position, at.step, received.bytes);
                admitted.push((
                    place,
                    Record {
                        key,
                        position,
                        step,
                        tenant,
                        payload,
                    },
                ));
            }
            Ending::DisallowedByRobots => {
                self.offer(admitted, taken)?;
                self.sequencer.forget(received.result.subscription_id)?;
            }
            Ending::UnknownSubscription
            | Ending::ShadowRegion
            | Ending::NoDetector
            | Ending::DetectorDisabled
            | Ending::FeatureOff => {}
        }
        Ok(())
    }

    fn offer(&mut self, admitted: &mut Vec<Admitted>, taken: &mut Taken) -> anyhow::Result<()> {
        if admitted.is_empty() {
            return Ok(());
        }
        let (places, records): (Vec<usize>, Vec<Record>) = mem::take(admitted).into_iter().unzip();
        for (place, became) in places.into_iter().zip(self.sequencer.offer(records)?) {
            taken.counts.offered.count(became);
            taken.outcomes[place] = Outcome::Became(became);
        }
        Ok(())
    }

    /// Makes a change here, and known to others.
    fn change(&mut self, change: &Change) -> anyhow::Result<()> {
        let mut transaction = self.memory.begin()?;
        transaction.change(change)?;
        transaction.commit()?;
        self.directory
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .apply(change);
        Ok(())
    }
}

impl Taken {
    fn count(&mut self, tags: Option<Tags>, ending: Ending) {
        if let Some(tags) = tags {
            *self.by_tags.entry(tags).or_default() += 1;
        }
        *self.counts.of(ending) += 1;
    }
}

impl Counts {
    fn of(&mut self, ending: Ending) -> &mut u64 {
        match ending {
            Ending::UnknownSubscription => &mut self.unknown_subscription,
            Ending::DisallowedByRobots => &mut self.disallowed_by_robots,
            Ending::ShadowRegion => &mut self.shadow_region,
            Ending::NoDetector => &mut self.no_detector,
            Ending::DetectorDisabled => &mut self.detector_disabled,
            Ending::FeatureOff => &mut self.feature_off,
            Ending::Admitted(_) => &mut self.admitted,
        }
    }

    /// Adds those of another batch.
    pub fn add(&mut self, other: Self) {
        self.received += other.received;
        self.broken += other.broken;
        self.unknown_subscription += other.unknown_subscription;
        self.disallowed_by_robots += other.disallowed_by_robots;
        self.shadow_region += other.shadow_region;
        self.no_detector += other.no_detector;
        self.detector_disabled += other.detector_disabled;
        self.feature_off += other.feature_off;
        self.admitted += other.admitted;
        self.offered.add(other.offered);
    }
}
