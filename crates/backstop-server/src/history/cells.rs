//! The cells: rows are entered where there are none, and old cells go.

use super::block::{HistoryBlock, HistoryResolution, SampleValues};
use super::snapshot::HistorySubject;
use super::tracked_names::TrackedNames;
use backstop::Backstop;
use backstop::core::port::{
    Cell, CellSwap, ListCellsRequest, StoreError, StoreResult, SwapOutcome,
};
use backstop_core::Time;
use backstop_core::limits::CELLS_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

const TRACKED_NAMES_CELL: &str = "history/roster";
/// Others wrote first so many times in a row: they have written what was to be written.
const TRIES_MAX: usize = 8;
/// Old cells removed in one go; what is left over goes the next time.
const REMOVED_MAX: usize = 500;

/// Rows to be entered, by cell.
pub(super) type BlockEntries = BTreeMap<String, Vec<(i64, SampleValues)>>;

/// The cell of a block.
pub(super) fn cell_name(
    resolution: HistoryResolution,
    block: i64,
    subject: &HistorySubject,
) -> String {
    format!("{}{block:010}/{subject}", resolution.prefix())
}

/// The rows of a subject from one time to another, both included.
pub(super) async fn read_rows(
    backstop: &Backstop,
    resolution: HistoryResolution,
    subject: &HistorySubject,
    from: Time,
    until: Time,
) -> StoreResult<Vec<(Time, SampleValues)>> {
    let mut all = read_all_rows(backstop, resolution, vec![subject.clone()], from, until).await?;
    Ok(all.pop().unwrap_or_default())
}

/// The same of several, in their order.
pub(super) async fn read_all_rows(
    backstop: &Backstop,
    resolution: HistoryResolution,
    subjects: Vec<HistorySubject>,
    from: Time,
    until: Time,
) -> StoreResult<Vec<Vec<(Time, SampleValues)>>> {
    let numbers: Vec<i64> = (resolution.block_of(from)..=resolution.block_of(until))
        .take(CELLS_MAX)
        .collect();
    let named = |subject| {
        numbers
            .iter()
            .map(move |block| cell_name(resolution, *block, subject))
    };
    let names: Vec<String> = subjects.iter().flat_map(named).collect();
    let found = read_blocks(backstop, &names).await?;
    let of_subject = |known: &[HistoryBlock]| {
        let timed = numbers.iter().zip(known).flat_map(|(block, known)| {
            known
                .rows()
                .map(|(slot, row)| (resolution.time_of(*block, slot), row.clone()))
        });
        timed
            .filter(|(at, _)| (from..=until).contains(at))
            .collect()
    };
    Ok(found.chunks(numbers.len().max(1)).map(of_subject).collect())
}

/// The names that are followed.
pub(super) async fn read_tracked_names(backstop: &Backstop) -> StoreResult<TrackedNames> {
    let cell = backstop
        .store()
        .cells(vec![TRACKED_NAMES_CELL.to_owned()])
        .await?
        .pop()
        .flatten();
    Ok(cell.as_ref().map(parse_cell).unwrap_or_default())
}

/// The blocks of these names, in their order.
pub(super) async fn read_blocks(
    backstop: &Backstop,
    names: &[String],
) -> StoreResult<Vec<HistoryBlock>> {
    Ok(read_cells(backstop, names)
        .await?
        .iter()
        .map(|cell| cell.as_ref().map(parse_cell).unwrap_or_default())
        .collect())
}

/// Enters rows where there are none. Of several who write the same row, the first one's counts.
pub(super) async fn write_entries(backstop: &Backstop, entries: &BlockEntries) -> StoreResult<()> {
    let names: Vec<String> = entries.keys().cloned().collect();
    let found = read_cells(backstop, &names).await?;
    let mut current: Vec<(String, Option<Cell>)> = names.into_iter().zip(found).collect();
    for _ in 0..TRIES_MAX {
        let mut swaps = Vec::new();
        for (name, cell) in &current {
            let mut block: HistoryBlock = cell.as_ref().map(parse_cell).unwrap_or_default();
            let rows = entries.get(name).into_iter().flatten();
            let entered = rows
                .filter(|(slot, row)| block.enter(*slot, row.clone()))
                .count();
            if entered > 0 {
                swaps.push(swap_of(name, cell.as_ref(), &block)?);
            }
        }
        if swaps.is_empty() {
            return Ok(());
        }
        current = swap_cells(backstop, swaps).await?;
    }
    Err(StoreError::unavailable(
        "writing history",
        format!("others changed it {TRIES_MAX} times in a row"),
    ))
}

