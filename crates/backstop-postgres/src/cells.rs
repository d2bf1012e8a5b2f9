//! Cells: small shared values that are changed by compare-and-set.

use crate::link::{CommitMode, PostgresLink};
use crate::row;
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Cell, CellSwap, ListCellsRequest, StoreError, StoreResult, SwapOutcome};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

/// Reads the cells of these names, in their order.
pub(crate) async fn cells(
    link: &PostgresLink,
    names: Vec<String>,
) -> StoreResult<Vec<Option<Cell>>> {
    // PostgreSQL rejects text with a NUL. No cell has such a name, nor an empty one.
    let requested: Vec<&str> = names
        .iter()
        .map(|name| if name.contains('\0') { "" } else { name })
        .collect();
    let rows = link
        .call(
            "reading cells",
            CommitMode::Durable,
            "cells",
            &[(&requested, Type::TEXT_ARRAY)],
        )
        .await?;
    let mut cells = vec![None; names.len()];
    for row in &rows {
        let at = at(row)?;
        let name = names.get(at).cloned().unwrap_or_default();
        let cell = Cell {
            name,
            version: row::get(row, 1)?,
            value: row::get(row, 2)?,
        };
        *slot(&mut cells, at)? = Some(cell);
    }
    Ok(cells)
}

/// Lists the next cells, by the bytes of their names.
pub(crate) async fn list(link: &PostgresLink, query: &ListCellsRequest) -> StoreResult<Vec<Cell>> {
    if query.prefix.contains('\0') {
        return Ok(Vec::new());
    }
    // No cell has a NUL in its name. So the cells behind a name with a NUL are those behind its
    // part before the NUL.
    let after = query
        .after
        .as_ref()
        .and_then(|after| after.split('\0').next());
    let from = after
        .filter(|after| *after >= query.prefix.as_str())
        .unwrap_or(&query.prefix);
    let limit = query.limit.clamp(1, CELLS_MAX);
    // Read one more row: the first cell may be the cursor itself.
    let params = [
        (&from as _, Type::TEXT),
        (&row::number(limit + 1) as _, Type::INT4),
    ];
    let rows = link
        .call("listing cells", CommitMode::Durable, "list_cells", &params)
        .await?;
    let cells: Vec<Cell> = rows.iter().map(cell).collect::<StoreResult<_>>()?;
    let behind = cells
        .into_iter()
        .filter(|cell| Some(cell.name.as_str()) != after);
    Ok(behind
        .take_while(|cell| cell.name.starts_with(&query.prefix))
        .take(limit)
        .collect())
}

fn cell(row: &Row) -> StoreResult<Cell> {
    Ok(Cell {
        name: row::get(row, 0)?,
        version: row::get(row, 1)?,
        value: row::get(row, 2)?,
    })
}

/// Applies swaps, each one independently of the others.
pub(crate) async fn swap(
    link: &PostgresLink,
    commit: CommitMode,
    swaps: Vec<CellSwap>,
) -> StoreResult<Vec<SwapOutcome>> {
    let names: Vec<&str> = swaps.iter().map(|swap| swap.name.as_str()).collect();
    let seen: Vec<Option<i64>> = swaps.iter().map(|swap| swap.seen).collect();
    let versions: Vec<i64> = swaps.iter().map(|swap| swap.version).collect();
    let values: Vec<Option<&[u8]>> = swaps.iter().map(|swap| swap.value.as_deref()).collect();
    let params = [
        (&names as _, Type::TEXT_ARRAY),
        (&seen as _, Type::INT8_ARRAY),
        (&versions as _, Type::INT8_ARRAY),
        (&values as _, Type::BYTEA_ARRAY),
    ];
    let mut swapped = vec![SwapOutcome::Applied; swaps.len()];
    for row in &link.call("swapping cells", commit, "swap", &params).await? {
        let (at, version) = (at(row)?, row::get::<Option<i64>>(row, 1)?);
        let current = match version {
            Some(version) => {
                let name = names.get(at).copied().unwrap_or_default().to_owned();
                Some(Cell {
                    name,
                    version,
                    value: row::get(row, 2)?,
                })
            }
            None => None,
        };
        *slot(&mut swapped, at)? = SwapOutcome::Conflict(current);
    }
    Ok(swapped)
}

/// Reads the index of an answer. The function counts from 1.
fn at(row: &Row) -> StoreResult<usize> {
    let number: i32 = row::get(row, 0)?;
    usize::try_from(number - 1).map_err(|_| unrequested(number))
}

fn slot<T>(answers: &mut [T], at: usize) -> StoreResult<&mut T> {
    answers
        .get_mut(at)
        .ok_or_else(|| unrequested(row::number(at + 1)))
}

fn unrequested(number: i32) -> StoreError {
    StoreError::corrupt("reading cells", format!("an answer for cell {number}"))
}
