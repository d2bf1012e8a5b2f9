//! Two cells for each worker: `cards/WORKER` is written by the worker, `orders/WORKER` by its operators.
//!
//! A worker that stops takes both away. What workers leave that vanish is removed when they were not heard of for a day.

use super::{About, Given};
use crate::client::Backstop;
use crate::shared::{read, remove, update};
use backstop_core::limits::{HOST_CHARS_MAX, VERSION_CHARS_MAX};
use backstop_core::order::{Duty, Order, RunOf, Standing, ordered};
use backstop_core::port::{Answer, Cell};
use backstop_core::{Span, Time, WorkerName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the names of the cells begin with.
pub(crate) const CARDS: &str = "cards/";
pub(crate) const ORDERS: &str = "orders/";
/// A card that was written before that is removed, unless its worker is among the living.
const KEPT: Span = Span::days(1);
/// Memory is told in steps of this size: a worker at rest has nothing new to tell.
const MEMORY_STEP: u64 = 1 << 20;

/// What a worker tells, as it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Card {
    #[serde(flatten)]
    pub(crate) about: About,
    /// Which run of it this is, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<RunOf>,
    /// How many of its places are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) taken: Option<u32>,
    #[serde(default)]
    pub(crate) duty: Duty,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Time>,
}

/// An order that stands, or none any more.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OrderCell(pub(crate) Option<Standing>);

impl Card {
    /// Whether two cards differ in nothing but the memory, which is never the same twice: to tell each change of it would be a write every
    /// few seconds.
    pub(crate) fn says_as_much_as(&self, other: &Self) -> bool {
        let without = |card: &Self| {
            let about = About { memory: None, ..card.about.clone() };
            Self { about, ..card.clone() }
        };
        without(self) == without(other)
    }

    /// The card of a worker of this process.
    pub(crate) fn here(about: About, run: RunOf, taken: usize, duty: Duty) -> Self {
        let taken = Some(u32::try_from(taken).unwrap_or(u32::MAX));
        Self { about: about.bounded(), run: Some(run), taken, duty, at: None }
    }

    /// The card of a worker elsewhere; `None` if it tells nothing. Its process, or its start, tell one run of it from another.
    pub(crate) fn elsewhere(about: &About) -> Option<Self> {
        let about = about.clone().bounded();
        let run = run_of(&about);
        (about != About::default()).then(|| Self { about, run, ..Self::default() })
    }

    /// Whether it says the same, whenever it was written.
    pub(crate) fn says_as(&self, other: &Self) -> bool {
        Self { at: None, ..self.clone() } == Self { at: None, ..other.clone() }
    }

    /// The same, but for what changes all the time.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let still = |card: &Self| Self {
            taken: None,
            about: About { memory: None, ..card.about.clone() },
            ..card.clone()
        };
        still(self).says_as(&still(other))
    }

    /// Whether it may be forgotten: it is old, and its worker is not among the living.
    pub(crate) fn is_over(cell: &Cell, living: &BTreeSet<String>, now: Time) -> bool {
        let is_old = read::<Self>(cell).is_none_or(|card| card.at.is_none_or(|at| at.after(KEPT) < now));
        is_old && !living.contains(cell.name.strip_prefix(CARDS).unwrap_or_default())
    }
}

impl OrderCell {
    /// Whether it may be forgotten: nothing stands, or its worker is not among the living.
    pub(crate) fn is_over(cell: &Cell, living: &BTreeSet<String>) -> bool {
        let stands = read::<Self>(cell).is_some_and(|order| order.0.is_some());
        !stands || !living.contains(cell.name.strip_prefix(ORDERS).unwrap_or_default())
    }
}

