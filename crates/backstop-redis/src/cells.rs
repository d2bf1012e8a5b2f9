//! Small values that processes share. All cells are in one cluster slot, so that one script can
//! change several.

use crate::context::{StoreContext, readable};
use crate::reply;
use crate::script::{LIST_CELLS, MEND_CELLS, SWAP};
use backstop_core::limits::{CELLS_MAX, ENQUEUE_BYTES_MAX};
use backstop_core::port::{Cell, CellSwap, ListCellsRequest, StoreResult, SwapOutcome};
use redis::Value;

/// How many cells one command reads: a value may be large.
const CELLS_AT_ONCE: usize = 100;
/// How many names one step of a repair looks at.
const STEP: usize = 200;
/// Sorts after every byte of a name, which is UTF-8.
const BEHIND: u8 = 0xff;

/// The cells with these names, in their order.
pub(crate) async fn cells(base: &StoreContext, names: &[String]) -> StoreResult<Vec<Option<Cell>>> {
    let doing = "reading cells";
    let [values, _] = base.keys.cells();
    let mut cells = Vec::with_capacity(names.len());
    for slice in names.chunks(CELLS_AT_ONCE) {
        let answer = base
            .link
            .ask(doing, redis::cmd("HMGET").arg(&values).arg(slice))
            .await?;
        let found = readable(
            doing,
            reply::list(answer).filter(|found| found.len() == slice.len()),
        )?;
        for (name, value) in slice.iter().zip(found) {
            let cell = match value {
                Value::Nil => None,
                value => Some(readable(
                    doing,
                    reply::bytes(value).and_then(|bytes| cell(name, &bytes)),
                )?),
            };
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// The next cells, ordered by the bytes of their names.
pub(crate) async fn list_cells(
    base: &StoreContext,
    query: &ListCellsRequest,
) -> StoreResult<Vec<Cell>> {
    let doing = "listing cells";
    let limit = query.limit.clamp(1, CELLS_MAX);
    let prefix = query.prefix.as_bytes();
    let to = [b"(", prefix, &[BEHIND]].concat();
    let mut from = match &query.after {
        Some(after) if *after >= query.prefix => [b"(", after.as_bytes()].concat(),
        _ => [b"[", prefix].concat(),
    };
    let mut cells = Vec::new();
    while cells.len() < limit {
        let at_once = CELLS_AT_ONCE.min(limit - cells.len());
        let mut call = LIST_CELLS.with(&base.keys.cells());
        call.push(&from);
        call.push(&to);
        let found = readable(
            doing,
            reply::pairs(base.link.run(doing, &call.arg(at_once)).await?),
        )?;
        let is_last = found.len() < at_once;
        if let Some((name, _)) = found.last() {
            from = [b"(", &name[..]].concat();
        }
        for (name, value) in found {
            let name = readable(doing, String::from_utf8(name).ok())?;
            cells.extend(cell(&name, &value));
        }
        if is_last {
            break;
        }
    }
    Ok(cells)
}

/// Applies compare-and-set changes to cells; answers in the order of `swaps`.
pub(crate) async fn swap(base: &StoreContext, swaps: &[CellSwap]) -> StoreResult<Vec<SwapOutcome>> {
    let doing = "swapping cells";
    let mut answers = Vec::with_capacity(swaps.len());
    while answers.len() < swaps.len() {
        let (mut call, mut count, mut bytes) = (SWAP.with(&base.keys.cells()), 0, 0);
        for swap in &swaps[answers.len()..] {
            bytes += swap.value.as_ref().map_or(0, Vec::len);
            if count > 0 && bytes > ENQUEUE_BYTES_MAX {
                break;
            }
            count += 1;
            call.push(swap.name.as_bytes());
            call.push(
                &swap
                    .seen
                    .map(|seen| seen.to_be_bytes().to_vec())
                    .unwrap_or_default(),
            );
            call.push(&swap.version.to_be_bytes());
            call.push(
                &swap
                    .value
                    .as_ref()
                    .map_or_else(|| b"0".to_vec(), |value| [b"1", &value[..]].concat()),
            );
        }
        let replies = readable(doing, reply::all_bytes(base.link.run(doing, &call).await?))?;
        let replies = readable(
            doing,
            Some(replies).filter(|replies| replies.len() == count),
        )?;
        let names = swaps[answers.len()..].iter().map(|swap| &swap.name);
        let read: Option<Vec<SwapOutcome>> = names
            .zip(replies)
            .map(|(name, reply_bytes)| swapped(name, &reply_bytes))
            .collect();
        answers.extend(readable(doing, read)?);
    }
    Ok(answers)
}

/// Makes the index of cell names match the cells; returns how many names were wrong.
pub(crate) async fn mend(base: &StoreContext, doing: &'static str) -> StoreResult<usize> {
    let [values, names] = base.keys.cells();
    let lengths = [
        redis::cmd("HLEN").arg(&values).clone(),
        redis::cmd("ZCARD").arg(&names).clone(),
    ];
    let lengths = base.ask_each(doing, lengths.to_vec()).await?;
    if lengths[0] == lengths[1] {
        return Ok(0);
    }
    let mut mended = 0;
    for (verb, key) in [("HSCAN", &values), ("ZSCAN", &names)] {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd(verb);
            scan.arg(key).arg(&cursor).arg("COUNT").arg(STEP);
            let (next, found) =
                readable(doing, reply::scanned(base.link.ask(doing, &scan).await?))?;
            let mut call = MEND_CELLS.with(&base.keys.cells());
            for name in found.iter().step_by(2) {
                call.push(name);
            }
            mended += readable(doing, reply::count(base.link.run(doing, &call).await?))?;
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(mended)
}

fn cell(name: &str, bytes: &[u8]) -> Option<Cell> {
    let (version, value) = bytes.split_first_chunk::<8>()?;
    Some(Cell {
        name: name.to_owned(),
        version: i64::from_be_bytes(*version),
        value: value.to_vec(),
    })
}

fn swapped(name: &str, reply_bytes: &[u8]) -> Option<SwapOutcome> {
    match reply_bytes.split_first()? {
        (b'A', _) => Some(SwapOutcome::Applied),
        (b'C', []) => Some(SwapOutcome::Conflict(None)),
        (b'C', current) => cell(name, current).map(|cell| SwapOutcome::Conflict(Some(cell))),
        _ => None,
    }
}
