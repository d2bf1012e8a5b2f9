//! The cells: what comes is added to what is there, whoever wrote it.

use super::RunTimeSubject;
use super::tracked_queues::TrackedQueues;
use crate::client::Backstop;
use crate::shared_cells::{read as read_value, remove, update};
use backstop_core::histogram::RunHistograms;
use backstop_core::limits::CELL_BYTES_MAX;
use backstop_core::port::{Cell, CellSwap, ListCellsRequest, StoreError, StoreResult, SwapOutcome};
use backstop_core::{Kind, QueueName, Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

const TRACKED_CELL: &str = "spreads/roster";
/// Others wrote first so many times in a row: what is left is not counted.
const TRIES_MAX: u32 = 20;
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Cells of one call: each may have 64 KB.
const CELLS_AT_ONCE: usize = 64;
/// Old cells removed in one go.
const REMOVED_MAX: usize = 100;
/// Goes in a row; what is left over then is removed a minute later.
const ROUNDS_MAX: usize = 10;

/// How far apart what is kept is, and how much of it shares a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunTimeResolution {
    /// A minute, an hour in a cell.
    Minute,
    /// Half an hour, a day in a cell.
    HalfHour,
}

impl RunTimeResolution {
    const ALL: [Self; 2] = [Self::Minute, Self::HalfHour];

    pub const fn step(self) -> Span {
        match self {
            Self::Minute => Span::minutes(1),
            Self::HalfHour => Span::minutes(30),
        }
    }

    const fn block(self) -> Span {
        match self {
            Self::Minute => Span::hours(1),
            Self::HalfHour => Span::days(1),
        }
    }

    const fn kept(self) -> Span {
        match self {
            Self::Minute => Span::hours(25),
            Self::HalfHour => Span::days(7),
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Minute => "spreads/m/",
            Self::HalfHour => "spreads/h/",
        }
    }

    /// The beginning of the step that a time is in.
    pub const fn floor(self, time: Time) -> Time {
        Time::from_micros(time.as_micros() - time.as_micros().rem_euclid(self.step().as_micros()))
    }

    pub(super) const fn block_of(self, time: Time) -> i64 {
        time.as_micros().div_euclid(self.block().as_micros())
    }

    const fn slot_of(self, time: Time) -> i64 {
        time.as_micros().rem_euclid(self.block().as_micros()) / self.step().as_micros()
    }

    const fn time_of(self, block: i64, slot: i64) -> Time {
        let start = block.saturating_mul(self.block().as_micros());
        Time::from_micros(start.saturating_add(slot.saturating_mul(self.step().as_micros())))
    }
}

impl fmt::Display for RunTimeSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total => f.write_str("total"),
            Self::Queue(queue) => write!(f, "q/{queue}"),
            Self::Kind(queue, kind) => write!(f, "k/{queue}/{kind}"),
        }
    }
}

/// The spreads of an hour or a day, by minute or half hour.
type RunTimeBlock = BTreeMap<i64, RunHistograms>;

fn cell_name(grain: RunTimeResolution, block: i64, subject: &RunTimeSubject) -> String {
    format!("{}{block:010}/{subject}", grain.prefix())
}

/// What is to be added, by cell.
#[derive(Default)]
pub(super) struct RunTimeChanges(BTreeMap<String, RunTimeBlock>);

impl RunTimeChanges {
    pub(super) fn add(&mut self, subject: &RunTimeSubject, at: Time, spread: &RunHistograms) {
        for grain in RunTimeResolution::ALL {
            let block = self
                .0
                .entry(cell_name(grain, grain.block_of(at), subject))
                .or_default();
            block.entry(grain.slot_of(at)).or_default().merge(spread);
        }
    }
}

/// The spreads of each subject from one time to another, both included, in the order of the
/// subjects.
pub(super) async fn read(
    backstop: &Backstop,
    grain: RunTimeResolution,
    subjects: &[RunTimeSubject],
    from: Time,
    until: Time,
) -> StoreResult<Vec<Vec<(Time, RunHistograms)>>> {
    let from = from.max(until.before(grain.kept()));
    let blocks: Vec<i64> = (grain.block_of(from)..=grain.block_of(until)).collect();
    let named = |subject| {
        blocks
            .iter()
            .map(move |block| cell_name(grain, *block, subject))
    };
    let names: Vec<String> = subjects.iter().flat_map(named).collect();
    let cells = cells(backstop, &names).await?;
    let of_subject = |cells: &[Option<Cell>]| {
        let timed = blocks.iter().zip(cells).flat_map(|(block, cell)| {
            let known: RunTimeBlock = cell.as_ref().and_then(read_value).unwrap_or_default();
            known
                .into_iter()
                .map(|(slot, spread)| (grain.time_of(*block, slot), spread))
        });
        timed
            .filter(|(at, _)| (from..=until).contains(at))
            .collect()
    };
    Ok(cells.chunks(blocks.len().max(1)).map(of_subject).collect())
}

