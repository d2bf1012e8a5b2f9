//! Cells whose names begin alike, page by page: all that processes share of one kind.

use crate::client::Backstop;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Cell, CellSwap, ListCellsRequest, StoreResult};

/// A way through the cells of a prefix, by name.
pub(crate) struct CellWalk<'a> {
    backstop: &'a Backstop,
    prefix: String,
    after: Option<String>,
    is_over: bool,
}

impl<'a> CellWalk<'a> {
    pub(crate) fn new(backstop: &'a Backstop, prefix: impl Into<String>) -> Self {
        Self {
            backstop,
            prefix: prefix.into(),
            after: None,
            is_over: false,
        }
    }

    /// From where another one stood.
    pub(crate) fn resume_after(self, after: Option<String>) -> Self {
        Self { after, ..self }
    }

    /// The last name it came by; `None` at the beginning, and at the end.
    pub(crate) fn last_name(self) -> Option<String> {
        self.after.filter(|_| !self.is_over)
    }

    /// The next page; `None` behind the last.
    pub(crate) async fn next(&mut self) -> StoreResult<Option<Vec<Cell>>> {
        if self.is_over {
            return Ok(None);
        }
        let query = ListCellsRequest {
            prefix: self.prefix.clone(),
            after: self.after.clone(),
            limit: CELLS_MAX,
        };
        let page = self.backstop.store().list_cells(query).await?;
        self.is_over = page.len() < CELLS_MAX;
        self.after = page.last().map(|cell| cell.name.clone());
        Ok(Some(page))
    }
}

/// All cells of a prefix.
pub(crate) async fn cells(backstop: &Backstop, prefix: &str) -> StoreResult<Vec<Cell>> {
    let (mut walk, mut all) = (CellWalk::new(backstop, prefix), Vec::new());
    while let Some(page) = walk.next().await? {
        all.extend(page);
    }
    Ok(all)
}

/// Removes cells as they were read: whoever has changed one meanwhile keeps it.
pub(crate) async fn remove(backstop: &Backstop, cells: &[Cell]) -> StoreResult<()> {
    for part in cells.chunks(CELLS_MAX) {
        let removal = |cell: &Cell| CellSwap {
            name: cell.name.clone(),
            seen: Some(cell.version),
            version: backstop.random().bits().cast_signed(),
            value: None,
        };
        backstop
            .store()
            .swap(part.iter().map(removal).collect())
            .await?;
    }
    Ok(())
}
