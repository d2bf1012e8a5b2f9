//! Two cells for each worker: `cards/WORKER` is written by the worker, `orders/WORKER` by its
//! operators.
//!
//! A worker that stops takes both away. What workers leave that vanish is removed when they were
//! not heard of for a day.

use super::{About, Given};
use crate::client::Backstop;
use crate::shared::{read, remove, update};
use backstop_core::limits::{HOST_CHARS_MAX, VERSION_CHARS_MAX};
use backstop_core::order::{Duty, Order, RunOf, Standing, Told, ordered};
use backstop_core::port::{Answer, Cell};
use backstop_core::{Span, Time, WorkerName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the names of the cells begin with.
pub(crate) const CARDS: &str = "cards/";
pub(crate) const ORDERS: &str = "orders/";
/// A card that was written before that is removed, unless its worker is among the living.
const KEPT: Span = Span::days(1);
/// Nobody else says who a worker of a process is for so long after it wrote its card, which it does
/// every minute.
const GUARDED: Span = Span::minutes(3);
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
    /// How many of its places are taken. Only workers of a process tell this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) taken: Option<u32>,
    /// How often it sends heartbeats. Only workers of a process tell this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beats_every: Option<Span>,
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
    /// The card of a worker of this process.
    pub(crate) fn here(about: About, run: RunOf, taken: usize, duty: Duty) -> Self {
        let taken = Some(u32::try_from(taken).unwrap_or(u32::MAX));
        Self {
            about: about.bounded(),
            run: Some(run),
            taken,
            beats_every: None,
            duty,
            at: None,
        }
    }

    /// With heartbeats this often.
    pub(crate) fn beating_every(self, period: Span) -> Self {
        Self {
            beats_every: Some(period),
            ..self
        }
    }

    /// The card of a worker elsewhere, as far as it tells. One that tells nothing has a card, too:
    /// whoever speaks for it heeds its orders.
    pub(crate) fn elsewhere(about: &About) -> Self {
        let about = about.clone().bounded();
        Self {
            run: run_of(&about),
            about,
            ..Self::default()
        }
    }

    /// Whether a worker of a process wrote it: those tell how many of their places are taken, and
    /// others cannot.
    pub(crate) const fn is_of_process(&self) -> bool {
        self.taken.is_some()
    }

    /// Whether a worker of a process wrote it, and not long ago: then it is there, and nobody else
    /// says who it is.
    fn is_guarded(&self, now: Time) -> bool {
        self.is_of_process() && self.at.is_some_and(|at| now.since(at) < GUARDED)
    }

    /// What is known by this card together with what was told before: a call adds to what was told
    /// of the same run, and one that tells another run begins anew.
    #[must_use]
    pub(crate) fn over(self, before: &Self) -> Self {
        if before.is_of_process()
            || self
                .run
                .as_ref()
                .is_some_and(|run| before.run.as_ref() != Some(run))
        {
            return self;
        }
        let (told, known) = (self.about, before.about.clone());
        let about = About {
            host: told.host.or(known.host),
            pid: told.pid.or(known.pid),
            version: told.version.or(known.version),
            since: told.since.or(known.since),
            places: told.places.or(known.places),
            memory: told.memory.or(known.memory),
        };
        Self {
            about,
            run: self.run.or_else(|| before.run.clone()),
            ..Self::default()
        }
    }

    /// Whether it says the same, whenever it was written.
    pub(crate) fn says_as(&self, other: &Self) -> bool {
        Self {
            at: None,
            ..self.clone()
        } == Self {
            at: None,
            ..other.clone()
        }
    }

    /// The same, but for the memory, which is never the same twice: to tell each change of it would
    /// be a write every few seconds.
    pub(crate) fn says_as_much_as(&self, other: &Self) -> bool {
        let without = |card: &Self| {
            let about = About {
                memory: None,
                ..card.about.clone()
            };
            Self {
                about,
                ..card.clone()
            }
        };
        without(self).says_as(&without(other))
    }

    /// Whether it may be forgotten: it is old, and its worker is not among the living.
    pub(crate) fn is_over(cell: &Cell, living: &BTreeSet<String>, now: Time) -> bool {
        let is_old =
            read::<Self>(cell).is_none_or(|card| card.at.is_none_or(|at| at.after(KEPT) < now));
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
            version: self
                .version
                .and_then(|version| cut(version, VERSION_CHARS_MAX)),
            memory: self
                .memory
                .map(|bytes| bytes.div_ceil(MEMORY_STEP).saturating_mul(MEMORY_STEP)),
            ..self
        }
    }
}

/// The run that this is of.
fn run_of(about: &About) -> Option<RunOf> {
    let About {
        host, pid, since, ..
    } = about;
    if pid.is_none() && since.is_none() {
        return None;
    }
    let host = host.as_deref().unwrap_or_default();
    let (pid, start) = (
        pid.unwrap_or_default(),
        since.map(|since| since.to_string()).unwrap_or_default(),
    );
    // An order that was given before it told of its process is for it: it began before any order.
    let since = since.unwrap_or(Time::from_millis(0));
    Some(RunOf {
        id: format!("{host}/{pid}/{start}"),
        since,
    })
}

