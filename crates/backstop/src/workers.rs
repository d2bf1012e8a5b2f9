//! Workers as an operator sees them: who they are, what they do, and what they are asked for.
//!
//! What a worker tells of itself is its card, and what it is asked for its order; `card` says how
//! both are kept. What an order means is decided by [`backstop_core::order`]. Orders are given in
//! somebody's name, with [`Changes::order`](crate::operate::Changes::order).
//!
//! | a worker | shown as |
//! |---|---|
//! | missed two heartbeats, and holds jobs | not heard: they are taken over once its leases are over |
//! | missed two heartbeats, or has said goodbye, and holds nothing | stopped |
//! | was told to stop, or stops by itself | stopping |
//! | was asked to take no new jobs | quiet |
//! | anything else | live |
//!
//! A worker without a card hears no orders: it is of a version that knows none. It is shown as it
//! is, whatever it was asked for.

pub(crate) mod card;

use crate::client::Backstop;
use crate::kinds;
use crate::shared::read;
use crate::why::LIVE_WITHIN;
use backstop_core::limits::CELLS_MAX;
use backstop_core::order::{Asked, Duty, Order, Ordered, SILENCE_MAX, Standing};
use backstop_core::port::{Answer, Cell, WorkerStatus};
use backstop_core::{Kind, QueueName, Span, Time, WorkerName};
use card::Card;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Workers are shown, and can be asked for something, for so long after their last sign of life.
pub const LISTED: Span = Span::hours(1);
/// What is said to who asks for something of a worker that does not listen.
pub const UNHEARD: &str = "it has told nothing of itself; if it is of a version that hears no orders, it works on. End its process instead";
/// What a heartbeat may be late by: as long as a store may take for it.
const BEAT_SLACK: Span = Span::secs(1);
/// Cells that are read for each worker of a list: card, order, kinds.
const CELLS_EACH: usize = 3;

/// What a worker tells of itself; what it does not tell is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// The machine it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its process there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The version of backstop it is built with; of a worker elsewhere, whatever it calls its
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Since when it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// How many jobs it can run at once, over all its queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<u32>,
    /// How much memory its process has in use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

/// A worker, with all that is known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerInfo {
    /// What its beats show.
    pub status: WorkerStatus,
    /// What it tells of itself.
    pub about: About,
    /// How many of its places are taken, as it told in the last ten seconds; of a worker elsewhere,
    /// the jobs it holds.
    pub taken: u64,
    /// The kinds it knows, for each queue of which it does not know every kind.
    pub kinds: BTreeMap<QueueName, BTreeSet<Kind>>,
    /// What it says that it does.
    pub duty: Duty,
    /// What it is asked for.
    pub asked: Option<Standing>,
    /// Whether it has told anything of itself, and so hears what it is asked for.
    has_card: bool,
    /// Whether it is a worker of a process, which takes its card away when it ends.
    is_of_process: bool,
    /// How often it sends heartbeats, where it tells that.
    beats_every: Option<Span>,
}

/// Some of the workers, by name.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkersPage {
    /// Those that fit.
    pub workers: Vec<WorkerInfo>,
    /// The last one, where there are more.
    pub next: Option<WorkerName>,
}

/// How a worker is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Health {
    /// It holds jobs and is not heard: they are taken over once its leases are over.
    Silent,
    /// It ends with the last job it has.
    Stopping,
    /// It takes no new jobs.
    Quiet,
    /// It works.
    Live,
    /// It is not heard, or has said goodbye, and holds nothing.
    Stopped,
}

impl Health {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "not heard",
            Self::Stopping => "stopping",
            Self::Quiet => "quiet",
            Self::Live => "live",
            Self::Stopped => "stopped",
        }
    }

    /// Whether it is heard and takes no new jobs.
    pub const fn takes_nothing(self) -> bool {
        matches!(self, Self::Quiet | Self::Stopping)
    }

    /// Whether it can still be asked for something.
    pub const fn is_there(self) -> bool {
        !matches!(self, Self::Stopped)
    }
}

/// Whether a worker's last sign of life is no older than one of the living's.
pub fn is_heard(worker: &WorkerStatus, now: Time) -> bool {
    now.since(worker.seen_at) <= LIVE_WITHIN
}

impl WorkerInfo {
    fn new(
        status: WorkerStatus,
        card: Option<Card>,
        order: Option<Standing>,
        known: kinds::Known,
    ) -> Self {
        let has_card = card.is_some();
        let card = card.unwrap_or_default();
        let (is_of_process, beats_every) = (card.is_of_process(), card.beats_every);
        let asked = order.filter(|order| card.run.as_ref().is_none_or(|run| order.is_for(run)));
        Self {
            // The card may be older than the beats.
            taken: card
                .taken
                .map_or(status.running, u64::from)
                .min(status.running),
            status,
            about: card.about,
            kinds: known.into_queues(),
            duty: card.duty,
            asked,
            has_card,
            is_of_process,
            beats_every,
        }
    }

