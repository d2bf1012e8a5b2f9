//! Cells: small values that processes share, changed by compare-and-set.
//!
//! The core decides what is in a cell, such as the state of a breaker, the progress of a redrive or
//! an operator's command; a store only keeps the bytes. A change names the version that it was
//! decided on. If another change came first, the store answers with the current cell, and the
//! caller decides again.

use super::backlog::check_count;
use super::error::{StoreError, StoreResult};
use crate::limits::{CELL_BYTES_MAX, CELL_NAME_BYTES_MAX, CELLS_MAX};
use async_trait::async_trait;

/// A value with its current version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    pub name: String,
    /// A random number, drawn by the writer: no two changes have the same one.
    pub version: i64,
    pub value: Vec<u8>,
}

/// A change of one value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CellSwap {
    pub name: String,
    /// The version that the change was decided on; `None` if there was no such cell.
    pub seen: Option<i64>,
    /// The new version, drawn anew for every change; only a repeated call reuses it.
    pub version: i64,
    /// The new value; `None` removes the cell.
    pub value: Option<Vec<u8>>,
}

/// What the store did with a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwapOutcome {
    /// The store applied it. A repetition of the same change gets this answer too, while its value
    /// is the current one.
    Applied,
    /// Another change came first; this is the current cell. Nothing was changed.
    Conflict(Option<Cell>),
}

/// A request for one page of the list of cells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListCellsRequest {
    /// Only cells whose names begin with this.
    pub prefix: String,
    /// Only cells whose names sort after this one.
    pub after: Option<String>,
    /// At most this many cells; clamped to 1 … [`CELLS_MAX`].
    pub limit: usize,
}

/// A store of small values that are changed by compare-and-set.
#[async_trait]
pub trait CellStore: Send + Sync {
    /// Reads the cells of these names, in the order of `names`.
    async fn cells(&self, names: Vec<String>) -> StoreResult<Vec<Option<Cell>>>;

    /// Lists the next cells, ordered by the bytes of their names.
    async fn list_cells(&self, query: ListCellsRequest) -> StoreResult<Vec<Cell>>;

    /// Applies changes, each on its own; answers in the order of `swaps`. Removing a cell that does
    /// not exist counts as applied.
    async fn swap(&self, swaps: Vec<CellSwap>) -> StoreResult<Vec<SwapOutcome>>;
}

/// Refuses a read that exceeds the limits.
pub fn check_names(names: &[String]) -> StoreResult<()> {
    check_count("read cells", names.len(), CELLS_MAX)
}

/// Refuses changes that exceed the limits.
pub fn check_swaps(swaps: &[CellSwap]) -> StoreResult<()> {
    check_count("swap cells", swaps.len(), CELLS_MAX)?;
    for swap in swaps {
        let bytes = swap.value.as_ref().map_or(0, Vec::len);
        if swap.name.is_empty() || swap.name.len() > CELL_NAME_BYTES_MAX || swap.name.contains('\0')
        {
            let cause = format!("a cell's name has 1 to {CELL_NAME_BYTES_MAX} bytes and no NUL");
            return Err(StoreError::misuse("swap cells", cause));
        }
        if bytes > CELL_BYTES_MAX {
            let cause = format!(
                "{bytes} bytes for cell {}; at most {CELL_BYTES_MAX} fit",
                swap.name
            );
            return Err(StoreError::misuse("swap cells", cause));
        }
    }
    Ok(())
}

impl CellSwap {
    /// Decides whether this change applies to the current cell: the rule of every store.
    pub fn judge(&self, current: Option<&Cell>) -> SwapDecision {
        let repeated = current.is_some_and(|cell| cell.version == self.version);
        let is_gone = current.is_none() && self.value.is_none();
        if repeated || is_gone {
            SwapDecision::AlreadyApplied
        } else if current.map(|cell| cell.version) == self.seen {
            SwapDecision::Apply
        } else {
            SwapDecision::Conflict
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapDecision {
    /// The change was applied before; there is nothing to write.
    AlreadyApplied,
    Apply,
    Conflict,
}