/// What a call tells of its run.
pub(crate) fn told_of(about: &About) -> Told {
    match run_of(&about.clone().bounded()) {
        Some(run) if about.since.is_some() => Told::Run(run),
        Some(process) => Told::Process(process.id),
        None => Told::Nothing,
    }
}

pub(crate) fn card_of(worker: &WorkerName) -> String {
    format!("{CARDS}{worker}")
}

pub(crate) fn order_of(worker: &WorkerName) -> String {
    format!("{ORDERS}{worker}")
}

/// Puts down the card of a worker of this process. One that says the same is left as it is.
pub(crate) async fn put_card(backstop: &Backstop, worker: &WorkerName, card: &Card) -> Answer<()> {
    put(backstop, worker, |_| Some(card.clone())).await
}

/// Puts down what a worker elsewhere tells. Whoever goes by the name of a worker of a process
/// changes nothing of that one's card.
pub(crate) async fn put_card_elsewhere(
    backstop: &Backstop,
    worker: &WorkerName,
    card: &Card,
) -> Answer<()> {
    let now = backstop.now();
    put(backstop, worker, |standing| {
        (!standing.is_guarded(now)).then(|| card.clone().over(standing))
    })
    .await
}

async fn put(
    backstop: &Backstop,
    worker: &WorkerName,
    with: impl Fn(&Card) -> Option<Card>,
) -> Answer<()> {
    let at = Some(backstop.now());
    let put = |standing: &mut Card| {
        if let Some(card) = with(standing).filter(|card| !standing.says_as(card)) {
            *standing = Card { at, ..card };
        }
    };
    update(backstop, &card_of(worker), Card::default(), put).await?;
    Ok(())
}

pub(crate) async fn read_card(backstop: &Backstop, worker: &WorkerName) -> Answer<Option<Card>> {
    let cell = backstop
        .store()
        .cells(vec![card_of(worker)])
        .await?
        .pop()
        .flatten();
    Ok(cell.as_ref().and_then(read))
}

/// What is kept of a worker: its card, and the order that stands with the cell it stands in.
pub(crate) async fn read_both(
    backstop: &Backstop,
    worker: &WorkerName,
) -> Answer<(Option<Card>, Option<(Standing, Cell)>)> {
    let mut cells = backstop
        .store()
        .cells(vec![card_of(worker), order_of(worker)])
        .await?
        .into_iter();
    let mut next = || cells.next().flatten();
    let (card, order) = (next(), next());
    Ok((card.as_ref().and_then(read), order.and_then(standing_in)))
}

fn standing_in(cell: Cell) -> Option<(Standing, Cell)> {
    Some((read::<OrderCell>(&cell)?.0?, cell))
}

/// The order that stands for a worker.
pub(crate) async fn read_order(
    backstop: &Backstop,
    worker: &WorkerName,
) -> Answer<Option<Standing>> {
    let cell = backstop
        .store()
        .cells(vec![order_of(worker)])
        .await?
        .pop()
        .flatten();
    Ok(cell.and_then(standing_in).map(|(order, _)| order))
}

/// Takes away what was kept of a run that has ended. What is there of another run stays.
pub(crate) async fn withdraw(backstop: &Backstop, worker: &WorkerName, run: &RunOf) -> Answer<()> {
    let cells = backstop
        .store()
        .cells(vec![card_of(worker), order_of(worker)])
        .await?;
    let is_ours = |cell: &Cell| {
        if cell.name.starts_with(CARDS) {
            read::<Card>(cell).is_none_or(|card| card.run.as_ref() == Some(run))
        } else {
            read::<OrderCell>(cell)
                .and_then(|order| order.0)
                .is_none_or(|order| order.is_for(run))
        }
    };
    let ours: Vec<Cell> = cells.into_iter().flatten().filter(is_ours).collect();
    remove(backstop, &ours).await
}

/// What an order makes of the one that stands. One that was for another run does not stand.
pub(crate) async fn change_order(
    backstop: &Backstop,
    worker: &WorkerName,
    card: Option<&Card>,
    order: Order,
    by: &str,
) -> Answer<Given> {
    let (at, listens) = (backstop.now(), card.is_some());
    let run = card.and_then(|card| card.run.as_ref());
    let duty = card.map(|card| card.duty).unwrap_or_default();
    let change = |cell: &mut OrderCell| {
        let stands = cell
            .0
            .take()
            .filter(|stands| run.is_none_or(|run| stands.is_for(run)));
        let (asked, ordered) = ordered(stands.as_ref().map(|stands| stands.asked), duty, order);
        cell.0 = asked.map(|asked| match stands {
            Some(stands) if stands.asked == asked => stands,
            _ => Standing {
                asked,
                at,
                by: by.to_owned(),
                run: run.map(|run| run.id.clone()),
            },
        });
        Given {
            ordered,
            asked,
            listens,
        }
    };
    Ok(
        update(backstop, &order_of(worker), OrderCell::default(), change)
            .await?
            .1,
    )
}
