//! The cells: rows are entered where there are none, and old cells go.

use super::block::{Block, Grain, Row};
use super::look::Subject;
use super::roster::Roster;
use backstop::Backstop;
use backstop::core::port::{Answer, Cell, CellQuery, StoreError, Swap, Swapped};
use backstop_core::Time;
use backstop_core::limits::CELLS_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

const ROSTER: &str = "history/roster";
/// Others wrote first so many times in a row: they have written what was to be written.
const TRIES_MAX: usize = 8;
/// Old cells removed in one go; what is left over goes the next time.
const REMOVED_MAX: usize = 500;

/// Rows to be entered, by cell.
pub(super) type Entries = BTreeMap<String, Vec<(i64, Row)>>;

/// The cell of a block.
pub(super) fn cell_name(grain: Grain, block: i64, subject: &Subject) -> String {
    format!("{}{block:010}/{subject}", grain.prefix())
}

/// The rows of a subject from one time to another, both included.
pub(super) async fn read(
    backstop: &Backstop,
    grain: Grain,
    subject: &Subject,
    from: Time,
    until: Time,
) -> Answer<Vec<(Time, Row)>> {
    let mut all = read_all(backstop, grain, vec![subject.clone()], from, until).await?;
    Ok(all.pop().unwrap_or_default())
}

/// The same of several, in their order.
pub(super) async fn read_all(
    backstop: &Backstop,
    grain: Grain,
    subjects: Vec<Subject>,
    from: Time,
    until: Time,
) -> Answer<Vec<Vec<(Time, Row)>>> {
    let numbers: Vec<i64> = (grain.block_of(from)..=grain.block_of(until))
        .take(CELLS_MAX)
        .collect();
    let named = |subject| {
        numbers
            .iter()
            .map(move |block| cell_name(grain, *block, subject))
    };
    let names: Vec<String> = subjects.iter().flat_map(named).collect();
    let found = blocks(backstop, &names).await?;
    let of_subject = |known: &[Block]| {
        let timed = numbers.iter().zip(known).flat_map(|(block, known)| {
            known
                .rows()
                .map(|(slot, row)| (grain.time_of(*block, slot), row.clone()))
        });
        timed
            .filter(|(at, _)| (from..=until).contains(at))
            .collect()
    };
    Ok(found.chunks(numbers.len().max(1)).map(of_subject).collect())
}

/// The names that are followed.
pub(super) async fn roster(backstop: &Backstop) -> Answer<Roster> {
    let cell = backstop
        .store()
        .cells(vec![ROSTER.to_owned()])
        .await?
        .pop()
        .flatten();
    Ok(cell.as_ref().map(said).unwrap_or_default())
}

/// The blocks of these names, in their order.
pub(super) async fn blocks(backstop: &Backstop, names: &[String]) -> Answer<Vec<Block>> {
    Ok(cells(backstop, names)
        .await?
        .iter()
        .map(|cell| cell.as_ref().map(said).unwrap_or_default())
        .collect())
}

/// Enters rows where there are none. Of several who write the same row, the first one's counts.
pub(super) async fn enter(backstop: &Backstop, entries: &Entries) -> Answer<()> {
    let names: Vec<String> = entries.keys().cloned().collect();
    let found = cells(backstop, &names).await?;
    let mut standing: Vec<(String, Option<Cell>)> = names.into_iter().zip(found).collect();
    for _ in 0..TRIES_MAX {
        let mut swaps = Vec::new();
        for (name, cell) in &standing {
            let mut block: Block = cell.as_ref().map(said).unwrap_or_default();
            let rows = entries.get(name).into_iter().flatten();
            let entered = rows
                .filter(|(slot, row)| block.enter(*slot, row.clone()))
                .count();
            if entered > 0 {
                swaps.push(swap(name, cell.as_ref(), &block)?);
            }
        }
        if swaps.is_empty() {
            return Ok(());
        }
        standing = conflicts(backstop, swaps).await?;
    }
    Err(StoreError::unavailable(
        "writing history",
        format!("others changed it {TRIES_MAX} times in a row"),
    ))
}

/// Changes the roster; answers what stands.
pub(super) async fn change_roster(
    backstop: &Backstop,
    change: impl Fn(&mut Roster),
) -> Answer<Roster> {
    let mut standing = backstop
        .store()
        .cells(vec![ROSTER.to_owned()])
        .await?
        .pop()
        .flatten();
    for _ in 0..TRIES_MAX {
        let before: Roster = standing.as_ref().map(said).unwrap_or_default();
        let mut roster = before.clone();
        change(&mut roster);
        if roster == before {
            return Ok(roster);
        }
        let swap = swap(ROSTER, standing.as_ref(), &roster)?;
        match conflicts(backstop, vec![swap]).await?.pop() {
            None => return Ok(roster),
            Some((_, now)) => standing = now,
        }
    }
    Err(StoreError::unavailable(
        "writing history",
        format!("others changed it {TRIES_MAX} times in a row"),
    ))
}

/// Removes blocks that are older than they are kept; answers how many.
pub(super) async fn tidy(backstop: &Backstop, grain: Grain, now: Time) -> Answer<usize> {
    let oldest = grain.block_of(now.before(grain.kept()));
    // By name is by age: the oldest come first.
    let first_kept = format!("{}{oldest:010}/", grain.prefix());
    let query = CellQuery {
        prefix: grain.prefix().to_owned(),
        after: None,
        limit: REMOVED_MAX,
    };
    let mut old = backstop.store().list_cells(query).await?;
    old.retain(|cell| cell.name < first_kept);
    let removal = |cell: &Cell| Swap {
        name: cell.name.clone(),
        seen: Some(cell.version),
        version: version(),
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

async fn cells(backstop: &Backstop, names: &[String]) -> Answer<Vec<Option<Cell>>> {
    let mut all = Vec::with_capacity(names.len());
    for part in names.chunks(CELLS_MAX) {
        all.extend(backstop.store().cells(part.to_vec()).await?);
    }
    Ok(all)
}

/// Sends changes; answers what stands where somebody else was faster.
async fn conflicts(backstop: &Backstop, swaps: Vec<Swap>) -> Answer<Vec<(String, Option<Cell>)>> {
    let mut lost = Vec::new();
    for part in swaps.chunks(CELLS_MAX) {
        let answers = backstop.store().swap(part.to_vec()).await?;
        for (swap, answer) in part.iter().zip(answers) {
            if let Swapped::Conflict(now) = answer {
                lost.push((swap.name.clone(), now));
            }
        }
    }
    Ok(lost)
}

fn swap(name: &str, standing: Option<&Cell>, value: &impl Serialize) -> Answer<Swap> {
    let value =
        serde_json::to_vec(value).map_err(|error| StoreError::misuse("writing history", error))?;
    let seen = standing.map(|cell| cell.version);
    Ok(Swap {
        name: name.to_owned(),
        seen,
        version: version(),
        value: Some(value),
    })
}

fn version() -> i64 {
    rand::random()
}

/// What a cell says. One that cannot be read says nothing, and is written anew.
fn said<T: DeserializeOwned + Default>(cell: &Cell) -> T {
    serde_json::from_slice(&cell.value).unwrap_or_else(|error| {
        tracing::error!(%error, cell = %cell.name, "a part of the history cannot be read; it is taken for none");
        T::default()
    })
}
