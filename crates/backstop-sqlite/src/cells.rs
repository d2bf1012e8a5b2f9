//! Cells: small shared values that are changed by compare-and-set.

use crate::row;
use crate::transaction::WriteTransaction;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::cells::SwapDecision;
use backstop_core::port::{Cell, CellSwap, ListCellsRequest, SwapOutcome};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

const CELL_FIND: &str = include_str!("sql/cell_find.sql");
const CELL_PUT: &str = include_str!("sql/cell_put.sql");
const CELL_REMOVE: &str = include_str!("sql/cell_remove.sql");
const LIST_CELLS: &str = include_str!("sql/list_cells.sql");

/// Reads the cells of these names, in their order.
pub(crate) fn cells(db: &Connection, names: &[String]) -> Result<Vec<Option<Cell>>> {
    names.iter().map(|name| find(db, name)).collect()
}

/// Lists the next cells by name.
pub(crate) fn list(db: &Connection, query: &ListCellsRequest) -> Result<Vec<Cell>> {
    let first = match &query.after {
        // No text sorts between a name and the same name with a NUL behind it.
        Some(after) if *after >= query.prefix => format!("{after}\0"),
        _ => query.prefix.clone(),
    };
    let limit = row::number(query.limit.clamp(1, CELLS_MAX));
    let mut statement = db.prepare_cached(LIST_CELLS)?;
    let mut rows = statement.query(params![first, limit])?;
    let mut cells = Vec::new();
    while let Some(row) = rows.next()? {
        let cell = cell(row)?;
        if !cell.name.starts_with(&query.prefix) {
            break;
        }
        cells.push(cell);
    }
    Ok(cells)
}

/// Applies swaps, each one independently of the others.
pub(crate) fn swap(tx: &mut WriteTransaction<'_>, swaps: &[CellSwap]) -> Result<Vec<SwapOutcome>> {
    swaps.iter().map(|swap| swap_one(tx, swap)).collect()
}

fn swap_one(tx: &mut WriteTransaction<'_>, swap: &CellSwap) -> Result<SwapOutcome> {
    let current = find(tx.db, &swap.name)?;
    match swap.judge(current.as_ref()) {
        SwapDecision::AlreadyApplied => return Ok(SwapOutcome::Applied),
        SwapDecision::Conflict => return Ok(SwapOutcome::Conflict(current)),
        SwapDecision::Apply => {}
    }
    match &swap.value {
        Some(value) => {
            tx.db
                .prepare_cached(CELL_PUT)?
                .execute(params![swap.name, swap.version, value])?
        }
        None => tx.db.prepare_cached(CELL_REMOVE)?.execute([&swap.name])?,
    };
    Ok(SwapOutcome::Applied)
}

fn find(db: &Connection, name: &str) -> Result<Option<Cell>> {
    db.prepare_cached(CELL_FIND)?
        .query_row([name], cell)
        .optional()
}

fn cell(row: &Row<'_>) -> Result<Cell> {
    Ok(Cell {
        name: row::text(row, 0)?.unwrap_or_default().to_owned(),
        version: row::whole(row, 1)?,
        value: row::bytes(row, 2)?.unwrap_or_default().to_vec(),
    })
}
