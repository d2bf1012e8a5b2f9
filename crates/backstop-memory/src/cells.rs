//! Small shared values, in memory.

use crate::MemoryStore;
use async_trait::async_trait;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::cells::{Judged, check_names, check_swaps};
use backstop_core::port::{Answer, Cell, CellQuery, Cells, Swap, Swapped};
use std::ops::Bound;

#[async_trait]
impl Cells for MemoryStore {
    async fn cells(&self, names: Vec<String>) -> Answer<Vec<Option<Cell>>> {
        check_names(&names)?;
        let shelves = self.shelves("reading cells")?;
        Ok(names
            .iter()
            .map(|name| shelves.cells.get(name).cloned())
            .collect())
    }

    async fn list_cells(&self, query: CellQuery) -> Answer<Vec<Cell>> {
        let shelves = self.shelves("listing cells")?;
        let from = match query.after {
            Some(after) if after >= query.prefix => Bound::Excluded(after),
            _ => Bound::Included(query.prefix.clone()),
        };
        let behind = shelves.cells.range((from, Bound::Unbounded));
        let fitting = behind.take_while(|(name, _)| name.starts_with(&query.prefix));
        Ok(fitting
            .take(query.limit.clamp(1, CELLS_MAX))
            .map(|(_, cell)| cell.clone())
            .collect())
    }

    async fn swap(&self, swaps: Vec<Swap>) -> Answer<Vec<Swapped>> {
        check_swaps(&swaps)?;
        let mut shelves = self.shelves("swapping cells")?;
        let answers = swaps.into_iter().map(|swap| {
            let standing = shelves.cells.get(&swap.name);
            match swap.judge(standing) {
                Judged::Stands => return Swapped::Applied,
                Judged::Conflict => return Swapped::Conflict(standing.cloned()),
                Judged::Apply => {}
            }
            let Swap {
                name,
                version,
                value,
                ..
            } = swap;
            match value {
                Some(value) => shelves.cells.insert(
                    name.clone(),
                    Cell {
                        name,
                        version,
                        value,
                    },
                ),
                None => shelves.cells.remove(&name),
            };
            Swapped::Applied
        });
        Ok(answers.collect())
    }
}
