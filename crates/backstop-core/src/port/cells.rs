//! Small values that processes share: each is changed only by who has seen its latest version.
//!
//! What a breaker knows, how far a redrive has come, what an operator did: values that the core
//! decides about and that a store only keeps. A change names the version it was decided on; if
//! another one came first, it is answered with that and decides anew.

use super::backlog::check_count;
use super::error::{StoreError, StoreResult};
use crate::limits::{CELL_BYTES_MAX, CELL_NAME_BYTES_MAX, CELLS_MAX};
use async_trait::async_trait;

/// A value as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    pub name: String,
    /// Drawn at random by whoever wrote it: never the same for two changes.
    pub version: i64,
    pub value: Vec<u8>,
}

/// A change of one value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CellSwap {
    pub name: String,
    /// The version it was decided on; `None` if there was no such cell.
    pub seen: Option<i64>,
    /// The version it gets, drawn anew for every change, and the same only to repeat one.
    pub version: i64,
    /// What is written; `None` removes the cell.
    pub value: Option<Vec<u8>>,
}

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwapOutcome {
    /// It counts; also said when the very same change is repeated while its value stands.
    Applied,
    /// Another change came first: this is what stands now. Nothing was changed.
    Conflict(Option<Cell>),
}

/// A part of the list of cells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListCellsRequest {
    /// Names that begin with this.
    pub prefix: String,
    /// And come behind this one.
    pub after: Option<String>,
    /// At most so many; clamped to 1 … [`CELLS_MAX`].
    pub limit: usize,
}

/// Small values that processes share.
#[async_trait]
pub trait CellStore: Send + Sync {
    /// The cells of these names, in their order.
    async fn cells(&self, names: Vec<String>) -> StoreResult<Vec<Option<Cell>>>;

    /// The next cells, by the bytes of their names.
    async fn list_cells(&self, query: ListCellsRequest) -> StoreResult<Vec<Cell>>;

    /// Changes values, each by itself; answers in the order of `swaps`. The removal of a cell that
    /// is not there is applied.
    async fn swap(&self, swaps: Vec<CellSwap>) -> StoreResult<Vec<SwapOutcome>>;
}

/// Refuses a read that is over the limits.
pub fn check_names(names: &[String]) -> StoreResult<()> {
    check_count("read cells", names.len(), CELLS_MAX)
}

/// Refuses changes that are over the limits.
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
    /// What a change does to what stands: the rule that every store applies.
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
    /// Nothing: it was applied before.
    AlreadyApplied,
    /// It is to be written.
    Apply,
    Conflict,
}