/// Changes the roster; answers what stands.
pub(super) async fn change_tracked_names(
    backstop: &Backstop,
    change: impl Fn(&mut TrackedNames),
) -> StoreResult<TrackedNames> {
    let mut current = backstop
        .store()
        .cells(vec![TRACKED_NAMES_CELL.to_owned()])
        .await?
        .pop()
        .flatten();
    for _ in 0..TRIES_MAX {
        let before: TrackedNames = current.as_ref().map(parse_cell).unwrap_or_default();
        let mut names = before.clone();
        change(&mut names);
        if names == before {
            return Ok(names);
        }
        let swap = swap_of(TRACKED_NAMES_CELL, current.as_ref(), &names)?;
        match swap_cells(backstop, vec![swap]).await?.pop() {
            None => return Ok(names),
            Some((_, now)) => current = now,
        }
    }
    Err(StoreError::unavailable(
        "writing history",
        format!("others changed it {TRIES_MAX} times in a row"),
    ))
}

/// Removes blocks that are older than they are kept; answers how many.
pub(super) async fn remove_old_cells(
    backstop: &Backstop,
    resolution: HistoryResolution,
    now: Time,
) -> StoreResult<usize> {
    let oldest = resolution.block_of(now.before(resolution.kept_for()));
    // By name is by age: the oldest come first.
    let first_kept = format!("{}{oldest:010}/", resolution.prefix());
    let query = ListCellsRequest {
        prefix: resolution.prefix().to_owned(),
        after: None,
        limit: REMOVED_MAX,
    };
    let mut old = backstop.store().list_cells(query).await?;
    old.retain(|cell| cell.name < first_kept);
    let removal = |cell: &Cell| CellSwap {
        name: cell.name.clone(),
        seen: Some(cell.version),
        version: random_version(),
        value: None,
    };
    if !old.is_empty() {
        backstop
            .store()
            .swap(old.iter().map(removal).collect())
            .await?;
    }
    Ok(old.len())
}

async fn read_cells(backstop: &Backstop, names: &[String]) -> StoreResult<Vec<Option<Cell>>> {
    let mut all = Vec::with_capacity(names.len());
    for part in names.chunks(CELLS_MAX) {
        all.extend(backstop.store().cells(part.to_vec()).await?);
    }
    Ok(all)
}

/// Sends changes; answers what stands where somebody else was faster.
async fn swap_cells(
    backstop: &Backstop,
    swaps: Vec<CellSwap>,
) -> StoreResult<Vec<(String, Option<Cell>)>> {
    let mut lost = Vec::new();
    for part in swaps.chunks(CELLS_MAX) {
        let answers = backstop.store().swap(part.to_vec()).await?;
        for (swap, answer) in part.iter().zip(answers) {
            if let SwapOutcome::Conflict(now) = answer {
                lost.push((swap.name.clone(), now));
            }
        }
    }
    Ok(lost)
}

fn swap_of(name: &str, current: Option<&Cell>, value: &impl Serialize) -> StoreResult<CellSwap> {
    let value =
        serde_json::to_vec(value).map_err(|error| StoreError::misuse("writing history", error))?;
    let seen = current.map(|cell| cell.version);
    Ok(CellSwap {
        name: name.to_owned(),
        seen,
        version: random_version(),
        value: Some(value),
    })
}

fn random_version() -> i64 {
    rand::random()
}

/// What a cell says. One that cannot be read says nothing, and is written anew.
fn parse_cell<T: DeserializeOwned + Default>(cell: &Cell) -> T {
    serde_json::from_slice(&cell.value).unwrap_or_else(|error| {
        tracing::error!(%error, cell = %cell.name, "a part of the history cannot be read; it is taken for none");
        T::default()
    })
}