impl About {
    /// With texts cut to their limits: what a worker elsewhere says has any length.
    fn bounded(self) -> Self {
        let cut = |text: String, max: usize| {
            Some(text.chars().take(max).collect::<String>()).filter(|text| !text.is_empty())
        };
        Self {
            host: self.host.and_then(|host| cut(host, HOST_CHARS_MAX)),
            version: self.version.and_then(|version| cut(version, VERSION_CHARS_MAX)),
            memory: self.memory.map(|bytes| bytes.div_ceil(MEMORY_STEP).saturating_mul(MEMORY_STEP)),
            ..self
        }
    }
}

/// The run that this is of.
pub(crate) fn run_of(about: &About) -> Option<RunOf> {
    let About { host, pid, since, .. } = about;
    if pid.is_none() && since.is_none() {
        return None;
    }
    let host = host.as_deref().unwrap_or_default();
    let (pid, start) = (pid.unwrap_or_default(), since.map(|since| since.to_string()).unwrap_or_default());
    // An order that was given before it told of its process is for it: it began before any order.
    let since = since.unwrap_or(Time::from_millis(0));
    Some(RunOf { id: format!("{host}/{pid}/{start}"), since })
}

pub(crate) fn card_of(worker: &WorkerName) -> String {
    format!("{CARDS}{worker}")
}

pub(crate) fn order_of(worker: &WorkerName) -> String {
    format!("{ORDERS}{worker}")
}

/// Puts a worker's card down. One that says the same is left as it is.
pub(crate) async fn put_card(backstop: &Backstop, worker: &WorkerName, card: &Card) -> Answer<()> {
    let written = Card { at: Some(backstop.now()), ..card.clone() };
    let put = |standing: &mut Card| {
        if !standing.says_as(&written) {
            standing.clone_from(&written);
        }
    };
    update(backstop, &card_of(worker), Card::default(), put).await?;
    Ok(())
}

pub(crate) async fn read_card(backstop: &Backstop, worker: &WorkerName) -> Answer<Option<Card>> {
    let cell = backstop.store().cells(vec![card_of(worker)]).await?.pop().flatten();
    Ok(cell.as_ref().and_then(read))
}

/// The order that stands for a worker, and the cell it stands in, for who wants to remove it.
pub(crate) async fn read_order(backstop: &Backstop, worker: &WorkerName) -> Answer<Option<(Standing, Cell)>> {
    let cell = backstop.store().cells(vec![order_of(worker)]).await?.pop().flatten();
    Ok(cell.and_then(|cell| Some((read::<OrderCell>(&cell)?.0?, cell))))
}

/// Takes away what was kept of a run that has ended. What is there of another run stays.
pub(crate) async fn withdraw(backstop: &Backstop, worker: &WorkerName, run: &RunOf) -> Answer<()> {
    let cells = backstop.store().cells(vec![card_of(worker), order_of(worker)]).await?;
    let is_ours = |cell: &Cell| {
        if cell.name.starts_with(CARDS) {
            read::<Card>(cell).is_none_or(|card| card.run.as_ref() == Some(run))
        } else {
            read::<OrderCell>(cell).and_then(|order| order.0).is_none_or(|order| order.is_for(run))
        }
    };
    let ours: Vec<Cell> = cells.into_iter().flatten().filter(is_ours).collect();
    remove(backstop, &ours).await
}

/// What an order makes of the one that stands. One that was for another run does not stand.
pub(crate) async fn change_order(
    backstop: &Backstop,
    worker: &WorkerName,
    run: Option<&RunOf>,
    duty: Duty,
    order: Order,
    by: &str,
) -> Answer<Given> {
    let at = backstop.now();
    let change = |cell: &mut OrderCell| {
        let stands = cell.0.take().filter(|stands| run.is_none_or(|run| stands.is_for(run)));
        let (asked, ordered) = ordered(stands.as_ref().map(|stands| stands.asked), duty, order);
        cell.0 = asked.map(|asked| match stands {
            Some(stands) if stands.asked == asked => stands,
            _ => Standing { asked, at, by: by.to_owned(), run: run.map(|run| run.id.clone()) },
        });
        Given { ordered, asked }
    };
    Ok(update(backstop, &order_of(worker), OrderCell::default(), change).await?.1)
}
