//! How often findings were recovered: a cell for each, for as long as the row is found or its job
//! lives.

use super::Sweep;
use crate::client::Backstop;
use crate::shared_cells::CellWalk;
use backstop_core::limits::{CELLS_MAX, HOLDERS_MAX, SWEEP_RECOVERED_MAX};
use backstop_core::port::{Cell, CellSwap, StoreResult};
use backstop_core::unique::UniqueKey;
use backstop_core::{JobId, Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A recovery that was not repeated for so long is forgotten, also where more rows are found than
/// one run looks at.
const REMEMBERED: Span = Span::days(30);

/// What is remembered of a finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct StoredRecovery {
    key: String,
    count: u32,
    at: Time,
}

/// The recoveries of one sweep, as they were when they were read.
pub(super) struct SweepRecoveries<'a> {
    backstop: &'a Backstop,
    sweep: &'a Sweep,
    cells: BTreeMap<String, (Cell, StoredRecovery)>,
}

impl<'a> SweepRecoveries<'a> {
    /// Reads all of them: there are few, and none where nothing gets lost.
    pub(super) async fn read(backstop: &'a Backstop, sweep: &'a Sweep) -> StoreResult<Self> {
        let (mut cells, mut walk) = (BTreeMap::new(), CellWalk::new(backstop, prefix(sweep)));
        while cells.len() <= SWEEP_RECOVERED_MAX {
            let Some(page) = walk.next().await? else {
                break;
            };
            for cell in page {
                // One that cannot be read counts nothing, and goes with the next clearing.
                let recovered = serde_json::from_slice(&cell.value);
                let unread = || StoredRecovery {
                    key: String::new(),
                    count: 0,
                    at: Time::default(),
                };
                let recovered = recovered.unwrap_or_else(|_| unread());
                cells.insert(cell.name.clone(), (cell, recovered));
            }
        }
        Ok(Self {
            backstop,
            sweep,
            cells,
        })
    }

    /// How often a finding was recovered.
    pub(super) fn count(&self, key: &UniqueKey) -> u32 {
        self.of(key).map_or(0, |recovered| recovered.count)
    }

    /// When it was recovered last.
    pub(super) fn last(&self, key: &UniqueKey) -> Option<Time> {
        self.of(key).map(|recovered| recovered.at)
    }

    fn of(&self, key: &UniqueKey) -> Option<&StoredRecovery> {
        self.cells
            .get(&self.name(key))
            .map(|(_, recovered)| recovered)
    }

    /// Counts one more for each of these. Where another process was faster it has counted the same
    /// recovery.
    pub(super) async fn add(&self, keys: &[UniqueKey]) -> StoreResult<()> {
        let room = SWEEP_RECOVERED_MAX.saturating_sub(self.cells.len());
        let (known, new): (Vec<_>, Vec<_>) = keys.iter().partition(|key| self.of(key).is_some());
        if new.len() > room {
            let sweep = self.sweep.name();
            tracing::warn!(
                sweep,
                "more than {SWEEP_RECOVERED_MAX} recoveries; the others are not counted"
            );
        }
        let counted = known.into_iter().chain(new.into_iter().take(room));
        let swaps = counted.map(|key| {
            let recovered = StoredRecovery {
                key: key.to_string(),
                count: self.count(key) + 1,
                at: self.backstop.now(),
            };
            self.swap(
                &self.name(key),
                Some(serde_json::to_vec(&recovered).unwrap_or_default()),
            )
        });
        self.apply(swaps.collect()).await
    }

    pub(super) async fn forget(&self, keys: &[UniqueKey]) -> StoreResult<()> {
        let names = keys
            .iter()
            .map(|key| self.name(key))
            .filter(|name| self.cells.contains_key(name));
        self.apply(names.map(|name| self.swap(&name, None)).collect())
            .await
    }

    /// Forgets those whose row is no longer found and whose job is not on its way. `found` is all
    /// there is, or as much as one run looks at; then only what is old goes.
    pub(super) async fn clear(
        &self,
        found: &BTreeSet<&UniqueKey>,
        is_all: bool,
    ) -> StoreResult<()> {
        let now = self.backstop.now();
        let is_old = |recovered: &StoredRecovery| now.since(recovered.at) > REMEMBERED;
        let is_gone = |recovered: &StoredRecovery| {
            let key = UniqueKey::new(&recovered.key).ok();
            is_old(recovered) || (is_all && key.is_none_or(|key| !found.contains(&key)))
        };
        let gone: Vec<(&String, &StoredRecovery)> = self
            .cells
            .iter()
            .filter(|(_, (_, recovered))| is_gone(recovered))
            .map(|(name, (_, recovered))| (name, recovered))
            .collect();
        let mut swaps = Vec::new();
        for part in gone.chunks(HOLDERS_MAX) {
            let keys: Vec<Option<UniqueKey>> = part
                .iter()
                .map(|(_, recovered)| UniqueKey::new(&recovered.key).ok())
                .collect();
            let wanted: Vec<UniqueKey> = keys.iter().flatten().cloned().collect();
            let holders = self
                .backstop
                .store()
                .unique_holders(self.sweep.queue().clone(), wanted, now)
                .await?;
            let mut holders = holders.into_iter();
            for ((name, _), key) in part.iter().zip(&keys) {
                let holder = key.as_ref().and_then(|_| holders.next().flatten());
                if !holder.is_some_and(|holder| holder.is_live()) {
                    swaps.push(self.swap(name, None));
                }
            }
        }
        self.apply(swaps).await
    }

    fn name(&self, key: &UniqueKey) -> String {
        // A key may be as long as a cell's name may be: what it is called by is short.
        format!("{}{}", prefix(self.sweep), JobId::named(key.as_str()))
    }

    fn swap(&self, name: &str, value: Option<Vec<u8>>) -> CellSwap {
        let seen = self.cells.get(name).map(|(cell, _)| cell.version);
        let version = self.backstop.random().bits().cast_signed();
        CellSwap {
            name: name.to_owned(),
            seen,
            version,
            value,
        }
    }

    async fn apply(&self, swaps: Vec<CellSwap>) -> StoreResult<()> {
        for part in swaps.chunks(CELLS_MAX) {
            self.backstop.store().swap(part.to_vec()).await?;
        }
        Ok(())
    }
}

fn prefix(sweep: &Sweep) -> String {
    sweep.cell("recovered/")
}
