//! Cells, small shared values, in memory.

use crate::MemoryStore;
use async_trait::async_trait;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::cells::{SwapDecision, check_names, check_swaps};
use backstop_core::port::{Cell, CellStore, CellSwap, ListCellsRequest, StoreResult, SwapOutcome};
use std::ops::Bound;

#[async_trait]
impl CellStore for MemoryStore {
    async fn cells(&self, names: Vec<String>) -> StoreResult<Vec<Option<Cell>>> {
        check_names(&names)?;
        let state = self.lock_state("reading cells")?;
        Ok(names
            .iter()
            .map(|name| state.cells.get(name).cloned())
            .collect())
    }

    async fn list_cells(&self, query: ListCellsRequest) -> StoreResult<Vec<Cell>> {
        let state = self.lock_state("listing cells")?;
        let from = match query.after {
            Some(after) if after >= query.prefix => Bound::Excluded(after),
            _ => Bound::Included(query.prefix.clone()),
        };
        let behind = state.cells.range((from, Bound::Unbounded));
        let fitting = behind.take_while(|(name, _)| name.starts_with(&query.prefix));
        Ok(fitting
            .take(query.limit.clamp(1, CELLS_MAX))
            .map(|(_, cell)| cell.clone())
            .collect())
    }

    async fn swap(&self, swaps: Vec<CellSwap>) -> StoreResult<Vec<SwapOutcome>> {
        check_swaps(&swaps)?;
        let mut state = self.lock_state("swapping cells")?;
        let answers = swaps.into_iter().map(|swap| {
            let current = state.cells.get(&swap.name);
            match swap.judge(current) {
                SwapDecision::AlreadyApplied => return SwapOutcome::Applied,
                SwapDecision::Conflict => return SwapOutcome::Conflict(current.cloned()),
                SwapDecision::Apply => {}
            }
            let CellSwap {
                name,
                version,
                value,
                ..
            } = swap;
            match value {
                Some(value) => state.cells.insert(
                    name.clone(),
                    Cell {
                        name,
                        version,
                        value,
                    },
                ),
                None => state.cells.remove(&name),
            };
            SwapOutcome::Applied
        });
        Ok(answers.collect())
    }
}