    /// Whether it is heard at `now` and takes new jobs.
    pub fn takes_jobs(&self, now: Time) -> bool {
        self.health(now) == Health::Live
    }

    /// Whether it keeps house for workers elsewhere and serves no queue, as a server without
    /// handlers does. A worker that stopped serves none either, and is none of these.
    pub fn serves_nothing(&self, now: Time) -> bool {
        let is_idle = self.status.queues.is_empty() && self.status.running == 0;
        is_idle && self.health(now) != Health::Stopped
    }

    /// How it is at `now`.
    pub fn health(&self, now: Time) -> Health {
        // Two missed heartbeats, and a moment for the next one to arrive.
        let silence_max = self
            .beats_every
            .map_or(LIVE_WITHIN, |period| period.times(2).plus(BEAT_SLACK));
        let is_heard = now.since(self.status.seen_at) <= silence_max;
        // A worker that stops takes its card away, and its last beat names no queue.
        let has_left = !self.is_of_process && self.status.queues.is_empty();
        let asked = self
            .asked
            .as_ref()
            .filter(|_| self.has_card)
            .map(|asked| asked.asked);
        match (is_heard, self.status.running) {
            (false, 1..) => Health::Silent,
            (false, 0) => Health::Stopped,
            (true, 0) if has_left => Health::Stopped,
            (true, _) => match self.duty.heeding(asked) {
                Duty::Working => Health::Live,
                Duty::Quiet => Health::Quiet,
                Duty::Stopping => Health::Stopping,
            },
        }
    }
}

/// What became of an order, and what stands now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// What became of it.
    pub ordered: Ordered,
    /// What the worker is asked for from now on.
    pub asked: Option<Asked>,
    /// Whether it has ever told anything of itself. One that has not is of a version that hears no
    /// orders.
    pub listens: bool,
}

impl Backstop {
    /// All workers that beat within `within`, by name, with what they tell of themselves and what
    /// they are asked for.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let backstop = backstop::Backstop::open("memory:").await?;
    /// for worker in backstop.workers(backstop::workers::LISTED).await? {
    ///     let health = worker.health(backstop.current_time().await);
    ///     println!("{} {}", worker.status.name, health.as_str());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn workers(&self, within: Span) -> Answer<Vec<WorkerInfo>> {
        let workers = self
            .store()
            .workers(within, self.current_time().await)
            .await?;
        self.with_cards(workers).await
    }

    /// Some of them, by name, behind the worker `after`.
    pub async fn workers_page(
        &self,
        within: Span,
        after: Option<&WorkerName>,
        limit: usize,
    ) -> Answer<WorkersPage> {
        let mut found = self
            .store()
            .workers(within, self.current_time().await)
            .await?;
        found.retain(|worker| after.is_none_or(|after| worker.name > *after));
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found
            .last()
            .filter(|_| has_more)
            .map(|worker| worker.name.clone());
        Ok(WorkersPage {
            workers: self.with_cards(found).await?,
            next,
        })
    }

    pub(crate) async fn with_cards(&self, workers: Vec<WorkerStatus>) -> Answer<Vec<WorkerInfo>> {
        let mut infos = Vec::with_capacity(workers.len());
        for part in workers.chunks(CELLS_MAX / CELLS_EACH) {
            let names = |worker: &WorkerStatus| {
                [
                    card::card_of(&worker.name),
                    card::order_of(&worker.name),
                    kinds::cell(&worker.name),
                ]
            };
            let cells = self
                .store()
                .cells(part.iter().flat_map(names).collect())
                .await?;
            let mut cells = cells.into_iter();
            for worker in part {
                let mut next = || cells.next().flatten();
                let (card, order, known) = (next(), next(), next());
                infos.push(WorkerInfo::new(
                    worker.clone(),
                    card.as_ref().and_then(read::<Card>),
                    order.as_ref().and_then(standing),
                    known
                        .as_ref()
                        .and_then(read::<kinds::Known>)
                        .unwrap_or_default(),
                ));
            }
        }
        Ok(infos)
    }

    /// Gives an order to a worker, in the name of `by`; `None` if there is no such worker to be
    /// asked: it was not heard of within the hour, or, if it never said which run of it this is,
    /// lately.
    pub(crate) async fn order(
        &self,
        name: &WorkerName,
        order: Order,
        by: &str,
    ) -> Answer<Option<Given>> {
        let now = self.current_time().await;
        let workers = self.store().workers(LISTED, now).await?;
        let Some(status) = workers.into_iter().find(|worker| worker.name == *name) else {
            return Ok(None);
        };
        let card = card::read_card(self, name).await?;
        let has_run = card.as_ref().is_some_and(|card| card.run.is_some());
        if !has_run && now.since(status.seen_at) > SILENCE_MAX {
            return Ok(None);
        }
        Ok(Some(
            card::change_order(self, name, card.as_ref(), order, by).await?,
        ))
    }
}

fn standing(cell: &Cell) -> Option<Standing> {
    read::<card::OrderCell>(cell).and_then(|order| order.0)
}

#[cfg(test)]
mod tests;
