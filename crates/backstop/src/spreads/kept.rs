//! The cells: what comes is added to what is there, whoever wrote it.

use super::Subject;
use super::roster::Roster;
use crate::client::Backstop;
use crate::shared::{read as said, remove, update};
use backstop_core::limits::CELL_BYTES_MAX;
use backstop_core::port::{Answer, Cell, CellQuery, StoreError, Swap, Swapped};
use backstop_core::spread::Spread;
use backstop_core::{Kind, QueueName, Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

const ROSTER: &str = "spreads/roster";
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
pub enum Grain {
    /// A minute, an hour in a cell.
    Minute,
    /// Half an hour, a day in a cell.
    HalfHour,
}

impl Grain {
    const ALL: [Self; 2] = [Self::Minute, Self::HalfHour];

    /// How far apart.
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

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total => f.write_str("total"),
            Self::Queue(queue) => write!(f, "q/{queue}"),
            Self::Kind(queue, kind) => write!(f, "k/{queue}/{kind}"),
        }
    }
}

/// The spreads of an hour or a day, by minute or half hour.
type Block = BTreeMap<i64, Spread>;

fn cell_name(grain: Grain, block: i64, subject: &Subject) -> String {
    format!("{}{block:010}/{subject}", grain.prefix())
}

/// What is to be added, by cell.
#[derive(Default)]
pub(super) struct Changes(BTreeMap<String, Block>);

impl Changes {
    pub(super) fn add(&mut self, subject: &Subject, at: Time, spread: &Spread) {
        for grain in Grain::ALL {
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
    grain: Grain,
    subjects: &[Subject],
    from: Time,
    until: Time,
) -> Answer<Vec<Vec<(Time, Spread)>>> {
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
            let known: Block = cell.as_ref().and_then(said).unwrap_or_default();
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

pub(super) async fn roster(backstop: &Backstop) -> Answer<Roster> {
    let cell = backstop
        .store()
        .cells(vec![ROSTER.to_owned()])
        .await?
        .pop()
        .flatten();
    Ok(cell.as_ref().and_then(said).unwrap_or_default())
}

/// Takes note of who was heard of; answers who is followed.
pub(super) async fn admit(
    backstop: &Backstop,
    heard: &BTreeSet<(QueueName, Option<Kind>)>,
    now: Time,
) -> Answer<Roster> {
    let day = Grain::HalfHour.block_of(now);
    let change = |roster: &mut Roster| roster.admit(heard, day);
    update(backstop, ROSTER, Roster::default(), change)
        .await
        .map(|(roster, ())| roster)
}

/// Adds what is to be added.
pub(super) async fn add(backstop: &Backstop, changes: &Changes) -> Answer<()> {
    let names: Vec<String> = changes.0.keys().cloned().collect();
    for part in names.chunks(CELLS_AT_ONCE) {
        let found = backstop.store().cells(part.to_vec()).await?;
        let mut standing: Vec<(String, Option<Cell>)> = part.iter().cloned().zip(found).collect();
        let mut tries = 0;
        while !standing.is_empty() {
            if tries == TRIES_MAX {
                let why = format!("others changed it {TRIES_MAX} times in a row");
                return Err(StoreError::unavailable("adding spreads", why));
            }
            let swaps = standing
                .iter()
                .filter_map(|(name, cell)| added(backstop, changes, name, cell.as_ref()));
            standing = swapped(backstop, swaps.collect()).await?;
            if !standing.is_empty() {
                let share = backstop.random().unit() * f64::from(tries.min(10)) / 10.0;
                tokio::time::sleep(PAUSE_MAX.mul_f64(share)).await;
            }
            tries += 1;
        }
    }
    Ok(())
}

/// A cell with what is to be added to it; `None` where it would be too large.
fn added(backstop: &Backstop, changes: &Changes, name: &str, cell: Option<&Cell>) -> Option<Swap> {
    let mut block: Block = cell.and_then(said).unwrap_or_default();
    for (slot, spread) in changes.0.get(name)? {
        block.entry(*slot).or_default().merge(spread);
    }
    let value = serde_json::to_vec(&block)
        .ok()
        .filter(|value| value.len() <= CELL_BYTES_MAX);
    if value.is_none() {
        tracing::warn!(cell = name, "no more spreads go into this cell");
    }
    Some(Swap {
        name: name.to_owned(),
        seen: cell.map(|cell| cell.version),
        version: backstop.random().bits().cast_signed(),
        value: Some(value?),
    })
}

/// Sends changes; answers what stands where somebody else was faster.
async fn swapped(backstop: &Backstop, swaps: Vec<Swap>) -> Answer<Vec<(String, Option<Cell>)>> {
    if swaps.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<String> = swaps.iter().map(|swap| swap.name.clone()).collect();
    let answers = backstop.store().swap(swaps).await?;
    let lost = names
        .into_iter()
        .zip(answers)
        .filter_map(|(name, answer)| match answer {
            Swapped::Conflict(now) => Some((name, now)),
            Swapped::Applied => None,
        });
    Ok(lost.collect())
}

/// Removes cells that are older than they are kept; answers whether none is left.
pub(super) async fn tidy(backstop: &Backstop, now: Time) -> Answer<bool> {
    let mut is_tidy = true;
    for grain in Grain::ALL {
        let oldest = grain.block_of(now.before(grain.kept()));
        // By name is by age: the oldest come first.
        let first_kept = format!("{}{oldest:010}/", grain.prefix());
        let (mut after, mut may_be_more) = (None, true);
        for _ in 0..ROUNDS_MAX {
            let query = CellQuery {
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
        is_tidy &= !may_be_more;
    }
    Ok(is_tidy)
}

async fn cells(backstop: &Backstop, names: &[String]) -> Answer<Vec<Option<Cell>>> {
    let mut all = Vec::with_capacity(names.len());
    for part in names.chunks(CELLS_AT_ONCE) {
        all.extend(backstop.store().cells(part.to_vec()).await?);
    }
    Ok(all)
}