pub(super) async fn load_tracked(backstop: &Backstop) -> StoreResult<TrackedQueues> {
    let cell = backstop
        .store()
        .cells(vec![TRACKED_CELL.to_owned()])
        .await?
        .pop()
        .flatten();
    Ok(cell.as_ref().and_then(read_value).unwrap_or_default())
}

/// Takes note of who was heard of; answers who is followed.
pub(super) async fn track(
    backstop: &Backstop,
    heard: &BTreeSet<(QueueName, Option<Kind>)>,
    now: Time,
) -> StoreResult<TrackedQueues> {
    let day = RunTimeResolution::HalfHour.block_of(now);
    let change = |tracked: &mut TrackedQueues| tracked.track(heard, day);
    update(backstop, TRACKED_CELL, TrackedQueues::default(), change)
        .await
        .map(|(roster, ())| roster)
}

/// Adds what is to be added.
pub(super) async fn add(backstop: &Backstop, changes: &RunTimeChanges) -> StoreResult<()> {
    let names: Vec<String> = changes.0.keys().cloned().collect();
    for part in names.chunks(CELLS_AT_ONCE) {
        let found = backstop.store().cells(part.to_vec()).await?;
        let mut pending: Vec<(String, Option<Cell>)> = part.iter().cloned().zip(found).collect();
        let mut tries = 0;
        while !pending.is_empty() {
            if tries == TRIES_MAX {
                let why = format!("others changed it {TRIES_MAX} times in a row");
                return Err(StoreError::unavailable("adding spreads", why));
            }
            let swaps = pending
                .iter()
                .filter_map(|(name, cell)| merged_swap(backstop, changes, name, cell.as_ref()));
            pending = swap_cells(backstop, swaps.collect()).await?;
            if !pending.is_empty() {
                let share = backstop.random().unit() * f64::from(tries.min(10)) / 10.0;
                tokio::time::sleep(PAUSE_MAX.mul_f64(share)).await;
            }
            tries += 1;
        }
    }
    Ok(())
}

/// A cell with what is to be added to it; `None` where it would be too large.
fn merged_swap(
    backstop: &Backstop,
    changes: &RunTimeChanges,
    name: &str,
    cell: Option<&Cell>,
) -> Option<CellSwap> {
    let mut block: RunTimeBlock = cell.and_then(read_value).unwrap_or_default();
    for (slot, spread) in changes.0.get(name)? {
        block.entry(*slot).or_default().merge(spread);
    }
    let value = serde_json::to_vec(&block)
        .ok()
        .filter(|value| value.len() <= CELL_BYTES_MAX);
    if value.is_none() {
        tracing::warn!(cell = name, "no more spreads go into this cell");
    }
    Some(CellSwap {
        name: name.to_owned(),
        seen: cell.map(|cell| cell.version),
        version: backstop.random().bits().cast_signed(),
        value: Some(value?),
    })
}

/// Sends changes; answers what stands where somebody else was faster.
async fn swap_cells(
    backstop: &Backstop,
    swaps: Vec<CellSwap>,
) -> StoreResult<Vec<(String, Option<Cell>)>> {
    if swaps.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<String> = swaps.iter().map(|swap| swap.name.clone()).collect();
    let answers = backstop.store().swap(swaps).await?;
    let lost = names
        .into_iter()
        .zip(answers)
        .filter_map(|(name, answer)| match answer {
            SwapOutcome::Conflict(now) => Some((name, now)),
            SwapOutcome::Applied => None,
        });
    Ok(lost.collect())
}

/// Removes cells that are older than they are kept; answers whether none is left.
pub(super) async fn remove_old(backstop: &Backstop, now: Time) -> StoreResult<bool> {
    let mut is_done = true;
    for grain in RunTimeResolution::ALL {
        let oldest = grain.block_of(now.before(grain.kept()));
        // By name is by age: the oldest come first.
        let first_kept = format!("{}{oldest:010}/", grain.prefix());
        let (mut after, mut may_be_more) = (None, true);
        for _ in 0..ROUNDS_MAX {
            let query = ListCellsRequest {
                prefix: grain.prefix().to_owned(),
                after,
                limit: REMOVED_MAX,
            };
            let mut old = backstop.store().list_cells(query).await?;
            old.retain(|cell| cell.name < first_kept);
            remove(backstop, &old).await?;
            may_be_more = old.len() == REMOVED_MAX;
            if !may_be_more {
                break;
            }
            after = old.pop().map(|cell| cell.name);
        }
        is_done &= !may_be_more;
    }
    Ok(is_done)
}

async fn cells(backstop: &Backstop, names: &[String]) -> StoreResult<Vec<Option<Cell>>> {
    let mut all = Vec::with_capacity(names.len());
    for part in names.chunks(CELLS_AT_ONCE) {
        all.extend(backstop.store().cells(part.to_vec()).await?);
    }
    Ok(all)
}
