//! Immediate backfill: a gap is a miss at once, and what comes later than its successor is dropped.
//!
//! All worker processes share one `last_update` for each subscription. The lock on the memory gives
//! them exclusion; nothing gives them order.

#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::event::{Effect, Event, Record};
use crate::limits::BACKFILL_MAX;
use crate::memory::{LastUpdate, Memory};
use crate::process::process_in;
use crate::sequencer::{Became, Hold, Sequencer, SharedDirectory};
use crate::standing::Thresholds;
use crate::wire::SubscriptionId;
use anyhow::Context;
use std::sync::PoisonError;

/// Immediate backfill.
pub struct Immediate {
    /// Where `last_update` is.
    pub memory: Box<dyn Memory>,
    /// What is watched.
    pub directory: SharedDirectory,
    /// How many results in a row it takes.
    pub thresholds: Thresholds,
    /// What time it is.
    pub clock: Clock,
}

impl Sequencer for Immediate {
    fn offer(&mut self, records: Vec<Record>) -> anyhow::Result<Vec<Became>> {
        let became = records.iter().map(|record| {
            let sight = self.take(record);
            let sight =
                sight.with_context(|| format!("result {} of {}", record.position, record.key))?;
            Ok(match sight {
                Sight::Duplicate => Became::Duplicate,
                Sight::Next { .. } => Became::Handled,
            })
        });
        became.collect()
    }

    fn forget(&mut self, key: SubscriptionId) -> anyhow::Result<()> {
        let mut transaction = self.memory.begin()?;
        transaction.forget_last_update(key)?;
        Ok(transaction.commit()?)
    }

    /// Nothing is ever held.
    fn drain(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> anyhow::Result<Option<Hold>> {
        Ok(None)
    }
}

impl Immediate {
    fn take(&mut self, record: &Record) -> anyhow::Result<Sight> {
        let directory = self
            .directory
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let now_ms = self.clock.now_ms();
        let mut transaction = self.memory.begin()?;
        let sight = look(transaction.last_update(record.key)?, record);
        if let Sight::Next { missed } = &sight {
            for event in missed
                .iter()
                .map(|position| miss(record, *position))
                .chain([handled(record)])
            {
                process_in(
                    &mut *transaction,
                    &event,
                    &directory,
                    &self.thresholds,
                    now_ms,
                )?;
            }
            let reached = LastUpdate {
                position: record.position,
                step: record.step,
            };
            transaction.set_last_update(record.key, reached)?;
        }
        transaction.commit()?;
        Ok(sight)
    }
}

/// What immediate backfill sees in a result.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Sight {
    /// Nothing new.
    Duplicate,
    /// The next result, whatever lies between.
    Next {
        /// The positions that lie between.
        missed: Vec<i64>,
    },
}

fn look(last: Option<LastUpdate>, record: &Record) -> Sight {
    match last {
        None => Sight::Next { missed: Vec::new() },
        Some(last) if record.position <= last.position => Sight::Duplicate,
        // The gap spans a change of the interval: nobody knows how many checks belong into it.
        Some(last) if last.step != record.step => Sight::Next { missed: Vec::new() },
        Some(last) => Sight::Next {
            missed: missed(last.position, record),
        },
    }
}

/// The oldest ones of a gap, up to a limit: none at one and a half steps, one at two and a half.
fn missed(last: i64, record: &Record) -> Vec<i64> {
    let steps = (record.position - last) / record.step;
    (1..=(steps - 1).min(BACKFILL_MAX))
        .map(|nth| last + nth * record.step)
        .collect()
}

fn miss(record: &Record, position: i64) -> Event {
    Event {
        key: record.key,
        position,
        step: record.step,
        effect: Effect::Miss,
        payload: None,
        following: Some(record.payload.clone()),
    }
}

fn handled(record: &Record) -> Event {
    Event {
        key: record.key,
        position: record.position,
        step: record.step,
        effect: Effect::Handled,
        payload: Some(record.payload.clone()),
        following: None,
    }
}
