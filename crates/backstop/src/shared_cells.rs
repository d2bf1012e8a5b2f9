//! Values that processes share: read, changed by a function, and written unless somebody was
//! faster; then once more.

mod walk;

pub(crate) use walk::{CellWalk, cells, remove};

use crate::client::Backstop;
use backstop_core::port::{Cell, CellSwap, StoreError, StoreResult, SwapOutcome};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Somebody was faster so many times in a row: something is wrong with them, or with the store.
const TRIES_MAX: u32 = 100;
/// How often one and the same change is sent before its outcome is left unknown.
const LOST_MAX: u32 = 3;
/// The longest pause between two tries, so that many who change one value do not go on disturbing
/// each other.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// A value that a cell can hold, as JSON.
pub(crate) trait CellValue: Clone + PartialEq + Serialize + DeserializeOwned {}

impl<T: Clone + PartialEq + Serialize + DeserializeOwned> CellValue for T {}

/// Changes the value of a cell, or `absent` if there is none, with `change`; answers what stands
/// afterwards, and what `change` said. `change` is called again for each value that somebody else
/// wrote first. What it leaves as it was is not written.
pub(crate) async fn update<T: CellValue, R>(
    backstop: &Backstop,
    name: &str,
    absent: T,
    mut change: impl FnMut(&mut T) -> R,
) -> StoreResult<(T, R)> {
    let mut current = backstop
        .store()
        .cells(vec![name.to_owned()])
        .await?
        .pop()
        .flatten();
    for round in 0..TRIES_MAX {
        let before = current.as_ref().and_then(|cell| read(cell));
        let mut value = before.clone().unwrap_or_else(|| absent.clone());
        let outcome = change(&mut value);
        if before.as_ref() == Some(&value) {
            return Ok((value, outcome));
        }
        let written = serde_json::to_vec(&value)
            .map_err(|error| StoreError::misuse("swapping cells", error))?;
        let swap = CellSwap {
            name: name.to_owned(),
            seen: current.as_ref().map(|cell| cell.version),
            version: backstop.random().bits().cast_signed(),
            value: Some(written),
        };
        match swap_with_retry(backstop, swap).await? {
            SwapOutcome::Applied => return Ok((value, outcome)),
            SwapOutcome::Conflict(now) => current = now,
        }
        tokio::time::sleep(
            PAUSE_MAX.mul_f64(backstop.random().unit() * f64::from(round.min(10)) / 10.0),
        )
        .await;
    }
    Err(StoreError::unavailable(
        "swapping cells",
        format!("cell {name} was changed by others {TRIES_MAX} times in a row"),
    ))
}

/// Asks again where an answer was lost: the version makes it the same change. Deciding anew could
/// do it twice.
async fn swap_with_retry(backstop: &Backstop, swap: CellSwap) -> StoreResult<SwapOutcome> {
    let mut tries = 1;
    loop {
        match backstop.store().swap(vec![swap.clone()]).await {
            Ok(mut answers) => {
                let none = || StoreError::corrupt("swapping cells", "a swap without an answer");
                return answers.pop().ok_or_else(none);
            }
            Err(error) if error.is_transient() && tries < LOST_MAX => tries += 1,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE_MAX).await;
    }
}

/// What a cell says. One that cannot be read says nothing, and is written anew by the next change.
pub(crate) fn read<T: CellValue>(cell: &Cell) -> Option<T> {
    let value = serde_json::from_slice(&cell.value).ok();
    if value.is_none() {
        tracing::error!(cell = %cell.name, "a shared value cannot be read; it is taken for none");
    }
    value
}
